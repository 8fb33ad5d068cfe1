"""The thesis' sar text: blocks of CPUs (`-u ALL`) and of interfaces (`-n DEV`) every two seconds, decimal comma."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from xdplab.thesis.anomalies import Anomaly, unreadable
from xdplab.thesis.fixed_width import grid_of, layout_of

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
_ROWS = {
    b"CPU": re.compile(rb"(?:" + _TIME + rb" +(?:all|[0-9]{1,5})(?:" + _NUMBER + rb"){10}\n)*"),
    b"IFACE": re.compile(rb"(?:" + _TIME + rb" +[^\s:,]{1,16}(?:" + _NUMBER + rb"){8}\n)*"),
}
_INTERFACE_ROW = re.compile(
    rb" +([^\s:,]{1,16}) +([0-9]{1,15}[,.][0-9]{2}) +([0-9]{1,15}[,.][0-9]{2})(?:" + _NUMBER + rb"){6}"
)
_ALL = re.compile(rb" (all) ")
_START = re.compile(_TIME)
_DECIMAL = bytes.maketrans(b",", b".")


@dataclass(frozen=True, eq=False)
class SarText:
    """The samples of one file: one row per sample and CPU, one per sample and interface; and what is wrong with it."""

    cpus: Rows
    interface_names: tuple[str, ...]
    interfaces: Rows
    anomalies: tuple[Anomaly, ...]


def parse_sar_text(data: bytes) -> SarText:
    """Return the content of a sar log. Raises nothing: anomalies are part of the result."""
    if anomaly := unreadable(data, b"Linux "):
        return SarText(np.zeros((0, len(CPU_COLUMNS))), (), np.zeros((0, len(INTERFACE_COLUMNS))), (anomaly,))
    start = _START.search(data, data.find(b"\n"))
    start_s = _clock_s(start[0]) if start else 0.0
    bodies, anomalies = _bodies(data, checked=False)
    cpus, interfaces = _cpus_at_once(bodies[b"CPU"]), _interfaces(bodies[b"IFACE"])
    if cpus is None or interfaces is None:
        bodies, anomalies = _bodies(data, checked=True)
        cpus, interfaces = _numbers(bodies[b"CPU"]), _interfaces(bodies[b"IFACE"])
    assert interfaces is not None  # each of its rows was checked
    names, rows = interfaces
    for table in (cpus, rows):
        table[:, 0] = (table[:, 0] - start_s) % 86400  # a run may pass midnight
    return SarText(cpus, names, rows, tuple(anomalies))


def _bodies(data: bytes, *, checked: bool) -> tuple[dict[bytes, bytes], list[Anomaly]]:
    """Return the rows of all CPU blocks and of all interface blocks, without the averages at the end.

    ``checked``: each line is checked, and lines that are not rows are left out and reported.
    """
    parts: dict[bytes, list[bytes]] = {b"CPU": [], b"IFACE": []}
    anomalies: list[Anomaly] = []
    heading, *blocks = data.split(b"\n\n")
    if b"\n" in heading.strip():
        anomalies.append(Anomaly("damaged", "no empty line behind the first", 2))
    averages = 0
    offset = len(heading) + 2
    for block in blocks:
        title, _, rows = block.partition(b"\n")
        time, _, columns = title.partition(b" ")
        if time == b"Average:":
            averages += 1
        elif kind := _kind(columns):
            whole = rows.rstrip(b"\n") + b"\n"
            good, bad = _rows(whole, kind) if checked else (whole, 0)
            parts[kind].append(good)
            cut = offset + len(block) == len(data)  # its last line is the cut that `truncated` names
            if bad > cut:
                anomalies.append(Anomaly("damaged", f"{bad} lines that are no rows", _line(data, offset)))
        elif block.strip():
            anomalies.append(Anomaly("damaged", "a block that is not one of sar's", _line(data, offset)))
        offset += len(block) + 2
    if averages != 2 or not data.endswith(b"\n"):
        anomalies.append(Anomaly("truncated", "no averages of CPUs and interfaces at the end", _line(data, len(data))))
    return {name: b"".join(rows) for name, rows in parts.items()}, anomalies


@lru_cache(maxsize=64)
def _kind(columns: bytes) -> bytes | None:
    """Return whether a title's columns are those of CPUs or of interfaces, None if they are neither."""
    words = columns.split()
    return words[0] if words and _TITLES.get(words[0]) == words else None


def _rows(rows: bytes, name: bytes) -> tuple[bytes, int]:
    """Return the rows of one block, and how many of its lines are not rows."""
    if _ROWS[name].fullmatch(rows):
        return rows, 0
    lines = [line for line in rows.splitlines(keepends=True) if line.strip()]
    good = [line for line in lines if _ROWS[name].fullmatch(line)]
    return b"".join(good), len(lines) - len(good)


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _cpus_at_once(rows: bytes) -> Rows | None:
    """Return the table of rows of CPUs where they all stand in the columns of the first one, else None."""
    grid = grid_of(rows)
    first = grid[0].tobytes() if grid is not None else b""
    word = _ALL.search(first)
    if grid is None or word is None or not _ROWS[b"CPU"].fullmatch(first):
        return np.zeros((0, len(CPU_COLUMNS))) if not rows else None
    name = slice(word.start(1), word.end(1))
    of_all = (grid[:, name] == grid[0, name]).all(axis=1)
    named = grid.copy()
    named[of_all, name] = np.frombuffer(b"  0", np.uint8)
    numbers = layout_of(named[0].tobytes(), signed=False).read(named)
    if numbers is None or numbers.shape[1] != len(CPU_COLUMNS) + 2:
        return None
    table = numbers[:, 2:]
    table[:, 0] = numbers[:, :3] @ _SECONDS
    table[of_all, 1] = np.nan
    return table


def _numbers(rows: bytes) -> Rows:
    """Return the table of rows of CPUs, a word at a time."""
    table = np.zeros((rows.count(b"\n"), len(CPU_COLUMNS)))
    for place, row in enumerate(rows.translate(_DECIMAL).splitlines()):
        clock, name, *shares = row.split()
        table[place] = [_clock_s(clock), np.nan if name == b"all" else float(name), *map(float, shares)]
    return table


def _interfaces(rows: bytes) -> tuple[tuple[str, ...], Rows] | None:
    """Return the names and the table of rows of interfaces, None if one of them is no row."""
    places: dict[bytes, int] = {}
    seconds: dict[bytes, float] = {}
    table: list[tuple[float, int, float, float]] = []
    for row in rows.splitlines():
        found, clock = _interface(row[8:]), row[:8]
        if found is None or (clock not in seconds and not _START.fullmatch(clock)):
            return None
        if clock not in seconds:
            seconds[clock] = _clock_s(clock)
        name, rx_pps, tx_pps = found
        table.append((seconds[clock], places.setdefault(name, len(places)), rx_pps, tx_pps))
    return tuple(name.decode() for name in places), np.array(table, float).reshape(-1, len(INTERFACE_COLUMNS))


@lru_cache(maxsize=4096)
def _interface(row: bytes) -> tuple[bytes, float, float] | None:
    """Return name and rates of a row after its time (cached, because most interfaces are idle and repeat the same
    row)."""
    match = _INTERFACE_ROW.fullmatch(row)
    return match and (match[1], float(match[2].translate(_DECIMAL)), float(match[3].translate(_DECIMAL)))


_SECONDS = np.array([3600.0, 60.0, 1.0])


def _clock_s(clock: bytes) -> float:
    """Return seconds of the day from hh:mm:ss."""
    return 3600.0 * int(clock[:2]) + 60.0 * int(clock[3:5]) + int(clock[6:8])
