"""The thesis' text of sar and of `perf stat`, with decimal commas.

sar: blocks of CPUs (`-u ALL`) and of interfaces (`-n DEV`) every two seconds. perf: `.` for thousands, `,` for
decimals, and a header that says what was counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import nan

import numpy as np
from numpy.typing import NDArray

from xdplab.errors import FormatError
from xdplab.formats.perf import PerfCount, Target, target_of_header
from xdplab.thesis.log_text import ANY_DIGIT, Anomaly, layout_of, unreadable

Rows = NDArray[np.float64]
CPU_SHARES = ("usr", "sys", "irq", "soft", "idle")
CPU_COLUMNS = ("t_s", "cpu", *CPU_SHARES)
"""Of SarText.cpus: end of the sample since sar's start; cpu is NaN for all CPUs together; shares in percent."""
INTERFACE_COLUMNS = ("t_s", "interface", "rx_pps", "tx_pps")
"""Of SarText.interfaces; interface is a place in SarText.interface_names."""

_CPU_TITLE = b"CPU %usr %nice %sys %iowait %steal %irq %soft %guest %gnice %idle".split()
_INTERFACE_TITLE = b"IFACE rxpck/s txpck/s rxkB/s txkB/s rxcmp/s txcmp/s rxmcst/s %ifutil".split()
_SHARES = tuple(_CPU_TITLE[1:].index(b"%" + share.encode()) for share in CPU_SHARES)
_TITLES = {b"CPU": _CPU_TITLE, b"IFACE": _INTERFACE_TITLE}
_TIME = rb"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_NUMBER = rb" +[0-9]{1,15}[,.][0-9]{2}"
_ROWS = {
    b"CPU": re.compile(_TIME + rb" +(?:all|[0-9]{1,5})(?:" + _NUMBER + rb"){10}"),
    b"IFACE": re.compile(_TIME + rb" +[^\s:,]{1,16}(?:" + _NUMBER + rb"){8}"),
}
_INTERFACES = re.compile(rb"\n" + _TIME + rb"( [^\n]*)\n(?:" + _ROWS[b"IFACE"].pattern + rb"\n)+")
_START = re.compile(_TIME)
_CLOCK_CHARS = len("hh:mm:ss")
_ONE_KIND = bytes.maketrans(b"0123456789", b" " * 10)
_DECIMAL = bytes.maketrans(b",", b".")
_NO_CPUS, _NO_INTERFACES = (np.zeros((0, len(columns))) for columns in (CPU_COLUMNS, INTERFACE_COLUMNS))
_CLOCK = np.array([3600.0, 60.0, 1.0])
"""Seconds of an hour, a minute and a second."""


@dataclass(frozen=True, eq=False)
class SarText:
    """The samples of one file: one row per sample and CPU, one per sample and interface; and what is wrong with it.

    ``samples``: how many its tables hold in order, each of them whole; 0 if they may be others. ``cpu_lines``: 1-based
    line of CPU 0 in each block of CPUs, two below its title (behind it comes ``all``).
    """

    cpus: Rows
    interface_names: tuple[str, ...]
    interfaces: Rows
    samples: int
    cpu_lines: tuple[int, ...]
    anomalies: tuple[Anomaly, ...]


def parse_sar_text(data: bytes) -> SarText:
    """Return the content of a sar log. Raises nothing: anomalies are part of the result."""
    return parse_sar_texts([data])[0]


def parse_sar_texts(logs: Sequence[bytes]) -> list[SarText]:
    """Return the content of each log, as ``parse_sar_text`` does, in a tenth of the time where they are alike."""
    if not logs:
        return []
    bad = [unreadable(data, b"Linux ") for data in logs]
    if not any(bad) and (texts := _at_once(logs)) is not None:
        return texts
    if (half := len(logs) // 2) > 0:
        return parse_sar_texts(logs[:half]) + parse_sar_texts(logs[half:])
    (data,), (anomaly,) = logs, bad
    if anomaly is None:
        return [_by_line(data)]
    return [SarText(_NO_CPUS, (), _NO_INTERFACES, 0, (), (anomaly,))]


def _at_once(logs: Sequence[bytes]) -> list[SarText] | None:
    """Return the content of logs with nothing wrong and the same CPUs and interfaces, read as grids of characters."""
    cpu_blocks: list[bytes] = []
    interface_blocks: list[bytes] = []
    firsts, starts = [0], list[float]()
    for data in logs:
        begin, end = data.find(b"\n\n") + 2, data.rfind(b"\n\nAverage: ", 0, data.rfind(b"\n\nAverage: "))
        averages = [piece[:9] for piece in data[end + 2 :].split(b"\n\n")]
        if not 0 < data.find(b"\n") + 2 == begin < end or averages != [b"Average: "] * 2 or not data.endswith(b"\n"):
            return None
        size = data.find(b"\n\n", begin) + 1 - begin  # of a block of CPUs: all have as many
        clock = _START.match(data, begin)
        while begin < end:
            stop = begin + size
            cpu_blocks.append(data[begin:stop])
            begin = (data.find(b"\n\n", stop) + 1 or len(data)) + 1  # if it ends there, behind `end`
            interface_blocks.append(data[stop : begin - 1])
        if begin != end + 2 or not clock:
            return None
        firsts.append(len(cpu_blocks))
        starts.append(_clock_s(clock[0]))
    cpus, named = _cpus(cpu_blocks), _interfaces(interface_blocks)
    if cpus is None or named is None:
        return None
    names, interfaces = named
    t_s = _since(cpus[:, 0, 0], np.repeat(starts, np.diff(firsts)))
    rising = t_s[1:] > t_s[:-1]
    rising[np.array(firsts[1:-1], int) - 1] = True  # another log begins
    if not rising.all() or (interfaces[:, 0, 0] != cpus[:, 0, 0]).any():
        return None
    cpus[:, :, 0] = interfaces[:, :, 0] = t_s[:, None]
    texts = []
    for first, last in pairwise(firsts):
        rows = cpus.shape[1] + len(names) + 4  # with two titles and two empty lines; two lines are the heading's
        lines = tuple(range(5, 5 + (last - first) * rows, rows))
        tables = [table[first:last].reshape(-1, table.shape[2]) for table in (cpus, interfaces)]
        texts.append(SarText(tables[0], names, tables[1], last - first, lines, ()))
    return texts


def _since(times: Rows, start: Rows | float) -> Rows:
    return (times - start) % 86400  # a run may pass midnight


def _cpus(blocks: list[bytes]) -> Rows | None:
    """Return the table if each block has all CPUs together and then each in order, as sar writes them."""
    first, text = blocks[0], b"".join(blocks)
    width, size = first.find(b"\n") + 1, first.count(b"\n")
    row = first[width : 2 * width]
    behind = row.find(b"all") + len(b"all")
    if len(text) != len(blocks) * width * size or b"-" in text or not _ROWS[b"CPU"].fullmatch(row[:-1]):
        return None
    lines = np.frombuffer(text, np.uint8).reshape(len(blocks), size, width)
    titles, clocks, names = lines[:, 0, _CLOCK_CHARS:], lines[:, 1:, :_CLOCK_CHARS], lines[:, 1:, _CLOCK_CHARS:behind]
    in_order = [b"all", *(b"%d" % cpu for cpu in range(size - 2))]
    if _kind(titles[0].tobytes()) != b"CPU" or names[0].tobytes().split() != in_order:
        return None
    if (titles != titles[0]).any() or (names != names[0]).any() or (clocks != clocks[:, :1]).any():
        return None
    times = layout_of(clocks[0, 0].tobytes()).read(clocks[:, 0])
    shares = layout_of(row[behind:], _SHARES).read(lines[:, 1:, behind:].reshape(-1, width - behind))
    if times is None or shares is None:
        return None
    table = np.empty((len(blocks), size - 1, len(CPU_COLUMNS)))
    table[:, :, 0] = (times @ _CLOCK)[:, None]
    table[:, :, 1] = [nan, *range(size - 2)]
    table[:, :, 2:] = shares.reshape(len(blocks), size - 1, -1)
    return table


def _interfaces(blocks: list[bytes]) -> tuple[tuple[str, ...], Rows] | None:
    """Return the names and the table if each block, which begins with a line's end, has the same interfaces."""
    if not _is_interfaces(blocks[0].translate(ANY_DIGIT)):
        return None
    names = _names(blocks[0])
    # Behind the title's clock, of three numbers: the first row's, and the first two rates of each row.
    fields = (3, 4, 5, *(3 + 11 * row + number for row in range(len(names)) for number in (3, 4)))
    of_shape: dict[bytes, list[int]] = {}
    for place, block in enumerate(blocks):  # a large number moves those behind it
        of_shape.setdefault(block.translate(_ONE_KIND), []).append(place)
    table = np.empty((len(blocks), len(names), len(INTERFACE_COLUMNS)))
    table[:, :, 1] = np.arange(len(names))
    for places in of_shape.values():
        first, text = blocks[places[0]], b"".join([blocks[place] for place in places])
        if not _is_interfaces(first.translate(ANY_DIGIT)) or _names(first) != names:
            return None
        grid = np.frombuffer(text, np.uint8).reshape(len(places), -1)
        numbers = layout_of(first, fields).read(grid)
        if numbers is None or text.count(b"-") != len(places) * first.count(b"-"):
            return None
        begins = np.flatnonzero(grid[0] == ord("\n"))[1:-1] + 1
        clocks = grid[:, begins[:, None] + np.arange(_CLOCK_CHARS)]
        if (clocks != clocks[:, :1]).any():
            return None
        table[places, :, 0] = (numbers[:, :3] @ _CLOCK)[:, None]
        table[places, :, 2:] = numbers[:, 3:].reshape(len(places), len(names), 2)
    return None if len(set(names)) < len(names) else (tuple(name.decode() for name in names), table)


def _names(block: bytes) -> list[bytes]:
    return [row.split(None, 2)[1] for row in block.splitlines()[2:]]


@lru_cache(maxsize=64)
def _is_interfaces(shape: bytes) -> bool:
    """Return whether a block with all its digits 0 is an empty line, a title, and rows of interfaces."""
    match = _INTERFACES.fullmatch(shape)
    return match is not None and _kind(match[1]) == b"IFACE"


@lru_cache(maxsize=64)
def _kind(columns: bytes) -> bytes | None:
    """Return whether a title's columns are those of CPUs or of interfaces, None if they are neither."""
    names = columns.split()
    return names[0] if names and _TITLES.get(names[0]) == names else None


def _by_line(data: bytes) -> SarText:
    """Return the content of any log; lines and blocks that are none of sar's are left out and reported."""
    rows: dict[bytes, list[list[bytes]]] = {b"CPU": [], b"IFACE": []}
    lines: list[int] = []
    anomalies: list[Anomaly] = []
    heading, *blocks = data.split(b"\n\n")
    if b"\n" in heading.strip():
        anomalies.append(Anomaly("damaged", "no empty line behind the first", 2))
    averages, line = 0, heading.count(b"\n") + 3
    for block in blocks:
        title, *texts = block.split(b"\n")
        time, _, columns = title.partition(b" ")
        if time == b"Average:":
            averages += 1
        elif kind := _kind(columns):
            good = [text for text in texts if _ROWS[kind].fullmatch(text)]
            rows[kind] += [text.translate(_DECIMAL).split() for text in good]
            if kind == b"CPU":
                lines.append(line + 2)
            bad = sum(1 for text in texts if text.strip()) - len(good)
            if bad > (block is blocks[-1]):  # its last line is the cut that `truncated` names
                anomalies.append(Anomaly("damaged", f"{bad} lines that are no rows", line))
        elif block.strip():
            anomalies.append(Anomaly("damaged", "a block that is not one of sar's", line))
        line += len(texts) + 2
    if averages != 2 or not data.endswith(b"\n"):
        text = "no averages of CPUs and interfaces at the end"
        anomalies.append(Anomaly("truncated", text, data.count(b"\n") + 1))
    names = {name: place for place, name in enumerate(dict.fromkeys(name for _, name, *_ in rows[b"IFACE"]))}
    cpus = [
        [_clock_s(clock), nan if name == b"all" else float(name), *(float(shares[place]) for place in _SHARES)]
        for clock, name, *shares in rows[b"CPU"]
    ]
    interfaces = [[_clock_s(row[0]), float(names[row[1]]), float(row[2]), float(row[3])] for row in rows[b"IFACE"]]
    tables = [np.array(table, float) for table in (cpus or _NO_CPUS, interfaces or _NO_INTERFACES)]
    start = _START.search(data, data.find(b"\n"))
    for table in tables:
        table[:, 0] = _since(table[:, 0], _clock_s(start[0]) if start else 0.0)
    return SarText(tables[0], tuple(name.decode() for name in names), tables[1], 0, tuple(lines), tuple(anomalies))


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
        return PerfCount(match["event"], None, word, unit, running)
    if "," in word and not unit:
        return None
    return PerfCount(match["event"], float(word.replace(".", "").replace(",", ".")), None, unit, running)


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
