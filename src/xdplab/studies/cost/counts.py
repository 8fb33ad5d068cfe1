"""From what was counted to the cost of a packet: a slope between windows, in exact fractions.

Of each number of frames there are several windows. One belongs to the packets whole if every program ran exactly once
per frame in it; of these the most common count is taken. What a window costs once cancels out in the difference between
a window and one of twice as many frames.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from xdplab.absent import Absent
from xdplab.errors import ResultsError, UnsupportedError
from xdplab.formats.reading import message_of
from xdplab.hosts.tool import PROGRAM_REFUSALS, Message, error_class
from xdplab.studies.cost.measurement import (
    ALLOCATOR,
    APPLICATION,
    CALLED,
    OTHER,
    PATH,
    PROGRAM,
    SCOPES,
    WHOLE,
    Measurement,
    Place,
    Tally,
    Window,
    is_slow_allocation,
)
from xdplab.studies.plugin import Plugin

Shares = Mapping[int, Fraction]
"""Of all packets, by the instructions of the program with what it calls."""

_MOST = 4


def shares_of(took: Mapping[int, int]) -> Shares:
    """Return the shares of runs, counted by their instructions, the largest first."""
    total = sum(took.values())
    return {count: Fraction(times, total) for count, times in sorted(took.items(), key=lambda one: (-one[1], one[0]))}


def shares_text(shares: Shares) -> str:
    """Return the largest shares in words, and the range of the others."""
    first = [*shares.items()][:_MOST]
    parts = [f"{100 * float(share):.3g} % of packets {count} instructions" for count, share in first[:1]]
    parts += [f"{100 * float(share):.3g} % {count}" for count, share in first[1:]]
    if rest := [*shares][_MOST:]:
        share = 100 * float(sum(shares[count] for count in rest))
        parts.append(f"{share:.3g} % {min(rest)} to {max(rest)}, {len(rest)} ways")
    return ", ".join(parts)


SOCKET_RANGE = 10
"""Instructions by which the path through a socket is taken to differ between boots: it copies by memory's alignment,
and wakes ksoftirqd. Up to 8 were seen in four boots of 5.10 and 6.12."""
ANEW_RANGE = 64
"""Instructions per packet of the kernel's path, where the sender describes each frame anew: the kernel then fills the
frame's page again, in the function that sends it. That took 55 on 6.1 and 59 on 6.12."""

QUIET = 5
"""Windows of one number of frames that tell a count; as many are counted first."""

STRAY_WINDOWS, STRAY_PACKETS = 1, 8
"""Windows in which packets may take other paths than in most: of an interrupt, or the first. And packets of a window
that may take another than the rest: what a window costs once."""


class CacheLines(NamedTuple):
    """Distinct cache lines of 64 B, by their virtual addresses: read or written, and those of code."""

    data: int
    code: int


@dataclass(frozen=True)
class Cost:
    """What a packet costs, as exact fractions of instructions.

    ``lines`` have the program's instructions and those of what they call, by source line or, where none is known, by
    instruction; ``functions`` those of each function without what it calls; ``addresses`` those of the program's code.
    ``halves``: half of the range to which a scope's instructions hold; 0 where they are exact; ``ranged``: of the
    functions with instructions in such a scope, half of their scopes' range. ``agreed``: more than
    half of the windows have one path, and in each the packets took the same, so that more of them would tell no more.
    ``came_back``: the share of the frames that the program sent back; ``passed_on``: that of the frames which reached
    the kernel's IP layer; of a test run, those for which it returned XDP_TX or XDP_PASS. ``shares`` of the frames, by
    the instructions of the program and what it calls; none if no window's runs add up to its count. ``cache_lines`` of
    a packet that comes alone, by scope, and of the whole.
    """

    tallies: Mapping[str, Tally]
    lines: Mapping[Place, tuple[Fraction, Fraction]]
    functions: Mapping[str, Fraction]
    stacks: Mapping[tuple[str, ...], Fraction]
    addresses: Mapping[int, Fraction]
    halves: Mapping[str, Fraction]
    ranged: Mapping[str, Fraction]
    agreed: bool
    came_back: Fraction
    passed_on: Fraction
    shares: Shares
    cache_lines: Mapping[str, CacheLines | Absent]

    @property
    def total(self) -> Fraction:
        return sum((Fraction(tally.instructions) for tally in self.tallies.values()), Fraction())


def cost_of(measurement: Measurement) -> Cost:
    """Return the cost of a packet.

    Raises UnsupportedError if the program never ran once for each frame, or if its own count differs between windows.
    """
    alike: dict[int, list[tuple[Window, dict[str, Tally]]]] = {}
    for window, tallies in measurement.whole:
        alike.setdefault(window.frames, []).append((window, tallies))
    if len(alike) < 2:
        raise UnsupportedError(_never_whole(measurement))
    few, many = sorted(alike)
    strays = _strays(measurement, few, many)
    _require_share_sent_back(measurement, *(alike[frames][0][0] for frames in (few, many)))
    alike = {frames: _quiet(windows) for frames, windows in alike.items()}
    fewer, more = (_most_common(_undisturbed(alike[frames])) for frames in (few, many))
    frames = many - few
    counted = [measurement.by_address(one[0]) for one in (fewer, more)]
    tallies = {scope: _tally_slope(fewer[1][scope], more[1][scope], frames) for scope in SCOPES}
    addresses, called, stacks = (_slope(counted[0][i], counted[1][i], frames) for i in range(3))
    halves = {scope: max(_spread(alike[n], scope) for n in (few, many)) / frames for scope in (PATH, ALLOCATOR)}
    agreed = not halves[PATH] and not strays
    halves[ALLOCATOR] += sum(count for stack, count in stacks.items() if is_slow_allocation(stack))
    if measurement.has_packet_socket or tallies[APPLICATION].instructions:
        halves[PATH] = max(halves[PATH], Fraction(SOCKET_RANGE))
    if measurement.describes_anew:
        halves[PATH] = max(halves[PATH], Fraction(ANEW_RANGE))
    return Cost(
        {s: tally for s, tally in tallies.items() if s not in (APPLICATION, ALLOCATOR) or tally.instructions},
        _by_line(measurement, addresses, called),
        _by_function(stacks),
        stacks,
        addresses,
        halves,
        _ranged(measurement.scopes_of_stacks(fewer[0]) | measurement.scopes_of_stacks(more[0]), halves),
        agreed,
        measurement.came_back(fewer[0]),
        measurement.passed_on(fewer[0]),
        _shares(measurement.whole),
        _cache_lines(measurement),
    )


def _quiet(windows: Sequence[tuple[Window, dict[str, Tally]]]) -> list[tuple[Window, dict[str, Tally]]]:
    """Return the windows in which least ran besides the packets, if they are enough: on a busy machine a guest has more
    interrupts, which move packets to another path."""
    least = min(tallies[OTHER].instructions for _, tallies in windows)
    quiet = [one for one in windows if one[1][OTHER].instructions == least]
    return quiet if len(quiet) >= QUIET else [*windows]


def _shares(windows: Sequence[tuple[Window, dict[str, Tally]]]) -> Shares:
    """Return the shares of a window in which an interrupt has disturbed no run."""
    return next((shares_of(window.ran.took) for window, tallies in windows if _adds_up(window, tallies)), {})


def _adds_up(window: Window, tallies: Mapping[str, Tally]) -> bool:
    """Tell whether no interrupt has disturbed a run of the program: then its runs add up to its count."""
    runs = sum(count * times for count, times in window.ran.took.items())
    return runs == sum(tallies[scope].instructions for scope in (PROGRAM, CALLED))


def _strays(measurement: Measurement, few: int, many: int) -> int:
    """Return the number of windows whose packets took other paths than those of the rest, or in other shares.

    Raises UnsupportedError for more than `STRAY_WINDOWS`, and where longer windows have other shares. Then no slope is
    a packet's cost: every hundredth packet on a path of its own is two or three of 256, and of 512 five or six; and
    what fills up within a window costs something else in its second half.
    """
    ran = [window for window in measurement.windows if measurement.runs(window)["program"] == window.frames]
    undisturbed = [window for window in ran if _adds_up(window, measurement.tallies(window))]
    is_sure = {window.frames for window in undisturbed} == {few, many}
    windows = undisturbed if is_sure else ran
    mixes = [_mix([window for window in windows if window.frames == n]) for n in (few, many)]
    fewer, more = (mix for mix, _ in mixes)
    strays = sum(others for _, others in mixes) if is_sure else _other_counts(measurement)
    rest = {took: more[took] - times for took, times in fewer.items()}
    moved = sum(max(times - rest[took], 0) for took, times in fewer.items())
    leaves_out = is_sure and any(rest[took] and rest[took] < times for took, times in fewer.items())
    if moved > STRAY_PACKETS or strays > STRAY_WINDOWS or leaves_out:
        raise _varies("the program with what it calls", windows)
    return strays if is_sure else 0


def _other_counts(measurement: Measurement) -> int:
    """Return the number of windows in which the program took other instructions than in most: an interrupt within a
    run adds to what the run took, and nothing to this."""
    counts: dict[int, Counter[int | Fraction]] = {}
    for window, tallies in measurement.whole:
        counts.setdefault(window.frames, Counter())[tallies[PROGRAM].instructions] += 1
    return sum(of_length.total() - max(of_length.values()) for of_length in counts.values())


def _mix(windows: Sequence[Window]) -> tuple[Counter[int], int]:
    """Return the program's runs by their instructions, as in most windows, and the number of those with other runs."""
    mixes = Counter(frozenset(window.ran.took.items()) for window in windows)
    ((common, times),) = mixes.most_common(1)
    return Counter(dict(common)), len(windows) - times


def _require_share_sent_back(measurement: Measurement, fewer: Window, more: Window) -> None:
    """Raise UnsupportedError unless of twice the frames twice as many came back: the path is that of both kinds.

    Of those that a socket sends, one may be on its way when a window ends.
    """
    shares = [measurement.came_back(one) for one in (fewer, more)]
    late = STRAY_PACKETS if measurement.has_packet_socket else 0
    if abs(shares[0] - shares[1]) * more.frames > late:
        sent_back = (f"{share * one.frames} of {one.frames}" for one, share in zip((fewer, more), shares, strict=True))
        raise UnsupportedError(
            f"the program sends back another share of the frames each time: {', of others '.join(sent_back)}",
            remedy=_ONE_PATH,
        )


_ONE_PATH = (
    "frames that take one path (--flows, --frames), or fill its maps; fix by --rodata what it counts or draws: what "
    "comes round after more packets than the 512 of a window has no cost"
)


def _varies(words: str, windows: Iterable[Window]) -> UnsupportedError:
    took = sum((Counter(window.ran.took) for window in windows), Counter[int]())
    return UnsupportedError(f"{words} takes another path each time: {shares_text(shares_of(took))}", remedy=_ONE_PATH)


_WITH_SENDER = Absent("live frames: for a frame that comes alone the kernel fills pages of the sender, too")


def _cache_lines(measurement: Measurement) -> dict[str, CacheLines | Absent]:
    """Return the count on which more than half of the windows agree; it may differ by what a packet's memory is."""
    windows = [window for window in measurement.touching if measurement.runs(window)["program"] == window.frames == 1]
    touched = [measurement.cache_lines(window) for window in windows]
    parts = {scope: (scope,) for scope in SCOPES} | {WHOLE: SCOPES}
    counts = {
        part: [
            CacheLines(*(len(set[int]().union(*(lines[scope][kind] for scope in scopes))) for kind in (0, 1)))
            for lines in touched
        ]
        for part, scopes in parts.items()
    }
    agreed = {part: _agreed_lines(ones) for part, ones in counts.items()}
    return agreed | (dict.fromkeys((PATH, WHOLE), _WITH_SENDER) if measurement.has_sender else {})


def _agreed_lines(counts: Sequence[CacheLines]) -> CacheLines | Absent:
    if not counts:
        return Absent("no window of a frame that comes alone, in which the program ran once")
    if not _is_agreed(counts):
        both = [sum(one) for one in counts]
        return Absent(f"it differs from frame to frame: {min(both)} to {max(both)} lines")
    return Counter(counts).most_common(1)[0][0]


def _spread(windows: Sequence[tuple[Window, dict[str, Tally]]], scope: str) -> Fraction:
    """Return the instructions between the ends of the narrowest range that holds more than half of the windows."""
    counts = sorted(int(tallies[scope].instructions) for _, tallies in windows)
    most = len(counts) // 2
    return Fraction(min(high - low for low, high in zip(counts, counts[most:], strict=False)))


def _is_agreed(counts: Sequence[Any]) -> bool:
    """Tell whether more than half of the windows have one count: some are disturbed, and that shows."""
    return Counter(counts).most_common(1)[0][1] * 2 > len(counts)


def _most_common(windows: Sequence[tuple[Window, dict[str, Tally]]]) -> tuple[Window, dict[str, Tally]]:
    """Return a window whose path has the most common count, and of these one whose allocator has."""
    for scope in (PATH, ALLOCATOR):
        counts = Counter(int(tallies[scope].instructions) for _, tallies in windows)
        common = counts.most_common(1)[0][0]
        windows = [one for one in windows if one[1][scope].instructions == common]
    return windows[0]


_EXACT = {PROGRAM: "the program", CALLED: "what the program calls", APPLICATION: "the application"}


def _undisturbed(windows: Sequence[tuple[Window, dict[str, Tally]]]) -> list[tuple[Window, dict[str, Tally]]]:
    """Return those in which all that is exact has its most common count. Raises UnsupportedError if there is none."""
    left = [*windows]
    for scope, words in _EXACT.items():
        counts = [int(tallies[scope].instructions) for _, tallies in windows]
        if scope == APPLICATION and not _is_agreed(counts):
            raise UnsupportedError(
                f"{words} takes {min(counts)} to {max(counts)} instructions for {windows[0][0].frames} frames"
            )
        if not _is_agreed(counts):
            took = sum((Counter(window.ran.took) for window, _ in windows), Counter[int]())
            raise UnsupportedError(
                f"{words} takes another path each time: {shares_text(shares_of(took))}",
                remedy=_ONE_PATH,
            )
        common = Counter(counts).most_common(1)[0][0]
        left = [one for one in left if one[1][scope].instructions == common]
    if not left:
        raise UnsupportedError(f"each window is disturbed in one of these: {', '.join(_EXACT.values())}")
    return left


def _never_whole(measurement: Measurement) -> str:
    runs = [(window.frames, measurement.runs(window)["program"]) for window in measurement.windows]
    if not any(ran for _, ran in runs):
        return "the program never saw a frame"
    each = ", ".join(f"{ran} of {frames}" for frames, ran in dict.fromkeys(runs))
    return f"the program did not run once for each frame: {each}"


def _slope(fewer: Mapping[Any, int], more: Mapping[Any, int], frames: int) -> dict[Any, Fraction]:
    rest = {key: Fraction(more.get(key, 0) - fewer.get(key, 0), frames) for key in {**fewer, **more}}
    return {key: count for key, count in rest.items() if count}


def _tally_slope(fewer: Tally, more: Tally, frames: int) -> Tally:
    names = ("instructions", "loads", "stores", "branches")
    return Tally(*((Fraction(getattr(more, name)) - getattr(fewer, name)) / frames for name in names))


def _by_line(
    measurement: Measurement, addresses: Mapping[int, Fraction], called: Mapping[int, Fraction]
) -> dict[Place, tuple[Fraction, Fraction]]:
    lines: dict[Place, tuple[Fraction, Fraction]] = {}
    for counts, is_call in ((addresses, False), (called, True)):
        for address, count in counts.items():
            place = measurement.place(address)
            inside, outside = lines.get(place, (Fraction(), Fraction()))
            lines[place] = (inside, outside + count) if is_call else (inside + count, outside)
    return lines


def _ranged(scopes: Mapping[tuple[str, ...], str], halves: Mapping[str, Fraction]) -> dict[str, Fraction]:
    of_function: dict[str, set[str]] = {}
    for stack, scope in scopes.items():
        of_function.setdefault(stack[-1], set()).add(scope)
    sums = {name: sum((halves.get(scope, Fraction()) for scope in of), Fraction()) for name, of in of_function.items()}
    return {name: half for name, half in sums.items() if half}


def _by_function(stacks: Mapping[tuple[str, ...], Fraction]) -> dict[str, Fraction]:
    functions: Counter[str] = Counter()
    for stack, count in stacks.items():
        functions[stack[-1]] += count  # type: ignore[assignment]
    return {name: count for name, count in functions.items() if count}  # type: ignore[misc]


DRIVEN, COUNTED, SYMBOLS = "costdrive.jsonl", "counted.xz", "symbols.json"
"""Raw files of a trial: what the sender prints, what the plugin counted, and the kernel's functions that it met."""

_REFUSALS = dict(PROGRAM_REFUSALS) | dict.fromkeys(("attach", "bind", "describe", "live frames"), UnsupportedError)


def cost_in(raw: Path) -> Cost:
    """Return the cost of a packet from a trial's raw files. Raises UnsupportedError if it has none."""
    return _cost(*((raw / name).read_bytes() for name in (COUNTED, DRIVEN, SYMBOLS)))


@functools.lru_cache(maxsize=64)  # a trial proves that it has a cost, and the run's table tells it
def _cost(counted: bytes, driven: bytes, symbols: bytes) -> Cost:
    return cost_of(_measurement(counted, driven, symbols))


def measurement_in(raw: Path) -> Measurement:
    """Return what was counted of a trial. Raises ResultsError if its raw files are damaged."""
    return _measurement(*((raw / name).read_bytes() for name in (COUNTED, DRIVEN, SYMBOLS)))


def _measurement(counted: bytes, driven: bytes, symbols: bytes) -> Measurement:
    try:
        functions = [(int(address), str(name)) for address, name in json.loads(symbols)]
        return Measurement(Plugin(lzma.decompress(counted)), messages_of(driven.decode()), functions)
    except (ValueError, TypeError, LookupError, lzma.LZMAError) as error:
        raise ResultsError(f"what was counted is damaged: {error}", remedy="count it again") from error


def messages_of(text: str) -> list[Message]:
    """Return the objects that a tool printed. Raises the error that a line tells."""
    messages: list[Message] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for message in messages:
        if message.get("type") == "error":
            raise error_class(message, _REFUSALS)(message_of(message))
    return messages
