"""The files of one attempt's counters, parsed on demand; a missing one says why.

The notes of the sampler: CPU ticks and packets of one interface, ten times per second; and those in the window.

Controller, TG and DUT share no clock, so the window is found in the samples themselves. It is the longest run of
intervals in which the interface counted packets, without the two at its ends, which traffic filled only in part.

And the output of cpuclock: the time of a chain of dependent additions, one cycle each, on each CPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, TypeVar, cast

from xdplab.absent import Absent
from xdplab.counters.table import Role, When, collector, record_file, snapshot_file
from xdplab.errors import FormatError
from xdplab.formats.ethtool import parse_driver, parse_statistics
from xdplab.formats.perf import (
    PerfCount,
    events_of_argv,
    named_as_asked,
    parse_perf_json,
    require_system_wide,
    target_of_argv,
)
from xdplab.formats.proc import (
    CpuTicks,
    Link,
    SoftnetCpu,
    parse_cpu_line,
    parse_link,
    parse_procstat,
    parse_sadf,
    parse_softnet,
)
from xdplab.formats.reading import count_field, count_of, lines_of, objects_of, refuse, text_of
from xdplab.formats.settings import parse_settings

T = TypeVar("T")

TOOL = "sampler"

_UPTIME = re.compile(r"([0-9]{1,12}\.[0-9]{1,6}) [0-9]+\.[0-9]+")


@dataclass(frozen=True)
class Sample:
    """Cumulative counts at ``uptime_s`` (10 ms resolution)."""

    uptime_s: float
    rx_packets: int
    tx_packets: int
    cpus: tuple[CpuTicks, ...]


def parse_samples(data: bytes | str) -> tuple[Sample, ...]:
    """Return the samples, without a truncated last one. Raises FormatError."""
    text = text_of(data, TOOL)
    lines = lines_of(text[: text.rfind("\n") + 1], TOOL)
    starts = [index for index, line in enumerate(lines) if _UPTIME.fullmatch(line)]
    if not starts or starts[0] != 0:
        refuse(TOOL, "no uptime", line=1, text=lines[0])
    blocks = [(start, lines[start:stop]) for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True)]
    length = len(blocks[0][1])
    if len(blocks[-1][1]) < length:
        blocks.pop()
    return tuple(_sample(start + 1, block, length) for start, block in blocks)


def _sample(number: int, block: list[str], length: int) -> Sample:
    if len(block) != length or length < 4:
        refuse(TOOL, f"{len(block)} lines in a note, {length} in the first", line=number)
    uptime = _UPTIME.fullmatch(block[0])
    if uptime is None:
        refuse(TOOL, "no uptime", line=number, text=block[0])
    cpus = tuple(parse_cpu_line(line, number + 3 + place) for place, line in enumerate(block[3:]))
    rx_packets, tx_packets = (count_of(line, TOOL, line=number + 1 + place) for place, line in enumerate(block[1:3]))
    return Sample(float(uptime[1]), rx_packets, tx_packets, cpus)


def window(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """Return the first and the last sample that lie inside the window. Raises Absent if fewer than two do."""
    busy = [after.rx_packets > before.rx_packets for before, after in pairwise(samples)]
    inside = longest_run(busy, bool)[1:-1]
    if not inside:
        raise Absent("no sampling interval lies wholly inside the window")
    return samples[inside[0]], samples[inside[-1] + 1]


def longest_run(items: Sequence[T], holds: Callable[[T], bool]) -> range:
    """Return the range of the longest run of ``items`` for which ``holds`` (the first of equal ones)."""
    best, place = range(0), 0
    for good, group in groupby(items, key=holds):
        length = len(list(group))
        if good and length > len(best):
            best = range(place, place + length)
        place += length
    return best


CLOCK_TOOL = "cpuclock"


def parse_cpuclock(data: bytes | str) -> dict[int, float]:
    """Return cycles per ns by CPU. Raises FormatError on any other line."""
    clocks: dict[int, float] = {}
    for number, line in enumerate(objects_of(data, CLOCK_TOOL), start=1):
        cpu, adds, ns = (count_field(line, key, CLOCK_TOOL, line=number) for key in ("cpu", "adds", "ns"))
        if not ns or cpu in clocks:
            refuse(CLOCK_TOOL, "no time passed" if not ns else "a CPU twice", line=number)
        clocks[cpu] = adds / ns
    return clocks


PARSERS: Mapping[str, Callable[[bytes], Any]] = {
    "driver": parse_driver,
    "settings": parse_settings,
    "ethtool": parse_statistics,
    "softnet": parse_softnet,
    "iplink": parse_link,
    "procstat": parse_procstat,
    "perf": parse_perf_json,
    "samples": parse_samples,
    "sar": parse_sadf,
}
"""What reads the output of each collector and recorder of `table`."""


@lru_cache(maxsize=128)
def parsed(parser: Callable[[bytes], Any], data: bytes) -> Any:
    """Return what a parser makes of an output, which must not be changed: an attempt's rows ask for each several times,
    and a host's settings are the same in most attempts. Raises FormatError."""
    return parser(data)


@dataclass(frozen=True)
class Scope:
    """CPUs that a value sums over: those of ``owner`` on the machine of ``machine``; None: all of its CPUs."""

    machine: Role
    owner: Role | None


@dataclass(frozen=True)
class Readings:
    """The readings of an attempt and how its point was measured: everything that a derived value may use.

    ``cpus`` names a role's CPUs if it has only some of its machine; other roles have all. ``working`` are those that
    may do the DUT's work; ``queues`` is how many the DUT receives on, if known. Every method raises Absent if there is
    no value, with the tool's own message if there is one.
    """

    files: Mapping[str, bytes]
    mode: str
    shared: bool
    cpus: Mapping[Role, Collection[int]] = field(default_factory=dict)
    working: Collection[int] = ()
    queues: int | None = None

    def link(self, role: Role, when: When) -> Link:
        return cast("Link", self._snapshot(role, "iplink", when))

    def driver(self, role: Role, when: When) -> dict[str, int]:
        return cast("dict[str, int]", self._snapshot(role, "ethtool", when))

    def driver_name(self, role: Role) -> str:
        return cast("str", self._snapshot(role, "driver", "before"))

    def softnet(self, role: Role, when: When) -> tuple[SoftnetCpu, ...]:
        return cast("tuple[SoftnetCpu, ...]", self._snapshot(role, "softnet", when))

    def settings(self, role: Role, when: When) -> dict[str, str]:
        return cast("dict[str, str]", self._snapshot(role, "settings", when))

    def procstat(self, role: Role, when: When) -> tuple[CpuTicks, ...]:
        return cast("tuple[CpuTicks, ...]", self._snapshot(role, "procstat", when))

    def samples(self, role: Role) -> tuple[Sample, ...]:
        return cast("tuple[Sample, ...]", self._record(role, "samples"))

    def clock(self, when: When) -> dict[int, float]:
        """Return the cycles per ns of the DUT's CPUs, by CPU."""
        file = snapshot_file("dut", "clock", when, "jsonl")
        self._require(file, snapshot_file("dut", "clock", when, "err"), "the CPUs' clock was not read")
        return self._parse(file, parse_cpuclock)

    def sar(self, role: Role) -> tuple[dict[str, object], ...]:
        """Return sar's intervals, which a user reads: no value is made of them."""
        return cast("tuple[dict[str, object], ...]", self._record(role, "sar"))

    def perf(self, role: Role) -> tuple[PerfCount, ...]:
        """Return perf's counts. Raises Absent unless its recorded argument vector shows that it counted whole CPUs."""
        counts = cast("tuple[PerfCount, ...]", self._record(role, "perf"))
        try:
            require_system_wide(target_of_argv(self._perf_argv(role)))
        except FormatError as error:
            raise Absent(f"{record_file(role, 'perf', 'run.json')}: {error.message}") from error
        return named_as_asked(counts, self.perf_events(role))

    def perf_events(self, role: Role) -> tuple[str, ...]:
        """Return the events that perf was asked for."""
        return events_of_argv(self._perf_argv(role))

    def was_asked(self, role: Role, recorder_name: str) -> bool:
        """Whether that recorder was requested, even if it could not record."""
        return record_file(role, recorder_name, "run.json") in self.files

    def text(self, name: str) -> str:
        return self._parse(name, _text)

    def chosen(self, scope: Scope, cpu: int) -> bool:
        """Whether ``cpu`` belongs to the scope."""
        cpus = self.own_cpus(scope)
        return cpus is None or cpu in cpus

    def own_cpus(self, scope: Scope) -> Collection[int] | None:
        """Return the CPUs that the scope is restricted to, or None if it has all CPUs of its machine."""
        return None if scope.owner is None else self.cpus.get(scope.owner)

    def _perf_argv(self, role: Role) -> list[str]:
        return self._parse(record_file(role, "perf", "run.json"), _argv)

    def _snapshot(self, role: Role, name: str, when: When) -> object:
        row = collector(name)
        file = snapshot_file(role, name, when, row.extension)
        self._require(file, snapshot_file(role, name, when, "err"), f"{name} was not read {when} the window")
        return self._parse(file, PARSERS[name])

    def _record(self, role: Role, name: str) -> object:
        file = record_file(role, name)
        self._require(file, record_file(role, name, "err"), f"{name} was not recorded in this pass")
        return self._parse(file, PARSERS[name])

    def _require(self, file: str, error_file: str, otherwise: str) -> None:
        if file not in self.files:
            message = self.files.get(error_file, b"").decode(errors="replace").strip()
            raise Absent(message or otherwise)

    def _parse(self, name: str, parser: Callable[[bytes], T]) -> T:
        if name not in self.files:
            raise Absent(f"{name} is missing")
        try:
            return cast("T", parsed(parser, self.files[name]))
        except FormatError as error:
            raise Absent(f"{name}: {error.message}") from error


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _argv(data: bytes) -> list[str]:
    """Return the argument vector in a `run.json`. Raises FormatError if there is none."""
    try:
        return [str(word) for word in json.loads(data)["argv"]]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"no recorded argument vector: {error}") from error


def difference(before: int, after: int) -> int:
    """Return the increase of a cumulative counter. Raises Absent if it went back: it wrapped or was reset."""
    if after < before:
        raise Absent(f"the counter went back from {before} to {after}: it wrapped or was reset")
    return after - before
