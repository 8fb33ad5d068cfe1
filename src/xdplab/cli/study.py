"""`study NAME`: what is measured besides XDP traffic, each repeatable in one command. A new study is a line here."""

from __future__ import annotations

import click

from xdplab.cli.study_execution import execution
from xdplab.cli.study_jit import jit
from xdplab.cli.study_loading import loading
from xdplab.cli.study_offload import offload
from xdplab.cli.study_verifier import verifier


@click.group()
def study() -> None:
    """Studies of the execution side: what BPF costs to verify, to load and to run."""


study.add_command(verifier)
study.add_command(execution)
study.add_command(jit)
study.add_command(loading)
study.add_command(offload)
