"""Columns of what the DUT counted: packets by port, queue and direction, CPU time, perf's events, its clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from xdplab.absent import Absent, required
from xdplab.analysis.count_rules import rewritten
from xdplab.counters.columns import COUNTERS, Counters, metrics, packets_counted, unreadable
from xdplab.counters.packets import jain_index
from xdplab.deploy.afxdp import Stats
from xdplab.formats.generator import Burst
from xdplab.formats.settings import OF_PORT
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import COUNTERS_FOLDER, TrialSource
from xdplab.studies.traffic.passes import PERF_FOLDER, SECOND_FOLDER, SECOND_PERF_FOLDER
from xdplab.studies.traffic.two_ports import FORWARDED, RECEIVED, by_way

NO_PERF = "the plan asks for no perf pass"
OF_PERF = (
    *("cycles", "instructions", "ipc", "branches", "branch_misses", "l1d_loads", "l1d_misses"),
    *("host_cycles", "host_instructions", "perf_running"),
)
WAYS = ("forth", "back")
"""Prefixes of the columns of a direction: from the first port to the second, and from the second to the first."""


def _counted(t: TrialSource, name: str) -> object:
    return t.counters.require(name)


def _perf(t: TrialSource, name: str) -> object:
    if "perf" not in t.bursts:
        raise Absent(NO_PERF)
    return t.counters.require(name)


# What the AF_XDP application counted itself around a burst. rx_dropped contains the frames of a full or an empty ring.

Around = tuple[Stats, Stats]


def _application(t: TrialSource) -> Around | None:
    before, after = t.facts.dut_before, t.facts.dut_after
    return None if before is None or after is None else (before, after)


def _gained(around: Around, name: str) -> list[int]:
    before, after = (stats.queues for stats in around)
    return [getattr(b, name) - getattr(a, name) for a, b in zip(before, after, strict=True)]


def _arrived(around: Around) -> list[int]:
    return [rx + dropped for rx, dropped in zip(_gained(around, "rx"), _gained(around, "rx_dropped"), strict=True)]


def _received(around: Around) -> int:
    before, after = around
    return sum(_arrived(around)) + after.unbound_packets - before.unbound_packets


def _foreign(around: Around) -> int:
    """Frames at the application that are not the generator's; the DUT's counts exclude them."""
    before, after = (stats.foreign() for stats in around)
    if before is None or after is None:
        raise Absent("the application was not told how to recognise the frames of this trial")
    return after - before


def _dut_foreign(t: TrialSource) -> int:
    around = _application(t)
    return _foreign(required(around, "a driver's counters do not tell whose frames they counted"))


def _dut_rx(t: TrialSource) -> int:
    if t.point.two_ports:
        return _sum_of_ways(t, "dut_rx_packets")
    around = _application(t)
    if around is None:
        return int(t.counters.require("dut_rx_packets"))
    return _received(around) - (t.row["dut_foreign_packets"] or 0)


def _dut_tx(t: TrialSource) -> int:
    if t.point.two_ports:
        return _sum_of_ways(t, "dut_tx_packets")
    around = _application(t)
    if around is None:
        return int(t.counters.require("dut_tx_packets"))
    return sum(_gained(around, "tx")) - (t.row["dut_foreign_packets"] or 0)


def _xsk_dropped(t: TrialSource) -> int:
    around = required(_application(t), "the mode has no AF_XDP socket")
    return sum(_gained(around, "rx_dropped")) + sum(_gained(around, "tx_dropped"))


def _by_queue(t: TrialSource) -> list[int]:
    around = _application(t)
    return list(t.counters.require("rx_by_queue")) if around is None else _arrived(around)


def _evenness(t: TrialSource) -> float:
    around = _application(t)
    return float(t.counters.require("evenness")) if around is None else jain_index(tuple(_arrived(around)))


def _queues_reached(t: TrialSource) -> int:
    return sum(count > 0 for count in json.loads(t.row.require("rx_by_queue")))


# A DUT that forwards from one port to another.


def _way(t: TrialSource, way: str) -> tuple[Burst, Counters, Counters]:
    """The burst of a direction, and the counters of the port that receives and of the one that sends on."""
    if not t.point.two_ports:
        raise Absent("frames come back by the port they came on")
    place = WAYS.index(way)
    if place >= t.point.ways:
        raise Absent("frames are sent in one direction only")
    receives, sends = by_way(t.ports[0], t.ports[1], t.point.ways)[place]
    return (t.window.ways or (t.window,))[place], receives, sends


def _way_tx(t: TrialSource, way: str) -> int:
    return _way(t, way)[0].summary.tx_packets


def _way_dut_rx(t: TrialSource, way: str) -> int:
    return int(_way(t, way)[1].require(RECEIVED))


def _way_dut_tx(t: TrialSource, way: str) -> int:
    return int(_way(t, way)[2].require(FORWARDED))


def _way_rx(t: TrialSource, way: str) -> int:
    """The frames of a direction that came to the TG; those that a user's program rewrote came, too."""
    burst, _, sends = _way(t, way)
    s, gone = burst.summary, sends[FORWARDED]
    received = int(s.required("rx_packets", "this generator did not count what came back"))
    if t.point.program.file is None:
        return received
    return received + int(rewritten(received, s.foreign_packets, s.tx_packets if gone is None else gone))


def _sum_of_ways(t: TrialSource, name: str) -> int:
    counts = [t.row[f"{way}_{name}"] for way in WAYS[: t.point.ways]]
    if None in counts:
        raise Absent("a direction's count is missing: see the columns of the directions")
    return sum(counts)


def _missing(t: TrialSource) -> str:
    second = _unreadable(t, SECOND_FOLDER) if t.point.two_ports else None
    first = _unreadable(t, COUNTERS_FOLDER)
    return required(first if second is None else f"second port: {second}", "no reading is missing")


def _unreadable(t: TrialSource, folder: str) -> str | None:
    return unreadable(t.files(folder), [name.removeprefix(f"{folder}/") for name in t.attempt.files])


def _settings(t: TrialSource, name: str) -> str:
    """Settings, with those of a second port."""
    first, second = (port[name] for port in t.ports) if t.point.two_ports else (None, None)
    return str(t.counters.require(name)) if first is None or second is None else with_second_port(first, second)


def with_second_port(first: str, second: str) -> str:
    """Return settings with those of the second ports, which say so in their names."""
    whole, other = json.loads(first), json.loads(second)
    named = {name: value for name, value in other.items() if name.partition(" ")[2].startswith(OF_PORT)}
    return json.dumps(whole | {f"{name} (second port)": value for name, value in named.items()})


def _link_changes(t: TrialSource) -> int:
    counts = [port["link_changes"] for port in t.ports] if t.point.two_ports else []
    counted = [count for count in counts if count is not None]
    return max(counted) if counted else int(t.counters.require("link_changes"))


# perf's pass, and the clock.


def _perf_packets(t: TrialSource) -> int:
    """The frames that the DUT received between the readings before perf began and after it had ended."""
    if "perf" not in t.bursts:
        raise Absent(NO_PERF)
    if not (t.raw / PERF_FOLDER).is_dir():
        raise Absent("the DUT's counters were not read around perf")
    if t.facts.perf_before is not None and t.facts.perf_after is not None:
        return _received((t.facts.perf_before, t.facts.perf_after))
    folders = (PERF_FOLDER, SECOND_PERF_FOLDER)[: t.point.ways]
    ports = [packets_counted(t.files(folder), t.point.mode) for folder in folders]
    return sum(port.require("dut_rx_packets") for port in ports)


def _clock(t: TrialSource) -> float:
    """perf's count during traffic gives the clock under load; without it, the chain of additions around the window."""
    by_perf = t.perf_pass["clock_by_perf"]
    return float(t.counters.require("clock_by_additions") if by_perf is None else by_perf)


def _clock_from(t: TrialSource) -> str:
    t.row.require("cycles_per_ns")
    return "additions" if t.perf_pass["clock_by_perf"] is None else "perf"


def _own_metrics(t: TrialSource) -> str:
    numbers = metrics(t.readings)
    if t.facts.hints:
        hints = t.facts.hints
        calls, refused = hints.packets * t.row["accesses"], hints.refused
        numbers |= {"hints_refused_percent": 100 * refused / calls} if calls else {}
        alike = hints.squares * refused == hints.errors**2  # by Cauchy and Schwarz; a mix's mean would be another errno
        numbers |= {"hints_errno": hints.errors / refused if alike else Absent("several")} if refused else {}
    if not numbers:
        raise Absent("the plan has no metrics of its own")
    return json.dumps({name: None if isinstance(number, Absent) else number for name, number in numbers.items()})


_OTHERWISE: dict[str, Callable[[TrialSource], object]] = {
    "dut_rx_packets": _dut_rx,
    "dut_tx_packets": _dut_tx,
    "dut_driver_lost": lambda t: sum(port.require("dut_driver_lost") for port in t.ports[: t.point.ways]),
    "rx_by_queue": lambda t: json.dumps(_by_queue(t)),
    "evenness": _evenness,
    "settings": partial(_settings, name="settings"),
    "settings_changed": partial(_settings, name="settings_changed"),
    "link_changes": _link_changes,
    **{name: partial(_perf, name=name) for name in OF_PERF},
}
"""Columns that the readings of one port around the window do not give alone."""

DUT: tuple[Column[TrialSource], ...] = (
    *(
        Column(c.name, c.dtype, c.kind, c.text, _OTHERWISE.get(c.name) or partial(_counted, name=c.name))
        for c in COUNTERS
    ),
    Column("forth_tx_packets", "int", "count", "two ports: frames the TG sent to the DUT's first port",
           partial(_way_tx, way="forth")),
    Column("forth_dut_rx_packets", "int", "count", "two ports: those that the DUT's first port received",
           partial(_way_dut_rx, way="forth")),
    Column("forth_dut_tx_packets", "int", "count",
           "two ports: those that the DUT forwarded by its second port, by that port's counters",
           partial(_way_dut_tx, way="forth")),
    Column("forth_rx_packets", "int", "count", "two ports: those that the TG received from the DUT's second port",
           partial(_way_rx, way="forth")),
    Column("back_tx_packets", "int", "count", "both directions: frames the TG sent to the DUT's second port",
           partial(_way_tx, way="back")),
    Column("back_dut_rx_packets", "int", "count", "both directions: those that the DUT's second port received",
           partial(_way_dut_rx, way="back")),
    Column("back_dut_tx_packets", "int", "count",
           "both directions: those that the DUT forwarded by its first port, by that port's counters",
           partial(_way_dut_tx, way="back")),
    Column("back_rx_packets", "int", "count", "both directions: those that the TG received from the DUT's first port",
           partial(_way_rx, way="back")),
    Column("queues_reached", "int", "state", "queues that received at least one test frame", _queues_reached),
    Column("dut_foreign_packets", "int", "count",
           "frames that reached the DUT's AF_XDP application but were not test frames of this run; not in "
           "dut_rx_packets",
           _dut_foreign),
    Column("xsk_dropped", "int", "count", "af_xdp only: frames dropped because a ring was full or empty", _xsk_dropped),
    Column("perf_packets", "int", "count",
           "frames that the DUT processed while perf counted: the divisor of perf's counts",
           _perf_packets),
    Column("cycles_per_ns", "float", "rate",
           "clock of the CPUs that do the DUT's work: perf's cycles / busy time, else one addition per cycle, timed "
           "next to the window",
           _clock),
    Column("cycles_per_ns_from", "str", "state", "source of cycles_per_ns: perf or additions", _clock_from),
    Column("counters_missing", "str", "state", "readings of the DUT that are missing or incomplete", _missing),
    Column("metrics", "json", "state", "the plan's own metrics, a JSON object", _own_metrics),
)  # fmt: skip
