"""What doctor found, as lines for a person: what needs the reader first, and what is right folded into one line."""

from __future__ import annotations

from collections.abc import Sequence

from xdplab.doctor.checks import Row, Verdict, problems_first
from xdplab.text import many


def headline(rows: Sequence[Row]) -> str:
    """Return the answer in one line: whether anything needed is missing, and how many `problems` are warnings."""
    listed_problems = [verdict for verdict, *_ in problems(rows)]
    missing, warnings = listed_problems.count("missing"), listed_problems.count("warn")
    needed = f"{many(missing, 'needed thing')} missing" if missing else "nothing that is needed is missing"
    return f"{needed}; {many(warnings, 'warning')}" if warnings else needed


def folded(rows: Sequence[Row], how: str) -> str:
    """Return the one line that stands for the checks without a problem; ``how`` says how to see them."""
    return f"{sum(row.verdict == 'ok' for row in rows)} ok ({how})"


def problems(rows: Sequence[Row]) -> list[tuple[Verdict, str, str, str]]:
    """Return verdict, checks, finding and remedy of each problem, most urgent first.

    Hosts on which a check ends alike share a line.
    """
    together: dict[tuple[Verdict, str, str], list[str]] = {}
    for row in problems_first(rows):
        if row.verdict != "ok":
            place = together.setdefault((row.verdict, row.found, row.remedy or ""), [])
            place.append(f"{row.host}: {row.check}")
    return [(verdict, ", ".join(names), finding, remedy) for (verdict, finding, remedy), names in together.items()]


def listed(rows: Sequence[Row], how: str | None) -> str:
    """Return the headline, the problems with their remedies, and the checks without a problem: folded, or each if
    ``how`` is None."""
    shown = [f"{verdict:8} {names}: {finding}" + (f"\n  {remedy}" if remedy else "")
             for verdict, names, finding, remedy in problems(rows)]  # fmt: skip
    right = [f"ok       {row.host}: {row.check}: {row.found}" for row in rows if row.verdict == "ok"]
    return "\n".join([headline(rows), *shown, *(right if how is None else [folded(rows, how)])])
