"""`study NAME`: the measurements besides XDP traffic, each repeatable by one command. Add a line here for a new
study."""

from __future__ import annotations

import click

from xdplab.cli.common import Verb, Verbs

STUDIES = {
    "execution": Verb("study_execution", "execution", "BPF, the same code as a kernel module, and in user space."),
    "jit": Verb("study_jit", "jit", "What BPF costs interpreted and compiled."),
    "loading": Verb("study_loading", "loading", "What loading costs: BPF, and the same code as a module."),
    "offload": Verb("study_offload", "offload", "What a card that offloads XDP accepts and refuses."),
    "published": Verb("study_published", "table_of_published", "Published experiments beside runs of these studies."),
    "verifier": Verb("study_verifier", "verifier", "What time and memory the kernel's verifier takes."),
}


@click.group(cls=Verbs, verbs=STUDIES)
def study() -> None:
    """Studies of the execution side: what BPF costs to verify, to load and to run."""
