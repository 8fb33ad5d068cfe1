"""The CSV twin of a generator's log: the same numbers under labels of its own. Are they the right ones?

Each rate column is recognised by its numbers, which the log holds too, and its label says rate or average rate. Nothing
else of a twin is read: its numbers are those of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xdplab.thesis.generator_log import COLUMNS, Rows

LEAST_ROWS = 3
_RATE = re.compile(r"\brates?\b|taxa", re.IGNORECASE)
_AVERAGE = re.compile(r"\b(?:avg|average|mean)\b|m[eé]di[ao]", re.IGNORECASE)
_PARTS = re.compile(r"[,;\t]")
_SIDES = ("tx", "rx")


def swapped_labels(head: bytes, rows: Rows) -> list[tuple[str, str]]:
    """Return the pairs (label of a rate, label of its average) that stand above each other's numbers.

    ``head``: the twin's beginning; ``rows``: those of a GeneratorRun.
    """
    labels, *lines = head.decode(errors="replace").splitlines()[:-1] or [""]  # the last line may be cut
    table = [_PARTS.split(line) for line in lines]
    titles = [title.strip().strip('"') for title in _PARTS.split(labels)]
    found = {}
    for place, title in enumerate(titles):
        if _RATE.search(title) and (kind := _kind(_numbers(table, place), rows)):
            found[kind] = title
    pairs = [
        (found[side, "mean"], found[side, "last"]) for side in _SIDES if {(side, "mean"), (side, "last")} <= {*found}
    ]
    # A label that says average, above the rates of the last moment, and the other way round.
    return [(mean, last) for mean, last in pairs if _AVERAGE.search(last) and not _AVERAGE.search(mean)]


def _numbers(table: list[list[str]], place: int) -> list[float]:
    return [value for words in table if place < len(words) for value in _number(words[place]) if value]


def _number(word: str) -> Iterator[float]:
    try:
        yield round(float(word), 2)
    except ValueError:
        return


def _kind(values: list[float], rows: Rows) -> tuple[str, str] | None:
    """Return whose rates these numbers are: the log's only column that holds them; None if none or several do."""
    if len(values) < LEAST_ROWS:
        return None
    own = {
        (side, kind): set(rows[:, COLUMNS.index(f"{side}_{kind}_pps")].round(2))
        for side in _SIDES
        for kind in ("last", "mean")
    }
    known = [key for key, numbers in own.items() if numbers.issuperset(values)]
    return known[0] if len(known) == 1 else None
