"""From the journal and the raw files to one row per measured thing: a test's case, a class, a filter on a packet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from xdplab.absent import Absent, or_absent
from xdplab.analysis.intervals import Spread
from xdplab.run.columns import Column
from xdplab.run.frames import typed
from xdplab.run.rundir import read_json
from xdplab.studies.jit.classes import SIZES
from xdplab.studies.jit.kerneltests import TestLine, parse_sizes, parse_test_bpf
from xdplab.studies.jit.points import (
    AMPLIFIED,
    ASKED,
    BENCH,
    FILTERS,
    INSN_CLASSES,
    LOG,
    SIZES_FILE,
    TCP,
    TEST_BPF,
    TESTS,
    TRAFFIC,
    JitPoint,
    JitRequest,
)
from xdplab.studies.jit.subjects import (
    FILTER,
    MANY_TAPS,
    NONE,
    OPEN,
    PAYLOADS,
    SAME,
    SHORTEST,
    TCP_KINDS,
    JitTiming,
    parse_jitbench,
    same,
)
from xdplab.studies.places import PlaceFacts
from xdplab.studies.points import Row, StudyPlan

UNITS = {"time": "ns", "instructions": "instructions"}


COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "id", "the run"),
    Column("trial_id", "str", "id", "point and repetition"),
    Column("repetition", "int", "factor", "1 …"),
    Column("place", "str", "factor", "host, uml, or a virtual lab"),
    Column("kernel_release", "str", "factor", "uname -r there"),
    Column("label", "str", "factor", "the place as figures name it"),
    Column("clock", "str", "factor", "what a nanosecond of the place is: time or instructions"),
    Column("unit", "str", "factor", "of cost, above and total: ns or instructions"),
    Column("mode", "str", "factor", "interpreter or jit"),
    Column("part", "str", "factor", "test_bpf, classes, filters, traffic, amplified, tcp"),
    Column("subject", "str", "factor", "suite, instruction class or filter"),
    Column("number", "int", "factor", "of a test in its suite; payload of traffic, bytes; packet sockets (amplified)"),
    Column("name", "str", "factor", "a test's; the packet or system call a filter looks at"),
    Column("case", "int", "factor", "of a test, 1 …; null if nothing was run"),
    Column("classic", "bool", "factor", "test_bpf: classic BPF, by the module's own table; null in other suites"),
    Column("passed", "bool", "state", "the result is right: the kernel's own word, or equal to our model's",
           null="nothing was run"),
    Column("jited", "bool", "state", "it ran compiled; null if nothing was run", null="nothing was run"),
    Column("words", "str", "state", "the end of the kernel's line on a test", null="no line of the kernel"),
    Column("cost", "float", "time", "of one run (test), one body (class), one run of the filter with entering it",
           null="not measured in this part"),
    Column("above", "float", "time", "filters: cost above the shortest filter with the same verdict",
           null="not measured in this part"),
    Column("low", "float", "time", "amplified, time: 95 % interval of the median round's cost, lower end",
           null="no interval in this part"),
    Column("high", "float", "time", "amplified, time: its upper end", null="no interval in this part"),
    Column("policy_requested", "str", "factor",
           "amplified: the scheduling policy asked for, so that nothing else runs"),
    Column("policy", "str", "state", "amplified: the policy that it then had", null="not asked for"),
    Column("packets", "float", "count", "tcp: runs of the filter per send (TCP_STREAM) or transaction (TCP_RR)",
           null="counted in part tcp only"),
    Column("total", "float", "time", "traffic, tcp: of a datagram, send or transaction, seen through the filter",
           null="measured in parts traffic and tcp only"),
    Column("untapped", "float", "time", "traffic, tcp: of one that no packet socket looks at",
           null="measured in parts traffic and tcp only"),
    Column("share", "float", "share", "traffic, tcp: cost by total", null="measured in parts traffic and tcp only"),
    Column("insns", "int", "count",
           "instructions of the filter, of the class' larger program, or as the JIT got the test",
           null="not told of this subject"),
    Column("machine_bytes", "float", "size",
           "jit: machine code of one body (classes), of the whole program (test_bpf)",
           null="not told of this subject"),
)  # fmt: skip


def table_of(plan: StudyPlan[JitRequest, JitPoint]) -> pd.DataFrame:
    """Return the rows of each trial's last attempt, with `COLUMNS`."""
    return typed(plan.rows(PlaceFacts, _rows), COLUMNS)


def _rows(point: JitPoint, facts: PlaceFacts, raw: Path) -> Iterator[Row]:
    rows = _amplified(raw, str(facts.clock)) if point.part == AMPLIFIED else _READERS[point.part](raw)
    for row in rows:
        yield {"unit": UNITS[str(facts.clock)]} | row


def suite_rows(raw: Path) -> Iterator[Row]:
    """Yield a row per case of each test in a trial's logs, with the size of its compiled program."""
    module_tests = read_json(raw / TESTS, lambda tests: {test["number"]: test for test in tests})
    for path in sorted(raw.glob(LOG.format(0).replace("00", "*"))):
        tests = parse_test_bpf(path.read_bytes())
        sizes = _sizes(raw / SIZES_FILE.format(int(path.stem.rpartition("-")[2])), tests)
        for test in tests:
            classic = module_tests[test.number]["classic"] if module_tests[test.number]["name"] == test.name else None
            yield from ({"classic": classic} | sizes.get(test.number, {}) | row for row in _cases(test))


def _sizes(path: Path, tests: Sequence[TestLine]) -> dict[int, Row]:
    """Return the size of each test's compiled program by its number, or the reason why it is null.

    The kernel frees the programs in the order of their tests. Only the first suite has such a
    file, where it runs compiled.
    """
    compiled = [test.number for test in tests if test.jited]
    if not path.exists():
        return {}
    programs = parse_sizes(path.read_bytes())
    if not isinstance(programs, str) and len(programs) != len(compiled):
        programs = f"{len(compiled)} tests ran compiled, and {len(programs)} compiled programs were freed"
    if isinstance(programs, str):
        return {number: {"machine_bytes": Absent(programs)} for number in compiled}
    return {
        number: {"insns": size.insns, "machine_bytes": float(size.machine_bytes)}
        for number, size in zip(compiled, programs, strict=True)
    }


def _cases(test: TestLine) -> Iterator[Row]:
    base = {"number": test.number, "name": test.name, "jited": test.jited, "words": test.ending, "passed": test.passed}
    if not test.ns:
        yield base | {"cost": Absent("nothing was run")}
    for case, cost in enumerate(test.ns, 1):
        yield base | {"case": case, "cost": cost}


def _bench(raw: Path, end: str = "") -> tuple[dict[str, JitTiming], bool]:
    """Return the subjects of one call of jitbench, and whether they were compiled."""
    bench = parse_jitbench((raw / BENCH.format(end)).read_bytes())
    return bench.subjects, bench.compiles


def _class(raw: Path) -> Iterator[Row]:
    """The difference of two values of K: costs per program or per run are in both."""
    small, large = (_bench(raw)[0][str(k)] for k in SIZES)
    more = SIZES[1] - SIZES[0]
    images = large.jited_bytes, small.jited_bytes
    code = (images[0] - images[1]) / more if images[0] and images[1] else None
    cost = (large.per_run - small.per_run) / more
    yield {"passed": True, "jited": bool(images[0]), "cost": cost, "insns": large.insns, "machine_bytes": code}


def _filter(raw: Path) -> Iterator[Row]:
    """The cost of the shortest filter compared with no filter is that of entering a filter."""
    timed, compiled = _bench(raw)
    entering = timed[SHORTEST].per_run - timed[OPEN].per_run if OPEN in timed else None
    for name in (name for name in timed if same(name) in timed):
        above = timed[name].per_run - timed[same(name)].per_run
        cost = None if entering is None else above + entering
        row = {"name": name, "insns": timed[name].insns, "passed": True, "jited": compiled}
        yield row | _resolved({"cost": cost, "above": above}, timed, (name, same(name), SHORTEST, OPEN))


def _resolved(values: Row, timed: dict[str, JitTiming], names: tuple[str, ...]) -> Row:
    """Return the values, or null with the reason: a cost below the variation of its subjects is null."""
    noise = sum(timed[name].unsteady for name in names if name in timed)
    cost = values["above"] if values["cost"] is None else values["cost"]
    if cost > noise:
        return values | {"cost": or_absent(values["cost"], "the kernel runs every filter: nothing to compare with")}
    return dict.fromkeys(values, Absent(f"not above the noise of {noise:.0f}"))


def _traffic(raw: Path) -> Iterator[Row]:
    timed, compiled = _bench(raw)
    verdicts = {
        one["name"]: one["expected"] for one in map(json.loads, (raw / ASKED.format("")).read_text().splitlines())
    }
    for size in map(str, PAYLOADS):
        row: Row = {"number": int(size), "name": "passed" if verdicts[size] else "refused", "jited": compiled}
        yield row | _share(timed, size, same(size), f"{size}/")


def _share(timed: dict[str, JitTiming], whole: str, shortest_alike: str, baselines: str = "") -> Row:
    """Return the filter's cost in all the work of ``whole``; ``baselines``: how the names of those begin."""
    names = (whole, shortest_alike, baselines + SHORTEST, baselines + OPEN)
    above, entering = (timed[one].per_run - timed[other].per_run for one, other in (names[:2], names[2:]))
    cost, total = above + entering, timed[whole].per_run
    row: Row = {"passed": True, "insns": timed[whole].insns, "total": total}
    row |= {"untapped": timed[baselines + NONE].per_run}
    return row | _resolved({"cost": cost, "above": above, "share": cost / total}, timed, names)


def _amplified(raw: Path, clock: str) -> Iterator[Row]:
    """Many packet sockets have run the filter on one datagram: the rounds' differences, by their number.

    The subjects of a round follow each other, so that a disturbance that lasts is in both sides of a difference.
    """
    timed, compiled = _bench(raw)
    runs = timed[FILTER].times * MANY_TAPS
    above, entering = (
        [(one - other) / runs for one, other in zip(timed[upper].ns, timed[lower].ns, strict=True)]
        for upper, lower in ((FILTER, SAME), (SHORTEST, OPEN))
    )
    row: Row = {"number": MANY_TAPS, "name": "passed" if timed[FILTER].verdict else "refused", "passed": True}
    row |= {"insns": timed[FILTER].insns, "jited": compiled}
    row |= {"policy_requested": timed[FILTER].policy_requested, "policy": timed[FILTER].policy}
    if clock == "instructions":
        cost = [timed[name].per_run / MANY_TAPS for name in (FILTER, SAME, SHORTEST, OPEN)]
        yield row | {"cost": cost[0] - cost[1] + cost[2] - cost[3], "above": cost[0] - cost[1]}
        return
    whole = [one + other for one, other in zip(above, entering, strict=True)]
    spread = Spread.of(whole, "ranks")
    if spread.low > 0:
        yield row | {"cost": spread.median, "above": median(above), "low": spread.low, "high": spread.high}
    else:
        why = Absent(f"not above the noise: {spread.low:.1f} to {spread.high:.1f}")
        yield row | dict.fromkeys(("cost", "above", "low", "high"), why)


def _tcp(raw: Path) -> Iterator[Row]:
    for kind, (_, payload) in TCP_KINDS.items():
        timed, compiled = _bench(raw, f"-{kind}")
        passes = "passed" if timed[FILTER].verdict else "refused"
        row: Row = {"number": payload, "name": f"{kind}, {passes}", "jited": compiled}
        row |= {"packets": (timed[OPEN].passed or 0) / timed[OPEN].times}
        yield row | _share(timed, FILTER, SAME)


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    TEST_BPF: suite_rows,
    INSN_CLASSES: _class,
    FILTERS: _filter,
    TRAFFIC: _traffic,
    TCP: _tcp,
}
