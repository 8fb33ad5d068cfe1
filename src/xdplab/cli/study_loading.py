"""`study loading`: what it costs to load a BPF program, or the same code as a module, into the kernel."""

from __future__ import annotations

from typing import Any

import click

from xdplab.cli.conduct import conduct, made_small, run_choices, run_options
from xdplab.programs.spec import FORMS, WORKLOADS
from xdplab.studies.catalogue import study
from xdplab.studies.loading.points import ACCESSES, DEFAULT_PLACES, LoadingRequest
from xdplab.studies.loading.points import smallest as smaller


def _numbers(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 1,100,1600") from None


@click.command()
@click.option("--smallest", is_flag=True, help="One kernel that counts, three programs, few repetitions: a minute.")
@click.option("--place", "places", multiple=True, help=f"{', '.join(DEFAULT_PLACES)} by default; uml, vm:6.1@arm64 …")
@click.option("--accesses", callback=_numbers, default="", metavar="N,N,…", help=f"{','.join(map(str, ACCESSES))}.")
@click.option("--form", "forms", multiple=True, type=click.Choice(FORMS), help="bounded and unrolled.")
@click.option("--workload", type=click.Choice(WORKLOADS), default="array", show_default=True)
@click.option("--repetitions", "loads", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Loads.")
@click.option("--compiles", type=click.IntRange(1, 1000), default=5, show_default=True, help="Of each program.")
@click.option("--budget-s", type=click.FloatRange(0.1, 3600), default=5.0, show_default=True, help="Of one pass.")
@run_options
def loading(smallest: bool, **chosen: Any) -> int:
    """What loading costs: BPF compiled, opened, verified, JITed, attached; the same compiled, inserted as a module."""
    return conduct(study("loading"), lambda: _request(smallest, chosen), run_choices(chosen))


def _request(smallest: bool, chosen: dict[str, object]) -> LoadingRequest:
    """Options that were not given keep the request's defaults."""
    said = {key: value for key, value in chosen.items() if value != ()}
    request = LoadingRequest(**said)  # type: ignore[arg-type]
    return made_small(request, smaller) if smallest else request
