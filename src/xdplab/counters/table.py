"""The counters that are read on a host: one row per collector. `probe` runs them, `readings` parses their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xdplab.formats.settings import MACHINE_FILES, PORT_FILES
from xdplab.hosts.tool import HostReading

Role = Literal["dut", "tg"]
When = Literal["before", "after"]
SAMPLE_S = 0.1
_LATE_S = 0.5  # added to the periods of a driver's timers, which may fire late
LAGS_S = {"bnxt_en": 2.0 + _LATE_S, "sfc": 1.0 + _LATE_S, "atlantic": 1.0 + _LATE_S}
"""Seconds by which a driver's counters may lag behind; its row in `drivers` says what takes them over, and when."""


@dataclass(frozen=True)
class Collector:
    """A reading of cumulative counters at rest, before and after the window, on TG and DUT alike.

    ``words``: a command, a file or patterns of files, as ``kind`` says; `{device}` stands for the host's interface.
    ``extension`` is its record's; ``yields`` says what it is for.
    ``once``: it is read before the window only, and no verdict rests on it.
    """

    name: str
    words: tuple[str, ...]
    extension: str
    yields: str
    once: bool = False
    kind: Literal["run", "file", "settings"] = "run"

    def reading(self, device: str) -> HostReading:
        """Return it as a reading of the host's ``device``."""
        return HostReading(tuple(word.format(device=device) for word in self.words), self.kind)


@dataclass(frozen=True)
class Recorder:
    """A command that is started before the window and records until its standard input ends.

    `{events}` and `{device}` are filled in, `{sampler}` is the path of the C tool on the host, `{script}` that of the
    file ``script`` beside this table. Once it records, it echoes the first line of its input; then its record comes.
    """

    name: str
    argv: tuple[str, ...]
    yields: str
    script: str | None = None

    def command(self, *, device: str, events: Sequence[str], directory: str, sampler: str) -> tuple[str, ...]:
        script = f"{directory}/{self.script}"
        values = {"device": device, "events": ",".join(events), "script": script, "sampler": sampler}
        return tuple(word.format(**values) for word in self.argv)


# /proc/stat comes last: collectors run in this order before the window and in reverse after it. So the least of
# xdplab's own work falls between its two readings.
COLLECTORS = (
    Collector("driver", ("ethtool", "-i", "{device}"), "txt", "whose counters these are", once=True),
    Collector("settings", ("{device}", *MACHINE_FILES, *PORT_FILES), "txt", "what costs time and can change",
              kind="settings"),
    Collector("ethtool", ("ethtool", "-S", "{device}"), "txt", "the driver's counters by queue"),
    Collector("softnet", ("/proc/net/softnet_stat",), "txt", "backlog drops, squeezes by CPU", kind="file"),
    Collector("iplink", ("ip", "-s", "-j", "link", "show", "dev", "{device}"), "json", "link counters, XDP"),
    Collector("procstat", ("/proc/stat",), "txt", "CPU time by CPU", kind="file"),
)  # fmt: skip

RECORDERS = (
    Recorder(
        "perf",
        # On standard error other words stand too: of env, ld.so, sudo, and perf's own hints.
        ("env", "LC_ALL=C", "perf", "stat", "--log-fd", "1", "-a", "-A", "-j", "-e", "{events}", "--", "cat"),
        "events by CPU",
    ),
    Recorder(
        "samples",
        ("{sampler}", "{device}", f"{SAMPLE_S:g}"),
        "CPU time and link packets every 100 ms",
    ),
    Recorder("sar", ("sh", "{script}"), "sar's samples, one per second", script="sar.sh"),
)
SCRIPTS = tuple(row.script for row in RECORDERS if row.script)


def collector(name: str) -> Collector:
    return {row.name: row for row in COLLECTORS}[name]


def recorder(name: str) -> Recorder:
    return {row.name: row for row in RECORDERS}[name]


def snapshot_file(role: Role, name: str, when: When, extension: str) -> str:
    """Return the file of one reading; with the extension ``err`` it has the message of a failed tool."""
    return f"{role}.{name}.{when}.{extension}"


def record_file(role: Role, name: str, extension: str = "out") -> str:
    """Return the file of one record: `out` is the record, `run.json` how the tool was run, `err` its last message."""
    return f"{role}.{name}.{extension}"
