"""The report on kernels as a page: what was run, then what any other run of the same kernels gives again."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from xdplab.analysis.sentences import sentence
from xdplab.errors import FigureError
from xdplab.figures import draw, save
from xdplab.figures.styles import DEFAULT_STYLE, STYLES
from xdplab.studies.cost.kernels import MARKS, KernelReport
from xdplab.studies.cost.views import KERNELS, MODE_TEXTS, VIEWS
from xdplab.studies.tables import Table, markdown
from xdplab.text import many

MOST_FUNCTIONS = 10
TITLE = "What a packet costs in each kernel"
_MADE = (
    "Instructions per packet, counted (docs/use/kernels.md) in an emulated guest by `xdplab kernels report`: no time, "
    "and no noise. What stands below the list of runs depends on kernels and objects alone; of runs on a busy machine "
    "single numbers may be one off, or hold to a range."
)
CELLS = (
    "A number is rounded to whole instructions. What another boot may count otherwise is left out of it: `p`, the "
    "kernel's path through a socket or of frames that take several paths, with its allocator; `a`, the path's "
    "allocator of small objects alone. `≠`: the runs disagree."
)
_WHY = (
    "Change per packet from one kernel to the next: the program's own machine code, all that it calls, and all else on "
    "its path; below these, each kernel function without what it calls, the largest change first. A function that the "
    "compiler inlines counts as its caller. Where the path is `p`, functions are not compared."
)


def tables(report: KernelReport) -> dict[str, Table]:
    """Return the tables in their order: the kernels, the costs by mode, and what changed between neighbours."""
    made = {"kernels": Table("Kernels", report.booted())}
    for mode in report.modes:
        made[mode] = _table(f"Instructions per packet, {MODE_TEXTS[mode]}", report.costs(mode), report.changes_of(mode))
    for old, new in report.neighbours():
        for mode in report.modes:
            changes, others = report.changes(old, new, mode, MOST_FUNCTIONS)
            if len(changes):
                more = f" ({many(others, 'other function')} changed)" if others else ""
                title = f"{report.label(old)} → {report.label(new)}, {MODE_TEXTS[mode]}{more}"
                made[title] = _table(title, changes, report.change(old, new, mode))
    return made


def _table(title: str, frame: pd.DataFrame, meaning: str) -> Table:
    return Table(title, frame, None, sentence(meaning) if meaning else "")


def _content(table: Table) -> str:
    """Return a table with its line, as Markdown."""
    return f"{markdown(table.frame)}\n{table.meaning}".rstrip()


def ranges(report: KernelReport) -> pd.DataFrame:
    """Return what holds to a range, in instructions, over the programs of a mode: a column for each kernel."""
    rows = []
    for mode in report.modes:
        for part, mark in MARKS.items():
            cells = {report.label(kernel): report.range_of(mode, kernel, part) for kernel in report.kernels}
            if any(cells.values()):
                rows.append({"part": f"{mark}, {MODE_TEXTS[mode]}"} | cells)
    return pd.DataFrame(rows)


def page(report: KernelReport, image: str | None) -> str:
    """Return the page as Markdown; ``image`` is the figure's place."""
    return "\n\n".join(_sections(report, image)) + "\n"


def _sections(report: KernelReport, image: str | None) -> Iterator[str]:
    yield f"# {TITLE}"
    if report.disagreements:
        yield f"**These runs disagree on {many(len(report.disagreements), 'packet')} of one object in one kernel:**"
        yield "\n".join(f"* **{line}**" for line in report.disagreements)
    yield _MADE
    yield "## Runs"
    if len(frame := ranges(report)):
        yield f"What held to a range in them (see below):\n\n{markdown(frame).rstrip()}"
    yield "\n".join(f"* {origin}" for origin in report.origins)
    made = tables(report)
    yield f"## Kernels\n\n{_content(made.pop('kernels'))}"
    yield f"## Costs\n\n{CELLS}"
    for mode in report.modes:
        yield f"### {MODE_TEXTS[mode]}\n\n{_content(made.pop(mode))}"
    if report.reasons:
        yield "\n".join(f"* [{number}] {reason}" for number, reason in enumerate(report.reasons, 1))
    if image:
        yield f"![Instructions per packet by kernel]({image})"
    if made:
        yield f"## Why\n\n{_WHY}"
    for title, table in made.items():
        yield f"### {title}\n\n{_content(table)}"
    yield f"## Objects\n\n{markdown(report.compilers()).rstrip()}"


def figure(report: KernelReport) -> bytes:
    """Return the figure as SVG. Raises FigureError if there is nothing to draw, such as of one kernel."""
    wholes = report.wholes()
    if wholes.empty:
        raise FigureError("no packet was counted")
    style = STYLES[DEFAULT_STYLE]
    sheet = save.sheet_of(draw.draw(VIEWS[KERNELS](wholes), style))
    return save.render(sheet, "svg", style, TITLE, {})
