"""The thesis' sar text: blocks of CPUs (`-u ALL`) and of interfaces (`-n DEV`) every two seconds, decimal comma."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xdplab.thesis.anomalies import Anomaly, unreadable

Rows = NDArray[np.float64]
CPU_COLUMNS = ("t_s", "cpu", "usr", "nice", "sys", "iowait", "steal", "irq", "soft", "guest", "gnice", "idle")
"""Of SarText.cpus: end of the sample since sar's start; cpu is NaN for all CPUs together; shares in percent."""
INTERFACE_COLUMNS = (
    "t_s",
    "interface",
    "rx_pps",
    "tx_pps",
    "rx_kbytes_per_s",
    "tx_kbytes_per_s",
    "rx_compressed_pps",
    "tx_compressed_pps",
    "rx_multicast_pps",
    "utilisation_percent",
)
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
    """Return what a sar log holds. Raises nothing: anomalies are part of the answer."""
    if anomaly := unreadable(data, b"Linux "):
        return SarText(np.zeros((0, len(CPU_COLUMNS))), (), np.zeros((0, len(INTERFACE_COLUMNS))), (anomaly,))
    bodies, anomalies = _bodies(data)
    start = _START.search(data, data.find(b"\n"))
    start_s = _seconds(np.array([float(start[0].replace(b":", b""))]))[0] if start else 0.0
    interface_words = _words(bodies[b"IFACE"])
    names = list(dict.fromkeys(interface_words[1::10]))
    places = {name: b"%d" % place for place, name in enumerate(names)}
    interface_words[1::10] = [places[name] for name in interface_words[1::10]]
    return SarText(
        _table(_numbers(bodies[b"CPU"]), len(CPU_COLUMNS), start_s),
        tuple(name.decode() for name in names),
        _table(np.array([float(word) for word in interface_words]), len(INTERFACE_COLUMNS), start_s),
        tuple(anomalies),
    )


def _bodies(data: bytes) -> tuple[dict[bytes, bytes], list[Anomaly]]:
    """Return the rows of all CPU blocks and of all interface blocks, the averages at the end left out."""
    parts: dict[bytes, list[bytes]] = {b"CPU": [], b"IFACE": []}
    anomalies: list[Anomaly] = []
    heading, *blocks = data.split(b"\n\n")
    if b"\n" in heading.strip():
        anomalies.append(Anomaly("damaged", "no empty line behind the first", 2))
    averages = 0
    offset = len(heading) + 2
    for block in blocks:
        title, _, rows = block.partition(b"\n")
        words = title.split()
        if words[:1] == [b"Average:"]:
            averages += 1
        elif len(words) > 1 and _TITLES.get(words[1]) == words[1:]:
            good, bad = _rows(rows.rstrip(b"\n") + b"\n", words[1])
            parts[words[1]].append(good)
            cut = offset + len(block) == len(data)  # its last line is the cut that `truncated` names
            if bad > cut:
                anomalies.append(Anomaly("damaged", f"{bad} lines that are no rows", _line(data, offset)))
        elif block.strip():
            anomalies.append(Anomaly("damaged", "a block that is none of sar's", _line(data, offset)))
        offset += len(block) + 2
    if averages != 2 or not data.endswith(b"\n"):
        anomalies.append(Anomaly("truncated", "no averages of CPUs and interfaces at the end", _line(data, len(data))))
    return {name: b"".join(rows) for name, rows in parts.items()}, anomalies


def _rows(rows: bytes, name: bytes) -> tuple[bytes, int]:
    """Return the rows of one block, and how many of its lines are none."""
    if _ROWS[name].fullmatch(rows):
        return rows, 0
    lines = [line for line in rows.splitlines(keepends=True) if line.strip()]
    good = [line for line in lines if _ROWS[name].fullmatch(line)]
    return b"".join(good), len(lines) - len(good)


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _words(rows: bytes) -> list[bytes]:
    """Return the words of ``rows``, decimal points for commas, times as one number hhmmss."""
    return rows.translate(_DECIMAL, b":").split()


def _numbers(rows: bytes) -> Rows:
    """Return all numbers in rows of CPUs, read in one go: half of an import's time went into reading one at a time."""
    text = rows.replace(b" all ", b" nan ").translate(_DECIMAL, b":").decode()
    return np.fromstring(text, sep=" ") if text.strip() else np.zeros(0)


def _table(numbers: Rows, width: int, start_s: float) -> Rows:
    table = numbers.reshape(-1, width)
    table[:, 0] = (_seconds(table[:, 0]) - start_s) % 86400  # a run may pass midnight
    return table


def _seconds(clock: Rows) -> Rows:
    """Return seconds of the day from hhmmss."""
    return clock // 10000 * 3600 + clock // 100 % 100 * 60 + clock % 100
