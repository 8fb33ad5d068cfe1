"""The thesis' `perf stat` text: `.` for thousands, `,` for decimals, and a header that says what was counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from xdplab.errors import FormatError
from xdplab.formats.perf import PerfCount, Target, target_of_header
from xdplab.thesis.log_text import Anomaly, unreadable

_COUNT = re.compile(
    r"\s*(?P<value>[0-9]{1,3}(?:\.[0-9]{3})*(?:,[0-9]+)?|[0-9]+(?:,[0-9]+)?|<not counted>|<not supported>)"
    r"\s+(?:(?P<unit>msec)\s+)?(?P<event>[A-Za-z][^\s#]*)\s*(?:#[^(]*)?(?:\((?P<running>[0-9]{1,3},[0-9]{2})%\))?\s*"
)
_ELAPSED = re.compile(r"\s*([0-9]{1,9},[0-9]{1,9}) seconds time elapsed\s*")
_AFTERMATH = re.compile(
    r"\s*[0-9]+,[0-9]+ seconds (?:user|sys)\s*|Some events weren't counted.*|\t.*|# started on .*|\s*"
)
_HEADER = "Performance counter stats for"


@dataclass(frozen=True)
class PerfText:
    """One file: whom perf counted (None if the header is missing), the counts by line, and what is wrong with it.

    ``elapsed_s`` is None if the file ends before it.
    """

    target: Target | None
    counts: dict[int, PerfCount]
    elapsed_s: float | None
    anomalies: tuple[Anomaly, ...]


def parse_perf_text(data: bytes) -> PerfText:
    """Return the content of a perf log. Raises nothing: anomalies are part of the result."""
    if anomaly := unreadable(data, b"# started on "):
        return PerfText(None, {}, None, (anomaly,))
    text = data.decode()
    counts: dict[int, PerfCount] = {}
    bad: list[int] = []
    elapsed_s: float | None = None
    *lines, rest = text.split("\n")
    for number, line in enumerate(lines, start=1):
        counter = _read(line)
        if isinstance(counter, PerfCount):
            counts[number] = counter
        elif counter is not None:
            elapsed_s = counter
        elif not _is_aftermath(line):
            bad.append(number)
    if rest:
        bad.append(len(lines) + 1)
    return PerfText(_target(text), counts, elapsed_s, _anomalies(text, bad, elapsed_s))


# Cached, because half of a log's lines have no number and are the same in all logs.
@lru_cache(maxsize=1 << 10)
def _read(line: str) -> PerfCount | float | None:
    """Return the count in a line, or the seconds that elapsed, or None if it has neither."""
    if (match := _COUNT.fullmatch(line)) and (count := _count(match)):
        return count
    match = _ELAPSED.fullmatch(line)
    return float(match[1].replace(",", ".")) if match else None


@lru_cache(maxsize=1 << 10)
def _is_aftermath(line: str) -> bool:
    return _HEADER in line or bool(_AFTERMATH.fullmatch(line))


def _count(match: re.Match[str]) -> PerfCount | None:
    """Return the count in a line, or None if a whole number was expected (another locale's decimals)."""
    word, unit = match["value"], match["unit"] or ""
    running = float(match["running"].replace(",", ".")) if match["running"] else None
    if word.startswith("<"):
        return PerfCount(match["event"], None, word, unit, None, running)
    if "," in word and not unit:
        return None
    return PerfCount(match["event"], float(word.replace(".", "").replace(",", ".")), None, unit, None, running)


def _target(text: str) -> Target | None:
    try:
        return target_of_header(text)
    except FormatError:
        return None


def _anomalies(text: str, bad: list[int], elapsed_s: float | None) -> tuple[Anomaly, ...]:
    last = text.count("\n") + 1
    if elapsed_s is None and bad in ([], [last]):
        return (Anomaly("truncated", "it ends before the time that elapsed", last),)
    if bad:
        return (Anomaly("damaged", f"{len(bad)} lines that are no counts", bad[0]),)
    return ()
