"""What a probe found as rows for the terminal, as a page, and without names; and the docs' table of drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

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


RESULTS = {"works": "yes", "fails": "**fails**", "refused": "no", "not tried": "not tried"}
TOPICS = ("mode", "burst", "MTU", "queues", "ring", "RSS", "dark")

_HEAD = """\
# What drivers can do

Each column is what `xdplab probe LAB --publish --json` found: tried, not read ([how](../use/probe.md)). Made by
`python -m xdplab.cli.pages docs --kept` from the files in `docs/results/probes`. (!) marks what is not as announced by
netlink or ethtool. A virtual card is a veth, or QEMU's model of a card in a guest, whose limits are in the answers,
too; an emulated guest shows no time. The guest with igb ran in QEMU 10.0: Debian 12's 7.2 has none.
"""


def drivers_page(folder: Path) -> str:
    """Return the page of all probes in ``folder``, in the order of their files."""
    probes = [TypeAdapter(ProbedPort).validate_json(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    return (
        "\n".join([_HEAD, _tried(probes), "## What counts the frames\n", _counted(probes), _odd(probes)]).rstrip()
        + "\n"
    )


def _tried(probes: Sequence[ProbedPort]) -> str:
    """Return a table for each topic: a row for each question that any of the probes asked."""
    parts = []
    for topic in TOPICS:
        cells = {p.card: {a.question: _cell(a) for a in p.answers if a.topic == topic} for p in probes}
        questions = dict.fromkeys(question for column in cells.values() for question in column)
        rows = [{topic: q} | {name: column.get(q, "") for name, column in cells.items()} for q in questions]
        parts.append(f"## {_TITLES[topic]}\n\n{markdown(pd.DataFrame(rows))}")
    return "\n".join(parts)


_TITLES = {
    "mode": "Modes", "burst": "Bursts of 1,000 frames", "MTU": "The largest MTU", "queues": "Queues", "ring": "Rings",
    "RSS": "RSS", "dark": "Dark at attach",
}  # fmt: skip


def _cell(answer: ProbeAnswer) -> str:
    words = answer.found or answer.words
    if answer.words == "announced only":
        return f"announced: {answer.announced}"
    if answer.topic in ("MTU", "dark") and answer.result == "works":
        return str(words)
    detail = "" if answer.result == "works" or words is None else f": {words}"
    return f"{RESULTS[answer.result]}{detail}{' (!)' if answer.disagrees else ''}"


def _counted(probes: Sequence[ProbedPort]) -> str:
    rows = [{"driver": probe.card} | row for probe in probes for row in burst_rows(probe.bursts)]
    return markdown(pd.DataFrame(rows))


def _odd(probes: Sequence[ProbedPort]) -> str:
    """Return what is not as announced, and where the table of drivers is wrong."""
    lines = [f"* {probe.card}: {line}\n" for probe in probes for line in probe.disagreements]
    return "\n## Not as announced, or not as in the table of drivers\n\n" + ("".join(lines) or "Nothing.\n")
