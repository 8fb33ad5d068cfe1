"""`study execution`: the same code interpreted, compiled, in a kernel module and in user space."""

from __future__ import annotations

from typing import Any

import click

from xdplab.cli.conduct import conduct, made_small, run_choices, run_options
from xdplab.studies.catalogue import study
from xdplab.studies.execution.points import BACKENDS, FEWEST_CALLS, PLACES, ExecutionRequest
from xdplab.studies.execution.points import smallest as smaller


@click.command()
@click.option("--smallest", is_flag=True, help="Few benchmarks, one repetition, warm: a minute or two.")
@click.option(
    "--place", "places", multiple=True, metavar="PLACE", help=f"{', '.join(PLACES)} by default; vm:6.1@arm64 …"
)
@click.option("--backend", "backends", multiple=True, type=click.Choice([*BACKENDS]), help="All by default.")
@click.option("--benchmark", "benchmarks", multiple=True, metavar="NAME", help='Such as "chain 32"; all by default.')
@click.option("--accesses", multiple=True, type=click.IntRange(1, 10000), help="N of the testbed's workloads: 100.")
@click.option("--repetitions", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--calls", type=click.IntRange(FEWEST_CALLS, 100000), default=100, show_default=True, help="Warm.")
@click.option("--pause-us", "pauses_us", multiple=True, type=click.IntRange(0, 1000000), help="Before each call: 0.")
@click.option("--executions", multiple=True, type=click.IntRange(1, 64), help="Between two looks at the clock: 1.")
@click.option("--harden", "hardenings", multiple=True, type=click.IntRange(0, 2), help="net.core.bpf_jit_harden.")
@click.option("--cold/--no-cold", default=True, show_default=True, help="Also loaded anew, with caches evicted.")
@click.option("--host-module", is_flag=True, help="Insert the module into this machine's own kernel too.")
@click.option("--config", type=click.Path(dir_okay=False), metavar="FILE", help="Your own BPF and module.")
@run_options
def execution(smallest: bool, **chosen: Any) -> int:
    """What BPF costs, interpreted and compiled, against the same code as a kernel module and in user space."""
    return conduct(study("execution"), lambda: _request(smallest, chosen), run_choices(chosen))


def _request(smallest: bool, chosen: dict[str, object]) -> ExecutionRequest:
    """Options that were not given keep the request's defaults."""
    request = ExecutionRequest(**{key: value for key, value in chosen.items() if value not in ((), None)})  # type: ignore[arg-type]
    return made_small(request, smaller) if smallest else request
