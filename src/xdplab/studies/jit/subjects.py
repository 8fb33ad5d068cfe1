"""The subjects that jitbench runs for one trial, with the model's result for each, and what it prints of them.

Its output is a line about the kernel, then one for each program or filter that it ran.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdplab.formats.reading import objects_of, record_of, refuse, text_field
from xdplab.studies.jit import filters
from xdplab.studies.jit import filters as f
from xdplab.studies.jit.classes import FRAME, SIZES, InsnClass
from xdplab.studies.jit.filters import FRAMES, TCP_ON_LOOPBACK, Op, on_loopback

SECCOMP = "seccomp"
NONE, OPEN, SHORTEST = "none", "open", "shortest"
"""The baselines: no socket; a socket without a filter (or with one that is not run); the shortest filter that lets
everything through."""

FILTER, SAME = "filter", "same"

PAYLOADS = (18, 1400)
"""UDP payloads: the least frame and nearly the largest."""

TCP_KINDS = {"TCP_RR": ("tcp-rr", 1), "TCP_STREAM": ("tcp-stream", 16384)}
"""The tests of netperf by name: the bench that does it, and the bytes of one request, or of one send."""

CACHED_SINCE = (5, 11)
_PLACES_WITHOUT_CACHE = ("uml",)


@dataclass(frozen=True)
class JitLoad:
    """A line for jitbench; ``expected`` is what it must return, null if nothing is run that returns anything.

    ``map`` is the kind of the program's map, of ``number`` entries.
    """

    name: str
    code: str
    data: str
    number: int
    expected: int | None
    map: str = ""

    @property
    def line(self) -> str:
        fields = (self.name, self.code or "-", self.data or "-", str(self.number), *([self.map] if self.map else []))
        return f"{' '.join(fields)}\n"


def of_class(insn_class: InsnClass, encode: Callable[..., bytes]) -> list[JitLoad]:
    """Return the class' program of each size; named by it."""
    kind, number = (insn_class.map.kind, insn_class.map.number) if insn_class.map else ("", 0)
    return [
        JitLoad(str(k), encode(insn_class.program(k)).hex(), FRAME.hex(), number, insn_class.expected(k), kind)
        for k in SIZES
    ]


def _classic(name: str, code: Sequence[Op], data: bytes, number: int, expected: int | None) -> JitLoad:
    return JitLoad(name, filters.encode(code).hex(), data.hex(), number, expected)


def same(name: str) -> str:
    """Name the filter that returns at once what another returns."""
    return f"{name}/same"


def of_filter(code: Sequence[Op]) -> list[JitLoad]:
    """Return the filter on each frame, with the shortest one that returns the same; and no filter at all."""
    loads = []
    for name, frame in FRAMES.items():
        passed = min(filters.run(code, frame), len(frame))
        loads += [
            _classic(name, code, frame, 0, passed),
            _classic(same(name), (filters.ret(passed),), frame, 0, passed),
        ]
    frame = FRAMES["ipv4-udp"]
    return [*loads, _classic(OPEN, (), frame, 0, len(frame)), _classic(SHORTEST, _ALL, frame, 0, len(frame))]


_ALL = (filters.ret(f.ALL),)


def of_traffic(code: Sequence[Op]) -> list[JitLoad]:
    """Return for each payload: no packet socket, one without a filter, the shortest filters, the filter."""
    loads = []
    for size in PAYLOADS:
        frame, payload = on_loopback(size), bytes(size)
        passed = min(filters.run(code, frame), len(frame))
        loads += [
            _classic(f"{size}/{NONE}", (), payload, 0, None),
            _classic(f"{size}/{OPEN}", (), payload, 1, len(frame)),
            _classic(f"{size}/{SHORTEST}", _ALL, payload, 1, len(frame)),
            _classic(same(str(size)), (filters.ret(passed),), payload, 1, passed),
            _classic(str(size), code, payload, 1, passed),
        ]
    return loads


MANY_TAPS = 256
"""Packet sockets with the same filter: a datagram runs it so often, which lifts it above the noise of a clock."""


def of_many(code: Sequence[Op]) -> list[JitLoad]:
    """Return many packet sockets without a filter, with the shortest ones, and with the filter, on one datagram."""
    payload, frame = bytes(PAYLOADS[0]), on_loopback(PAYLOADS[0])
    passes = int(filters.run(code, frame) > 0)
    verdict = f.ALL if passes else f.NOTHING
    return [
        _classic(OPEN, (), payload, MANY_TAPS, 1),
        _classic(SHORTEST, _ALL, payload, MANY_TAPS, 1),
        _classic(SAME, (filters.ret(verdict),), payload, MANY_TAPS, passes),
        _classic(FILTER, code, payload, MANY_TAPS, passes),
    ]


def of_tcp(code: Sequence[Op], payload: int) -> list[JitLoad]:
    """Return a TCP connection without packet sockets, and with one: without a filter, the shortest ones, the filter."""
    data, passes = bytes(payload), int(filters.run(code, TCP_ON_LOOPBACK) > 0)
    verdict = f.ALL if passes else f.NOTHING
    return [
        _classic(NONE, (), data, 0, None),
        _classic(OPEN, (), data, 1, 1),
        _classic(SHORTEST, _ALL, data, 1, 1),
        _classic(SAME, (filters.ret(verdict),), data, 1, passes),
        _classic(FILTER, code, data, 1, passes),
    ]


def of_seccomp(code: Sequence[Op], place: str, release: str) -> list[JitLoad]:
    """Return the filter on a call that it grants and on one that it refuses, and the shortest filter that is run.

    A refused call is not made, so it has no cost of its own. If the kernel remembers which calls a filter always lets
    through, a filter that it therefore does not run is added.
    """
    granted, refused = f.seccomp_data(f.GRANTED), f.seccomp_data(f.REFUSED)
    loads = [
        _classic("granted", code, b"", f.GRANTED, _errno(code, granted)),
        _classic(same("granted"), f.LOOKS, b"", f.GRANTED, 0),
        _classic("refused", code, b"", f.REFUSED, _errno(code, refused)),
        _classic(SHORTEST, f.LOOKS, b"", 0, 0),
    ]
    return [*loads, _classic(OPEN, f.CACHED, b"", 0, 0)] if _caches(place, release) else loads


def _errno(code: Sequence[Op], data: bytes) -> int:
    return f.errno_of(filters.run(code, data, little=True))


def _caches(place: str, release: str) -> bool:
    numbers = re.findall(r"\d+", release)
    return place not in _PLACES_WITHOUT_CACHE and tuple(map(int, numbers[:2])) >= CACHED_SINCE


TOOL = "jitbench"


@dataclass(frozen=True)
class JitTiming:
    """One program. ``ns`` has one entry per round: the time of ``times`` runs together, in nanoseconds of that clock.

    ``failed`` says what did not work, and why; ``ns`` is empty then. Sizes are null for classic filters. ``passed``:
    packets of the last round that all its packet sockets together let through; null where it has none.
    ``policy_requested``, ``policy``: the scheduling policy that it asked for, and the one that it then had.
    """

    name: str
    insns: int
    verdict: int
    times: int
    ns: tuple[int, ...]
    failed: str | None
    jited_bytes: int | None
    passed: int | None
    policy_requested: str | None
    policy: str | None

    @property
    def per_run(self) -> float:
        """The minimum of the rounds, per run: other work of the machine only adds time."""
        return min(self.ns) / self.times

    @property
    def unsteady(self) -> float:
        """The distance of the first quartile of the rounds from the minimum, per run: the noise of a difference."""
        return (sorted(self.ns)[len(self.ns) // 4] - min(self.ns)) / self.times


@dataclass(frozen=True)
class JitBench:
    """``compiles``: whether the kernel compiled what was loaded while this ran."""

    compiles: bool
    subjects: dict[str, JitTiming]


def parse_jitbench(data: bytes | str) -> JitBench:
    """Return the output of one call of jitbench. Raises FormatError."""
    lines = objects_of(data, TOOL)
    compiles = lines[0].get("compiles")
    if lines[0].get("type") != "kernel" or not isinstance(compiles, bool):
        refuse(TOOL, "it does not begin with a word on the kernel", line=1)
    subjects = [_subject(fields, at) for at, fields in enumerate(lines[1:], 2)]
    return JitBench(compiles, {subject.name: subject for subject in subjects})


def _subject(fields: dict[str, object], line: int) -> JitTiming:
    timing = record_of(JitTiming, fields | {"failed": _failure(fields, line)}, TOOL, line=line)
    if 0 in timing.ns:
        refuse(TOOL, "a round without a time", line=line)
    if (timing.failed is None) != bool(timing.ns):
        refuse(TOOL, "neither rounds nor a reason, or both", line=line)
    return replace(timing, times=max(1, timing.times))


def _failure(fields: dict[str, object], line: int) -> str | None:
    """Return what failed, the system's message, and the verifier's: its last line before the statistics."""
    if fields.get("failed") is None:
        return None
    parts = [text_field(fields, "failed", TOOL, line=line)]
    if fields.get("error") is not None:
        parts.append(text_field(fields, "error", TOOL, line=line))
    if fields.get("words") is not None:
        lines = [word for word in text_field(fields, "words", TOOL, line=line).splitlines() if word.strip()]
        parts += [word for word in lines if not word.startswith("processed ")][-1:]
    return ": ".join(parts)
