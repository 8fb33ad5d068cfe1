"""The docs' table of drivers: what published probes found, a column for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

from xdplab.studies.probe.answers import ProbeAnswer, ProbedPort
from xdplab.studies.probe.page import burst_rows
from xdplab.studies.tables import markdown

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
