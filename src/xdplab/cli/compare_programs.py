"""What `compare --programs` and `study verifier --compare` share: options, sides, and output."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import print_json, show_frame, tell
from xdplab.cli.options import options_as
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.studies.kinds import open_run

with lazily():
    from xdplab.studies.verifier import compare_programs

if TYPE_CHECKING:
    from xdplab.studies.verifier.compare_programs import ComparisonOptions, Side

CSV = ".csv"


@dataclass(frozen=True)
class Judging:
    """What of a comparison per program is shown, and which growth is allowed."""

    metrics: str | None
    filters: tuple[str, ...]
    sort: str | None
    top: int | None
    thresholds: tuple[str, ...]

    @property
    def given(self) -> bool:
        return any(astuple(self))

    @property
    def options(self) -> ComparisonOptions:
        metrics = tuple(name.strip() for name in (self.metrics or "").split(",") if name.strip())
        return compare_programs.ComparisonOptions(metrics, self.filters, self.sort, self.top, self.thresholds)


judging_options = options_as(
    "judging",
    Judging,
    click.option(
        "--show", "metrics", metavar="METRIC,…", help="Columns to show, such as processed_insns,memory_bytes."
    ),
    click.option(
        "--filter", "filters", multiple=True, metavar="CONDITION", help="processed_insns_b>1000, program=xdp_*"
    ),
    click.option(
        "--sort", metavar="COLUMN", help="Largest first; -COLUMN: smallest first. Default: the largest change."
    ),
    click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show the first N programs; all are judged."),
    click.option(
        "--threshold",
        "thresholds",
        multiple=True,
        metavar="METRIC=PERCENT",
        help="Largest allowed growth; exit code 1 beyond it.",
    ),
)


@dataclass(frozen=True)
class Which:
    """Whether a comparison is per program, and of which kernels."""

    programs: bool
    kernels: str | None

    @property
    def given(self) -> bool:
        return self.programs or self.kernels is not None


which_options = options_as(
    "which",
    Which,
    click.option(
        "--programs", is_flag=True, help="Study verifier: compare per program. Any option below means it too."
    ),
    click.option("--kernels", metavar="A,B", help="Study verifier: the kernel of each side, such as host,7.2."),
)


def sides(first: Path, other: Path | None, kernels: str | None) -> tuple[Side, Side]:
    """Return the two sides: runs, or CSVs that veristat wrote; of a single run, its two kernels or corpora."""
    names = [word.strip() for word in kernels.split(",")] if kernels else [None, None]
    if len(names) != 2 or not all(name is None or name for name in names):
        raise PlanError(f"--kernels {kernels} is not A,B", remedy="such as --kernels host,7.2")
    if other is None and first.suffix == CSV:
        raise PlanError(f"{first} alone has nothing to compare with", remedy="name a second CSV, or a run")
    if other is None and not kernels:
        return compare_programs.sides_within(open_run(first))
    a, b = (_side(path, name) for path, name in zip((first, other or first), names, strict=True))
    return a, b


def _side(path: Path, kernel: str | None) -> Side:
    if path.suffix == CSV:
        return compare_programs.side_of_csv(path)
    return compare_programs.side_of_run(open_run(path), kernel)


def show_programs(a: Side, b: Side, judging: Judging, *, as_json: bool = False) -> int:
    """Show a comparison, and return its exit code."""
    compared = compare_programs.compared(a, b, judging.options)
    if as_json:
        print_json(compared.to_json())
        return compared.exit_code
    show_frame(compared.readable)
    for line in compared.lines():
        tell(line)
    return compared.exit_code
