"""What a probe found as rows for the terminal, as a page, and without names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from xdplab.studies.probe.answers import ProbeAnswer, ProbedBurst, ProbedPort
from xdplab.studies.tables import markdown

Rows = list[dict[str, str]]


def answer_rows(answers: Iterable[ProbeAnswer]) -> Rows:
    """Return a row for each answer; ``!`` marks those that are not as announced."""
    return [
        {
            "topic": answer.topic,
            "what": answer.question,
            "result": answer.result,
            "found": answer.found or answer.words or "",
            "announced": f"{answer.announced or ''}{' (!)' if answer.disagrees else ''}",
        }
        for answer in answers
    ]


def burst_rows(bursts: Iterable[ProbedBurst]) -> Rows:
    """Return a row for each burst: counters that rose by exactly what the program had, and the others."""
    return [
        {
            "mode": burst.mode,
            "action": burst.action,
            "frames": f"{burst.seen:,}",
            "came back": f"{burst.returned:,}",
            "counted by": ", ".join(map(without_queue, burst.exact)) or "no counter",
            "rose otherwise": ", ".join(
                f"{without_queue(name)} by {n:,}"
                for name, n in burst.rose.items()
                if name not in burst.exact and "bytes" not in name
            ),
        }
        for burst in bursts
    ]


def without_queue(name: str) -> str:
    """Return a counter's name with `*` for its queue, which is a matter of the flow's hash."""
    return re.sub(r"(?<=queue_)\d+|(?<=Queue# )\d+|(?<=rx|tx)\d+(?=_)", "*", " ".join(name.split()))


def title_of(probe: ProbedPort) -> str:
    """Return the port in a line."""
    parts = [probe.port, f"driver {probe.card}", probe.date[:10]]
    return ", ".join(part for part in parts if part)


def closing_lines(probe: ProbedPort) -> list[str]:
    """Return what is not as announced or as in the table of drivers, or that nothing is."""
    if probe.disagreements:
        return probe.disagreements
    if probe.in_table and not probe.table:
        return ["what was announced works; no frame was sent: the table of drivers was not tried"]
    table = "the table of drivers holds" if probe.in_table else "the table of drivers has no row for it"
    return [f"what was announced works; {table}"]


def page(probe: ProbedPort) -> str:
    """Return one page in Markdown."""
    parts = [f"# {probe.driver}: what this port can do", f"{title_of(probe)}; made by `xdplab probe`."]
    parts += ["".join(f"* {line}\n" for line in closing_lines(probe))]
    parts += ["## What was tried", _table(answer_rows(probe.answers))]
    if probe.bursts:
        parts += ["## What counts the frames", _table(burst_rows(probe.bursts))]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _table(rows: Rows) -> str:
    return markdown(pd.DataFrame(rows))


_PLACE = r"(?<!\w)/[^\s:;,`]+|(?<![\w.])[\w-]+(?:\.[\w-]+){2,}"
"""A path, or a host's full name or address."""


def published(probe: ProbedPort, names: Iterable[str]) -> ProbedPort:
    """Return the probe without the port's name and address, the kernel's own suffix, and ``names`` in any words."""
    pattern = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True) if name)
    pattern = "|".join(filter(None, (pattern, _PLACE)))
    answers = [replace(answer, words=answer.words and re.sub(pattern, "…", answer.words)) for answer in probe.answers]
    kernel = re.sub(r"-.*", "", probe.kernel)
    return replace(probe, port=None, bus=None, kernel=kernel, answers=answers)
