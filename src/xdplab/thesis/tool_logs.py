"""The thesis' text of sar and of `perf stat`, with decimal commas.

sar: blocks of CPUs (`-u ALL`) and of interfaces (`-n DEV`) every two seconds. perf: `.` for thousands, `,` for
decimals, and a header that says what was counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from xdplab.errors import FormatError
from xdplab.formats.perf import PerfCount, Target, target_of_header
from xdplab.thesis.log_text import Anomaly, grid_of, layout_of, unreadable

Rows = NDArray[np.float64]
CPU_COLUMNS = ("t_s", "cpu", "usr", "nice", "sys", "iowait", "steal", "irq", "soft", "guest", "gnice", "idle")
"""Of SarText.cpus: end of the sample since sar's start; cpu is NaN for all CPUs together; shares in percent."""
INTERFACE_COLUMNS = ("t_s", "interface", "rx_pps", "tx_pps")
"""Of SarText.interfaces; interface is a place in SarText.interface_names."""

_CPU_TITLE = b"CPU %usr %nice %sys %iowait %steal %irq %soft %guest %gnice %idle".split()
_INTERFACE_TITLE = b"IFACE rxpck/s txpck/s rxkB/s txkB/s rxcmp/s txcmp/s rxmcst/s %ifutil".split()
_TITLES = {b"CPU": _CPU_TITLE, b"IFACE": _INTERFACE_TITLE}
_TIME = rb"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_NUMBER = rb" +[0-9]{1,15}[,.][0-9]{2}"
_BEHIND_TIME = {
    b"CPU": re.compile(rb" +(?:all|[0-9]{1,5})(?:" + _NUMBER + rb"){10}"),
    b"IFACE": re.compile(rb" +[^\s:,]{1,16}(?:" + _NUMBER + rb"){8}"),
}
_ROWS = {name: re.compile(rb"(?:" + _TIME + row.pattern + rb"\n)*") for name, row in _BEHIND_TIME.items()}
_START = re.compile(_TIME)
_CPU_ROW, _RATES = Struct(f"{len(CPU_COLUMNS) - 1}d"), Struct("2d")
_DECIMAL = bytes.maketrans(b",", b".")
_ANY_DIGIT = bytes.maketrans(b"0123456789", b"0" * 10)
_ALL, _ZERO = (np.frombuffer(text, np.uint8) for text in (b"all", b"  0"))
_CLOCK = np.array([3600.0, 60.0, 1.0])
"""Seconds of an hour, a minute and a second."""


class _NoRowError(Exception):
    """A line of a block is no row: its lines are then checked one by one."""


@dataclass(frozen=True, eq=False)
class SarText:
    """The samples of one file: one row per sample and CPU, one per sample and interface; and what is wrong with it.

    ``cpu_lines``: 1-based line of CPU 0 in each block of CPUs, two below its title (behind it comes ``all``).
    """

    cpus: Rows
    interface_names: tuple[str, ...]
    interfaces: Rows
    cpu_lines: tuple[int, ...]
    anomalies: tuple[Anomaly, ...]


def parse_sar_text(data: bytes) -> SarText:
    """Return the content of a sar log. Raises nothing: anomalies are part of the result."""
    if anomaly := unreadable(data, b"Linux "):
        return SarText(np.zeros((0, len(CPU_COLUMNS))), (), np.zeros((0, len(INTERFACE_COLUMNS))), (), (anomaly,))
    start = _START.search(data, data.find(b"\n"))
    try:
        blocks, lines, anomalies = _blocks(data, checked=False)
        cpus, (names, rows) = _cpus_at_once(blocks[b"CPU"]), _interfaces(blocks[b"IFACE"])
    except _NoRowError:
        blocks, lines, anomalies = _blocks(data, checked=True)
        cpus, (names, rows) = _cpus(blocks[b"CPU"]), _interfaces(blocks[b"IFACE"])
    for table in (cpus, rows):
        # A run may pass midnight.
        table[:, 0] = (table[:, 0] - (_clock_s(start[0]) if start else 0.0)) % 86400
    return SarText(cpus, names, rows, tuple(lines), tuple(anomalies))


def _blocks(data: bytes, *, checked: bool) -> tuple[dict[bytes, list[bytes]], list[int], list[Anomaly]]:
    """Return the rows of each block of CPUs and of interfaces, without the averages at the end; the lines of CPU 0.

    ``checked``: each line is checked, and returned by itself; lines that are not rows are left out and reported.
    """
    by_kind: dict[bytes, list[bytes]] = {b"CPU": [], b"IFACE": []}
    lines: list[int] = []
    anomalies: list[Anomaly] = []
    (heading, _), *blocks = _pieces(data)
    if b"\n" in heading.strip():
        anomalies.append(Anomaly("damaged", "no empty line behind the first", 2))
    averages = 0
    for block, line in blocks:
        title, _, rows = block.partition(b"\n")
        time, _, columns = title.partition(b" ")
        if time == b"Average:":
            averages += 1
        elif kind := _kind(columns):
            good, bad = _rows(rows, kind) if checked else ([rows.rstrip(b"\n")], 0)
            by_kind[kind] += good
            if kind == b"CPU":
                lines.append(line + 2)
            cut = block is blocks[-1][0]  # its last line is the cut that `truncated` names
            if bad > cut:
                anomalies.append(Anomaly("damaged", f"{bad} lines that are no rows", line))
        elif block.strip():
            anomalies.append(Anomaly("damaged", "a block that is not one of sar's", line))
    if averages != 2 or not data.endswith(b"\n"):
        text = "no averages of CPUs and interfaces at the end"
        anomalies.append(Anomaly("truncated", text, data.count(b"\n") + 1))
    return by_kind, lines, anomalies


def _pieces(data: bytes) -> list[tuple[bytes, int]]:
    """Return what stands between empty lines, each piece with its first line (1-based).

    All line ends are looked for at once: ``data.split`` stops at each of them, and takes four times as long.
    """
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    empty = np.flatnonzero(ends[1:] - ends[:-1] == 1)
    if (empty[1:] - empty[:-1] == 1).any():  # two empty lines in a row: an odd one belongs to the piece behind it
        pieces = data.split(b"\n\n")
        lines = np.cumsum([1, *(piece.count(b"\n") + 2 for piece in pieces[:-1])]).tolist()
        return list(zip(pieces, lines, strict=True))
    begins, stops = [0, *(ends[empty + 1] + 1).tolist()], [*ends[empty].tolist(), len(data)]
    lines = [1, *(empty + 3).tolist()]
    return [(data[begin:stop], line) for begin, stop, line in zip(begins, stops, lines, strict=True)]


@lru_cache(maxsize=64)
def _kind(columns: bytes) -> bytes | None:
    """Return whether a title's columns are those of CPUs or of interfaces, None if they are neither."""
    names = columns.split()
    return names[0] if names and _TITLES.get(names[0]) == names else None


def _rows(rows: bytes, name: bytes) -> tuple[list[bytes], int]:
    """Return the rows of one block, and how many of its lines are not rows."""
    lines = [line for line in rows.splitlines() if line.strip()]
    good = [line for line in lines if _ROWS[name].fullmatch(line + b"\n")]
    return good, len(lines) - len(good)


def _cpus_at_once(blocks: list[bytes]) -> Rows:
    """Return the table of rows of CPUs if each block has all CPUs together and then each in order, as sar writes them.

    Its numbers are read as one grid of characters. Raises _NoRowError for any other text.
    """
    text = b"\n".join([*blocks, b""])
    grid, size = grid_of(text), blocks[0].count(b"\n") + 1 if blocks else 0
    if grid is None or size < 2 or len(grid) != size * len(blocks) or b"-" in text:
        raise _NoRowError
    grid = grid.copy()
    lines = grid.reshape(len(blocks), size, -1)
    at = text.find(b"all")
    if not 0 < at < lines.shape[2] or not _ROWS[b"CPU"].fullmatch(lines[0, 1].tobytes()):
        raise _NoRowError
    name = lines[:, 0, at : at + len(_ALL)]
    if name.shape[1] < len(_ALL) or (name != _ALL).any():
        raise _NoRowError
    name[:] = _ZERO
    numbers = layout_of(lines[0, 1].tobytes()).read(grid)
    if numbers is None:
        raise _NoRowError
    table = np.empty((len(blocks), size, len(CPU_COLUMNS)))
    table[:, :, 0] = (numbers[:, :3] @ _CLOCK).reshape(len(blocks), size)
    table[:, :, 1:] = numbers[:, 3:].reshape(len(blocks), size, -1)
    if (table[:, :, 0] != table[:, :1, 0]).any() or (table[:, 1:, 1] != np.arange(size - 1)).any():
        raise _NoRowError
    table[:, 0, 1] = nan
    return table.reshape(-1, len(CPU_COLUMNS))


def _cpus(blocks: list[bytes]) -> Rows:
    """Return the table of rows of CPUs, row by row. Raises _NoRowError."""
    clocked = [_one_clock(block) for block in blocks]
    numbers = b"".join([_cpu(row) for _, rows in clocked for row in rows])
    table = np.empty((sum(len(rows) for _, rows in clocked), len(CPU_COLUMNS)))
    table[:, 0] = _times(clocked)
    table[:, 1:] = np.frombuffer(numbers).reshape(-1, len(CPU_COLUMNS) - 1)
    return table


_Clocked = tuple[bytes, list[bytes]]
"""The clock of rows, and what stands behind it in each of them."""


def _one_clock(rows: bytes) -> _Clocked:
    """Return the rows of one block, split by the clock of the first; where another one stands, a piece is no row."""
    clock = rows[:8]
    if not _START.fullmatch(clock):
        raise _NoRowError
    return clock, rows[8:].split(b"\n" + clock)


def _interfaces(blocks: list[bytes]) -> tuple[tuple[str, ...], Rows]:
    """Return the names and the table of rows of interfaces. Raises _NoRowError."""
    clocked = [_one_clock(block) for block in blocks]
    interfaces = [_interface(row) for _, rows in clocked for row in rows]
    places: dict[bytes, int] = {}
    table = np.empty((len(interfaces), len(INTERFACE_COLUMNS)))
    table[:, 0] = _times(clocked)
    table[:, 1] = [places.setdefault(name, len(places)) for name, _ in interfaces]
    table[:, 2:] = np.frombuffer(b"".join([rates for _, rates in interfaces])).reshape(-1, 2)
    return tuple(name.decode() for name in places), table


def _times(blocks: list[_Clocked]) -> Rows:
    return np.repeat([_clock_s(clock) for clock, _ in blocks], [len(rows) for _, rows in blocks])


# Most interfaces are idle: most rows were seen before.


@lru_cache(maxsize=1 << 14)
def _cpu(row: bytes) -> bytes:
    """Return the numbers of a row behind its time, packed: CPU (NaN for all), shares. Raises _NoRowError."""
    _require_row(b"CPU", row.translate(_ANY_DIGIT))
    name, *shares = row.translate(_DECIMAL).split()
    return _CPU_ROW.pack(nan if name == b"all" else float(name), *map(float, shares))


@lru_cache(maxsize=1 << 14)
def _interface(row: bytes) -> tuple[bytes, bytes]:
    """Return the name and the packed rates of a row behind its time. Raises _NoRowError."""
    _require_row(b"IFACE", row.translate(_ANY_DIGIT))
    name, rx, tx = row.translate(_DECIMAL).split(None, 3)[:3]
    return name, _RATES.pack(float(rx), float(tx))


@lru_cache(maxsize=1 << 12)
def _require_row(name: bytes, shape: bytes) -> None:
    """Raise _NoRowError unless a row with all its digits 0 is one of CPUs or of interfaces."""
    if not _BEHIND_TIME[name].fullmatch(shape):
        raise _NoRowError


def _clock_s(clock: bytes) -> float:
    """Return seconds of the day from hh:mm:ss."""
    return 3600.0 * int(clock[:2]) + 60.0 * int(clock[3:5]) + int(clock[6:8])


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
