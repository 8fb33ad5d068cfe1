"""`study jit`: what BPF costs interpreted and compiled."""

from __future__ import annotations

from typing import Any

import click

from xdplab.cli.conduct import conduct, made_small, run_choices, run_options
from xdplab.studies.catalogue import study
from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.filters import PACKET_FILTERS, SECCOMP_FILTERS
from xdplab.studies.jit.points import DEFAULT_PLACE, MODES, PARTS, SUITES, JitRequest
from xdplab.studies.jit.points import smallest as smaller


@click.command()
@click.option("--smallest", is_flag=True, help="Few tests, six classes, two filters: a minute.")
@click.option("--place", "places", multiple=True, help=f"{DEFAULT_PLACE} (the default), uml, host, vm:6.1@arm64 …")
@click.option(
    "--part", "parts", multiple=True, type=click.Choice(PARTS), help="All the place has; on host not test_bpf."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="What the place has.")
@click.option("--suite", "suites", multiple=True, type=click.Choice(SUITES), help="Of module test_bpf; all.")
@click.option("--tests", default="", metavar="FIRST-LAST", help="Only these tests of suite test_bpf.")
@click.option("--class", "classes", multiple=True, type=click.Choice(list(CLASSES)), metavar="NAME", help="All.")
@click.option("--filter", "filters", multiple=True, type=click.Choice([*PACKET_FILTERS, *SECCOMP_FILTERS]), help="All.")
@click.option("--expression", "expressions", multiple=True, help='A filter in tcpdump\'s syntax: "tcp port 80".')
@click.option(
    "--harden", "hardenings", multiple=True, type=click.IntRange(0, 2), help="net.core.bpf_jit_harden; as it is."
)
@click.option("--repetitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@run_options
def jit(smallest: bool, **chosen: Any) -> int:
    """What BPF costs interpreted and compiled: the kernel's own tests, programs of one instruction, classic filters."""
    return conduct(study("jit"), lambda: _request(smallest, chosen), run_choices(chosen))


def _request(smallest: bool, chosen: dict[str, object]) -> JitRequest:
    """Options that were not given keep the request's defaults."""
    said = {key: value for key, value in chosen.items() if value != ()}
    request = JitRequest(**said)  # type: ignore[arg-type]
    return made_small(request, smaller) if smallest else request
