"""What costs time on a host and can change: one table, read before and after each window by one request.

The reader (`native/reader/settings.h`) adds what no file says: the port's features, rings, channels, coalescing and
qdiscs; programs of tc on it; tracing programs; runs that BPF statistics counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xdplab.absent import Absent
from xdplab.counters.readings import Readings, difference
from xdplab.counters.table import Role, When
from xdplab.formats.settings import OF_PORT

RUNS, LINK_CHANGES = "bpf.run_cnt", "port.carrier_changes"
COUNTERS = (RUNS, LINK_CHANGES)
"""Names whose values only grow: the window's share counts."""


def of_host(readings: Readings, role: Role, when: When = "before") -> dict[str, str]:
    """Return the settings of one host without its counters."""
    named = {name: value for name, value in readings.settings(role, when).items() if name not in COUNTERS}
    return named | _statistics(readings, role)


def _statistics(readings: Readings, role: Role) -> dict[str, str]:
    """Return whether BPF statistics were on; if a program holds them by a descriptor, no file of the kernel says so."""
    try:
        return {"bpf.statistics": "on" if timed_runs(readings, role) else "off"}
    except Absent:
        return {}


def settings(readings: Readings) -> str:
    """Return both hosts' settings before the window, a JSON object; where the TG's machine says what the DUT's says,
    it is once there: under ``dut``."""
    return json.dumps(_both(readings, "before"))


def changed(readings: Readings) -> str:
    """Return the settings that differ after the window, a JSON object: name to both values."""
    before, after = _both(readings, "before"), _both(readings, "after")
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return json.dumps({name: [before.get(name), after.get(name)] for name in names})


def _both(readings: Readings, when: When) -> dict[str, str]:
    dut = of_host(readings, "dut", when)
    try:
        tg = of_host(readings, "tg", when)
    except Absent as absent:
        tg = {"settings": f"absent: {absent}"}
    settings = {name: value for name, value in tg.items() if name.startswith(OF_PORT) or dut.get(name) != value}
    return {f"dut {name}": value for name, value in dut.items()} | {
        f"tg {name}": value for name, value in settings.items()
    }


def link_changes(readings: Readings) -> int:
    """Return how often the link went down or came up in the window, by the end that saw more."""
    changes = []
    for role in ("dut", "tg"):
        counts = [readings.settings(role, when).get(LINK_CHANGES) for when in ("before", "after")]
        if all(count is not None and count.isdecimal() for count in counts):
            changes.append(difference(*(int(str(count)) for count in counts)))
    if not changes:
        raise Absent("neither end counts the changes of its link")
    return max(changes)


def timed_runs(readings: Readings, role: Role = "dut") -> int:
    """Return how many runs of XDP programs the kernel counted in the window; it counts while statistics are on."""
    before, after = (_runs(readings.settings(role, when)) for when in ("before", "after"))
    return sum(count - before.get(program, 0) for program, count in after.items())


def _runs(named: Mapping[str, str]) -> dict[str, int]:
    state = named.get(RUNS, "absent: it was not asked")
    if state.startswith("absent: "):
        raise Absent(f"the kernel does not show its programs: {state.removeprefix('absent: ')}")
    return {program: int(count) for program, _, count in (word.partition(":") for word in state.split())}
