"""Derived values use only files: every number is a difference of two readings, or null with the reason."""

import json

import pytest
from tests.counters.deriving import derive, link, readings_of

from xdplab.absent import Absent
from xdplab.counters.columns import intervals, metrics, unreadable
from xdplab.counters.cpu import perf_by_cpu
from xdplab.counters.packets import jain_index
from xdplab.counters.readings import difference, longest_run, parse_samples, window
from xdplab.errors import FormatError

Files = dict[str, bytes]


def ethtool(received: list[int], sent: list[int]) -> bytes:
    """Return veth's statistics, without the counters that the tests do not use."""
    lines = [
        f"     rx_queue_{queue}_{name}: {values[queue]}"
        for queue in range(len(received))
        for name, values in (("xdp_packets", received), ("xdp_tx", sent))
    ]
    return "\n".join(["NIC statistics:", "     peer_ifindex: 2", *lines, ""]).encode()


def procstat(*cpus: tuple[int, int, int]) -> bytes:
    """Return /proc/stat of CPUs given as ticks of (user, idle, softirq)."""
    return "".join(f"cpu{n} {user} 0 0 {idle} 0 0 {soft} 0 0 0\n" for n, (user, idle, soft) in enumerate(cpus)).encode()


def softnet(*dropped: int) -> bytes:
    lines = [[9, drops, 0, *[0] * 9, cpu, 0, 0] for cpu, drops in enumerate(dropped)]
    return "".join(" ".join(f"{word:08x}" for word in line) + "\n" for line in lines).encode()


def readings() -> Files:
    return {
        "dut.driver.before.txt": b"driver: veth\n",
        "dut.settings.before.txt": b"port.mtu\t1500\n",
        "dut.settings.after.txt": b"port.mtu\t1500\n",
        "dut.iplink.before.json": link(100, 50),
        "dut.iplink.after.json": link(1100, 1050),
        "dut.ethtool.before.txt": ethtool([10, 0], [5, 0]),
        "dut.ethtool.after.txt": ethtool([760, 250], [755, 250]),
        "dut.procstat.before.txt": procstat((0, 0, 0), (0, 100, 0)),
        "dut.procstat.after.txt": procstat((10, 50, 40), (0, 200, 0)),
        "dut.softnet.before.txt": softnet(1, 5),
        "dut.softnet.after.txt": softnet(4, 5),
    }


def perf_file(event: str, *values: str) -> bytes:
    rows = (
        {"cpu": str(cpu), "counter-value": value, "unit": "", "event": event, "event-runtime": 1}
        for cpu, value in enumerate(values)
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def perf_run(*words: str) -> bytes:
    return json.dumps({"argv": ["perf", "stat", *words], "exit_code": 0}).encode()


def clocks(before: float, after: float) -> Files:
    """Return the readings of a chain of 65,536 additions on CPU 0 and 1, in cycles per ns."""
    return {
        f"dut.clock.{when}.jsonl": "".join(
            json.dumps({"cpu": cpu, "adds": 65536, "ns": round(65536 / clock)}) + "\n" for cpu in (0, 1)
        ).encode()
        for when, clock in (("before", before), ("after", after))
    }


SETTINGS = {"net.core.bpf_jit_harden": "0", "port.mtu": "1500", "port.carrier_changes": "2", "bpf.run_cnt": "7:100"}


def settings(when: str, role: str = "dut", **change: str) -> Files:
    named = SETTINGS | {name.replace("__", "."): value for name, value in change.items()}
    return {f"{role}.settings.{when}.txt": "".join(f"{name}\t{value}\n" for name, value in named.items()).encode()}


def link_of(**ways: tuple[int, int, int]) -> bytes:
    """Return what `ip -s -j link` says of packets, bytes and dropped packets, each way."""
    names = ("packets", "bytes", "dropped")
    stats = {way: dict(zip(names, counts, strict=True)) | {"errors": 0} for way, counts in ways.items()}
    return json.dumps([{"ifname": "eth1", "stats64": stats, "xdp": {"attached": []}}]).encode()


def veth(*queues: tuple[int, ...]) -> bytes:
    names = ("xdp_packets", "xdp_tx", "xdp_tx_errors", "xdp_drops", "xdp_redirect", "drops")
    lines = [
        f"     rx_queue_{q}_{name}: {n}"
        for q, counts in enumerate(queues)
        for name, n in zip(names, counts, strict=True)
    ]
    return "\n".join(["NIC statistics:", *lines, ""]).encode()


def backlog(*cpus: tuple[int, int]) -> bytes:
    """Return softnet_stat of CPUs given as (dropped, squeezed)."""
    words = ((9, dropped, squeezed, *[0] * 9, cpu, 0, 0) for cpu, (dropped, squeezed) in enumerate(cpus))
    return "".join(" ".join(f"{word:08x}" for word in line) + "\n" for line in words).encode()


EVENTS = ("cycles", "instructions", "branches", "branch-misses", "L1-dcache-loads", "L1-dcache-load-misses",
          "context-switches")  # fmt: skip
PERF = "".join(
    json.dumps({"cpu": str(cpu), "counter-value": f"{(place + 2) * 10**cpu}e9", "unit": "", "event": event,
                "event-runtime": 1, "pcnt-running": 100.0 - place - cpu}) + "\n"
    for place, event in enumerate(EVENTS) for cpu in range(3)
)  # fmt: skip
DISTINCT: Files = {
    "dut.driver.before.txt": b"driver: veth\n",
    "dut.iplink.before.json": link_of(rx=(100, 1000, 1), tx=(50, 500, 2)),
    "dut.iplink.after.json": link_of(rx=(1104, 61_240, 8), tx=(975, 55_075, 13)),
    "dut.ethtool.before.txt": veth((1, 2, 3, 4, 5, 6), (10, 20, 30, 40, 50, 60)),
    "dut.ethtool.after.txt": veth((751, 702, 6, 15, 7, 9), (260, 240, 36, 49, 51, 61)),
    "dut.softnet.before.txt": backlog((1, 2), (3, 4), (5, 6)),
    "dut.softnet.after.txt": backlog((12, 15), (20, 27), (34, 43)),
    "dut.procstat.before.txt": b"cpu0 1 0 0 9 0 0 1 1 0 0\ncpu1 2 0 0 8 0 0 2 2 0 0\ncpu2 3 0 0 0 0 0 0 0 0 0\n",
    "dut.procstat.after.txt": b"cpu0 61 0 0 69 0 0 41 41 0 0\ncpu1 122 0 0 68 0 0 12 12 0 0\n"
    b"cpu2 23 0 0 160 0 0 6 14 0 0\n",
    "dut.perf.out": PERF.encode(),
    "dut.perf.run.json": perf_run("-a", "-A", "-j", "-e", ",".join(EVENTS), "--", "cat"),
    "tg.driver.before.txt": b"driver: veth\n",
    "tg.iplink.before.json": link_of(rx=(10, 100, 3), tx=(20, 200, 4)),
    "tg.iplink.after.json": link_of(rx=(917, 700, 20), tx=(1031, 900, 27)),
    "tg.ethtool.before.txt": veth((0,) * 6),
    "tg.ethtool.after.txt": veth((0,) * 6),
    **clocks(3.0, 2.7),
    **settings("before"),
    **settings("after", port__mtu="9000", port__carrier_changes="4", bpf__run_cnt="7:150 9:20"),
    **settings("before", "tg", port__mtu="1400"),
    **settings("after", "tg", port__mtu="1400", port__carrier_changes="5"),
}
VALUES = {
    "dut_rx_packets": 1000, "dut_tx_packets": 920, "dut_counted_by": "driver", "dut_driver": "veth",
    "dut_rx_mean_bytes": 60.0, "dut_tx_mean_bytes": 59.0, "rx_by_queue": (750, 250), "evenness": 0.8,
    "xdp_actions": '{"tx": 929, "drop": 20, "redirect": 7, "pass": 44}', "dut_driver_lost": None,
    "cpu_busy_cores": 1.15, "cpu_softirq_cores": 0.25, "host_busy_cores": 1.28, "host_softirq_cores": 0.28,
    "host_steal_cores": 0.32, "dut_cpus": 1,
    "cycles": 22e9, "instructions": 33e9, "ipc": 1.5, "branches": 44e9, "branch_misses": 55e9, "l1d_loads": 66e9,
    "l1d_misses": 77e9, "perf_running": 0.92, "host_cycles": 222e9, "host_instructions": 333e9,
    "host_context_switches": 888e9, "clock_change": -0.1, "clock_by_additions": 2.85, "clock_by_perf": 20e9 / 1.3e9,
    "host_softnet_dropped": 57, "softnet_dropped": 28, "softnet_squeezed": 36,
    "settings": '{"dut net.core.bpf_jit_harden": "0", "dut port.mtu": "1500", "dut bpf.statistics": "on", '
                '"tg port.mtu": "1400", "tg bpf.statistics": "off"}',
    "settings_changed": '{"dut port.mtu": ["1500", "9000"]}', "bpf_timed_runs": 70, "link_changes": 3,
    "absent_counters": None, "dut_forwarded_packets": 925, "tg_handed_over_packets": 1011, "tg_link_rx_packets": 907,
    "tg_link_tx_packets": 1011, "tg_link_tx_dropped": 23,
}  # fmt: skip


def test_each_value_is_of_its_own_counter_host_and_cpus() -> None:
    """No two counters of DISTINCT grow alike, so that no value can be another's."""
    how: dict[str, object] = {"dut_cpus": [0, 1], "working": [1], "queues": 2}
    values = derive(DISTINCT, **how)
    for name, value in VALUES.items():
        assert values[name] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value), name
    assert set(values) == VALUES.keys()
    shared = derive(DISTINCT, shared=True, **how)
    assert {name for name in values if shared[name] != values[name]} == {
        *("cpu_busy_cores", "cpu_softirq_cores", "cycles", "instructions", "ipc", "branches", "branch_misses"),
        *("l1d_loads", "l1d_misses", "softnet_dropped", "softnet_squeezed"),
    }
    assert shared.reason("ipc") == "TG and DUT share CPUs: see the host_ columns"


@pytest.mark.parametrize("older", [True, False])
def test_what_virtios_full_ring_refused_was_not_sent(older: bool) -> None:
    """Linux 6.1 behind a tap: 188648 xdp_tx, 9253 xdp_tx_drops, and 179395 arrived."""
    files = readings() | {"dut.driver.before.txt": b"driver: virtio_net\n"}
    for when, drops in (("before", 3), ("after", 40)):
        lines = "".join(f"     tx_queue_{queue}_xdp_tx_drops: {drops * queue}\n" for queue in range(2))
        text = files[f"dut.ethtool.{when}.txt"].decode() + lines
        files[f"dut.ethtool.{when}.txt"] = (text if older else text.replace("x_queue_", "x")).encode()
    values = derive(files)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (1000, 1000 - 37)


def test_af_xdp_is_counted_by_its_rings_and_generic_and_half_of_netkit_by_the_link() -> None:
    assert "rings" in (derive(readings(), mode="af_xdp").reason("dut_rx_packets") or "")
    generic = derive(readings(), mode="generic")
    assert (generic["dut_counted_by"], generic["dut_rx_packets"]) == ("link", 1000)
    netkit = derive(readings(), mode="netkit")
    assert "redirects" in (netkit.reason("dut_rx_packets") or "")
    assert netkit["dut_tx_packets"] == generic["dut_tx_packets"]


@pytest.mark.parametrize(
    ("file", "data", "name", "says"),
    [
        ("dut.iplink.after.json", link(99, 1050), "rx_by_queue", "went back from 100 to 99"),
        ("dut.ethtool.after.txt", ethtool([10, 0], [5, 0]), "rx_by_queue", "stayed 0 while the link received 1000"),
        ("dut.ethtool.after.txt", ethtool([10], [5]), "dut_rx_packets", "2 queues before the window, 1 after it"),
        (
            "dut.ethtool.after.txt",
            b"NIC statistics:\n     x: 1\n",
            "dut_rx_packets",
            "2 queues before the window, 0 after",
        ),
        ("dut.softnet.after.txt", softnet(4), "softnet_dropped", "CPUs came or went"),
        ("dut.softnet.after.txt", softnet(0, 5), "softnet_dropped", "went back from 1 to 0"),
        ("dut.procstat.after.txt", procstat((0, 0, 0), (0, 100, 0)), "cpu_busy_cores", "no tick passed"),
        ("dut.procstat.after.txt", b"\x00", "cpu_busy_cores", "a NUL byte"),
    ],
)
def test_null_with_a_reason(file: str, data: bytes, name: str, says: str) -> None:
    values = derive(readings(), {file: data})
    assert values[name] is None
    assert says in (values.reason(name) or "")


def test_nothing_read_is_nothing_known() -> None:
    values = derive({})
    assert {value for name, value in values.items() if name != "dut_counted_by"} == {None}
    assert values.reason("dut_rx_packets") == "ethtool was not read before the window"
    assert values.reason("cycles") == "perf was not recorded in this pass"


def test_the_tools_own_message_is_the_reason() -> None:
    files = readings()
    del files["dut.ethtool.before.txt"]
    files["dut.ethtool.before.err"] = b"no stats available\n"
    values = derive(files)
    assert values.reason("rx_by_queue") == "no stats available"
    assert (values["dut_rx_packets"], values["dut_counted_by"]) == (1000, "link")  # a driver without -S
    del files["dut.iplink.after.json"]
    assert derive(files).reason("dut_rx_packets") == "no stats available"


def test_an_event_in_two_groups_is_counted_once() -> None:
    """perf prints a line for each group: cycles were double, IPC half, and the clock twice as high."""
    files = {
        "dut.perf.out": perf_file("cycles", "100.0", "20.0") + perf_file("instructions", "200.0", "40.0"),
        "dut.perf.run.json": perf_run("-a", "-A", "-j", "--", "cat"),
    }
    files["dut.perf.out"] += perf_file("cycles", "110.0", "<not counted>")
    values = derive(files, dut_cpus=[0, 1])
    assert (values["cycles"], values["instructions"]) == (125, 240)


def test_an_event_that_one_cpu_counts_for_its_socket_is_none_of_the_duts() -> None:
    """For a DUT on other CPUs the sum of no line was 0, and one on that CPU had the whole socket's energy."""
    files = {
        "dut.perf.out": perf_file("cycles", "1.0", "1.0", "1.0", "1.0") + perf_file("power/energy-pkg/", "12.5"),
        "dut.perf.run.json": perf_run("-a", "-A", "-j", "--", "cat"),
    }
    for cpus in ([2, 3], [0]):
        found = readings_of(files, dut_cpus=cpus)
        assert sum(perf_by_cpu(found, "cycles", cpus).values()) == len(cpus)
        assert sum(perf_by_cpu(found, "power/energy-pkg/", None).values()) == 12.5
        with pytest.raises(Absent, match="on CPU 0 only"):
            perf_by_cpu(found, "power/energy-pkg/", cpus)


def test_events_that_shared_a_counter_are_told() -> None:
    """perf scales the count of each: it is an estimate, and no row had said so."""
    rows = [
        json.loads(line)
        for line in (perf_file("cycles", "100.0", "20.0") + perf_file("branches", "9.0", "7.0")).splitlines()
    ]
    shares = (100.0, 99.9, 100.0, 62.5)
    files = {
        "dut.perf.out": "".join(
            json.dumps(row | {"pcnt-running": share}) + "\n" for row, share in zip(rows, shares, strict=True)
        ).encode(),
        "dut.perf.run.json": perf_run("-a", "-A", "-j", "-e", "cycles,branches", "--", "cat"),
    }
    assert derive(files)["perf_running"] == 0.625


@pytest.mark.parametrize(
    ("count", "run", "name", "why"),
    [
        ("100.0", ("-j", "sleep", "5"), "cycles", "not the machine"),
        ("100.0", None, "cycles", "dut.perf.run.json is missing"),
        ("100.0", ("-a",), "perf_running", "perf did not print how long its counters ran"),
        ("<not supported>", ("-a",), "ipc", "perf: cycles <not supported>"),
    ],
)
def test_perf_that_does_not_count_the_machine_says_why(
    count: str, run: tuple[str, ...] | None, name: str, why: str
) -> None:
    files = {"dut.perf.out": perf_file("cycles", count)} | ({"dut.perf.run.json": perf_run(*run)} if run else {})
    assert why in (derive(files).reason(name) or "")


def test_what_was_asked_for_and_is_absent_is_told_with_its_reason() -> None:
    """On Debian 13, sar had recorded nothing and perf's context switches were not parsed, and no trial reported it."""
    files = {
        "dut.perf.out": perf_file("cycles", "<not supported>")
        + perf_file("branches", "<not supported>")
        + perf_file("context-switches", "7.0"),
        "dut.perf.run.json": perf_run(
            "-a", "-A", "-j", "-e", "cycles,branches,context-switches,cpu-clock", "--", "cat"
        ),
        "dut.sar.run.json": b'{"argv": ["sh", "sar.sh"], "exit_code": 127}',
        "dut.sar.err": b"sysstat's sar, sadf or sadc: not found",
        "dut.metric_queues.before.txt": b"4\n",
        "dut.metric_heat.before.err": b"no sensor\n",
    }
    values = derive(files, shared=True)
    assert values["absent_counters"] == (
        "cycles, branches (perf says <not supported>); cpu-clock (perf printed no count of cpu-clock); "
        "sar (sysstat's sar, sadf or sadc: not found); heat (no sensor)"
    )
    assert values["host_context_switches"] == 7
    only = derive({name: data for name, data in files.items() if name.startswith("dut.sar")})
    assert only["absent_counters"] == "sar (sysstat's sar, sadf or sadc: not found)"
    assert derive(readings()).reason("absent_counters") == "every counter that was asked for is there"


def notes(*packets: int) -> bytes:
    """Return the sampler's notes of received packets, ten times as many sent, and a CPU busy for one tick in ten."""
    return "".join(
        f"{10 + place / 10:.2f} 0.00\n{count}\n{10 * count}\ncpu0 {place} 0 0 {place * 9} 0 0 0 0\n"
        for place, count in enumerate(packets)
    ).encode()


def test_the_window_is_the_longest_run_of_traffic_without_its_ends() -> None:
    samples = parse_samples(notes(0, 0, 5, 9, 9, 10, 20, 30, 40, 45, 45))
    first, last = window(samples)
    assert (first.rx_packets, last.rx_packets) == (10, 40)
    with pytest.raises(Absent, match="no sampling interval"):
        window(parse_samples(notes(0, 5, 9, 9)))
    assert longest_run([1, 0, 1, 1, 0, 1, 1], bool) == range(2, 4)


def test_samples_go_before_the_readings_around_the_window() -> None:
    recorded = {"dut.samples.out": notes(0, 5, 9, 13, 13)}
    values = derive(readings(), recorded)
    assert values["cpu_busy_cores"] == 0.1
    values = derive(readings(), {"dut.samples.out": notes(0, 5)})
    assert values.reason("cpu_busy_cores") == "no sampling interval lies wholly inside the window"


def test_intervals_are_the_traffic_seen_live() -> None:
    rows = intervals(readings_of({"dut.samples.out": notes(0, 0, 5, 9, 13, 13)}))
    assert [(row.t_s, row.rx_packets, row.tx_packets) for row in rows] == [(0.1, 5, 50), (0.2, 4, 40), (0.3, 4, 40)]
    assert intervals(readings_of()) == []


def test_samples_cut_in_the_last_note_are_read_up_to_it() -> None:
    whole = notes(0, 1, 2)
    assert len(parse_samples(whole)) == 3
    assert len(parse_samples(whole[: whole.rindex(b"cpu0")])) == 2


def test_an_empty_line_for_a_cpu_is_refused() -> None:
    with pytest.raises(FormatError, match="line 4: no CPU"):
        parse_samples(b"10.00 0.00\n1\n1\n\n" * 2)


@pytest.mark.parametrize(
    ("printed", "number"), [("1", 1.0), ("-2.5e3\n", -2500.0), ("", None), ("nan", None), ("1,5", None), ("٣", None)]
)
def test_user_metrics(printed: str, number: float | None) -> None:
    heat = metrics(readings_of({"dut.metric_heat.after.txt": printed.encode()}))["heat"]
    assert (None if isinstance(heat, Absent) else heat) == number


def test_jains_index_of_even_and_of_one_queue() -> None:
    assert jain_index((5, 5, 5, 5)) == 1
    assert jain_index((5, 0, 0, 0)) == 0.25
    with pytest.raises(Absent):
        jain_index((0, 0))


def test_a_counter_that_went_back_is_no_difference() -> None:
    with pytest.raises(Absent, match="wrapped or was reset"):
        difference(2, 1)


def ticks(*cpus: tuple[int, int, int]) -> bytes:
    """Return /proc/stat of CPUs given as ticks of (user, idle, steal)."""
    return "".join(
        f"cpu{n} {user} 0 0 {idle} 0 0 0 {steal} 0 0\n" for n, (user, idle, steal) in enumerate(cpus)
    ).encode()


@pytest.mark.parametrize(
    ("busy", "working", "found"),
    [
        ((90, 88, 3), (0, 1, 2), 2),
        ((90, 88, 3), (0,), 1),  # other work on a CPU that never does the DUT's work does not count
        ((90, 30, 3), (0, 1, 2), 1),
        ((9, 8, 0), (0, 1, 2), 2),  # a paced load keeps no CPU busy, but two CPUs do the work
        ((3, 2, 1), (0, 1, 2), None),
        ((90, 88, 3), (), None),
    ],
)
def test_the_cpus_at_work_are_found_by_their_busy_time(
    busy: tuple[int, ...], working: tuple[int, ...], found: int | None
) -> None:
    files = readings() | {
        "dut.procstat.before.txt": ticks(*[(0, 0, 0)] * 3),
        "dut.procstat.after.txt": ticks(*[(share, 100 - share, 0) for share in busy]),
    }
    values = derive(files, shared=True, working=working)
    assert values["dut_cpus"] == found
    assert (values.reason("dut_cpus") is None) == (found is not None)


def test_whole_readings_are_whole() -> None:
    assert unreadable(readings()) is None


@pytest.mark.parametrize("name", sorted(readings().keys() - {"dut.driver.before.txt"}))
def test_each_reading_that_is_empty_missing_or_cut_is_named(name: str) -> None:
    files = readings()
    assert unreadable(files | {name: b""}) == f"{name} is empty"
    assert (unreadable(files | {name: b"\x00garbage"}) or "").startswith(f"{name}: ")
    del files[name]
    assert unreadable(files) == f"{name} is missing"


def test_the_message_of_a_tool_that_failed_is_an_answer() -> None:
    words = {"dut.ethtool.before.err": b"no stats available", "dut.ethtool.after.err": b"no stats available"}
    files = {name: data for name, data in readings().items() if "ethtool" not in name} | words
    assert unreadable(files) is None
    assert unreadable(files | {"dut.ethtool.after.err": b""}) == "dut.ethtool.after.err is empty"


def test_a_collector_that_is_younger_than_a_run_makes_none_of_its_trials_invalid() -> None:
    """A row added to COLLECTORS made each recorded trial of the sample invalid."""
    others = {name: data for name, data in readings().items() if "softnet" not in name}
    assert unreadable(others, list(others)) is None
    assert "dut.softnet.before.txt is missing" in (unreadable(others, list(readings())) or ""), "its files are gone"
    assert "dut.softnet.before.txt is missing" in (unreadable({}) or ""), "no reading at all is a damaged attempt"


def test_the_clock_is_that_of_the_cpus_at_work() -> None:
    absent = derive(clocks(3.0, 2.7), shared=True, working=[2])
    assert absent.reason("clock_by_additions") == "the clock of CPU 2 was not read"
    none = derive({}, shared=True, working=[1])
    assert none.reason("clock_change") == "the CPUs' clock was not read"


def test_the_clock_at_work_is_perfs_cycles_by_busy_time() -> None:
    """CPU 1 worked for 1.6 s at 1.5 cycles per ns; CPU 0 did none of the work and does not count."""
    counts = [{"cpu": str(cpu), "counter-value": str(value), "unit": "", "event": "cycles", "event-runtime": 1,
               "pcnt-running": 100.0} for cpu, value in ((0, 9e8), (1, 2.4e9))]  # fmt: skip
    files = {
        "dut.perf.out": "".join(json.dumps(line) + "\n" for line in counts).encode(),
        "dut.perf.run.json": b'{"argv": ["perf", "stat", "-a", "-A", "-j", "-e", "cycles", "--", "cat"]}',
        "dut.procstat.before.txt": procstat((0, 0, 0), (5, 100, 0)),
        "dut.procstat.after.txt": procstat((90, 10, 0), (105, 120, 60)),
    }
    found = derive(files, shared=True, working=[1])["clock_by_perf"]
    assert found == pytest.approx(2.4e9 / 1.6e9)
    short = {"dut.procstat.after.txt": procstat((90, 10, 0), (45, 120, 0))}
    assert derive(files, short, shared=True, working=[1])["clock_by_perf"] is None


@pytest.mark.parametrize(
    ("after", "column", "value"),
    [
        ({}, "settings_changed", "{}"),
        ({"bpf__run_cnt": "7:100"}, "bpf_timed_runs", 0),
        ({"bpf__run_cnt": "absent: Operation not permitted"}, "bpf_timed_runs", None),
        ({"port__carrier_changes": "4"}, "link_changes", 2),
        ({"port__carrier_changes": "4"}, "settings_changed", "{}"),
    ],
)
def test_settings_before_and_after_the_window(after: dict[str, str], column: str, value: object) -> None:
    ends = settings("before", "tg") | settings("after", "tg")
    found = derive(ends, settings("before"), settings("after", **after), shared=True)
    assert found[column] == value
    assert (found.reason(column) is None) == (value is not None)


@pytest.mark.parametrize(("after", "found"), [("7:100", "off"), ("7:150", "on"), ("absent: no", None)])
def test_statistics_are_a_setting_by_what_they_count(after: str, found: str | None) -> None:
    """What holds them by a descriptor changes no sysctl."""
    files = settings("before"), settings("after", bpf__run_cnt=after), settings("before", "tg")
    shown = json.loads(str(derive(*files, shared=True)["settings"]))
    assert shown.get("dut bpf.statistics") == found


def test_what_both_machines_say_is_there_once() -> None:
    other = settings("before", "tg", kernel__numa_balancing="1", net__core__bpf_jit_harden="2")
    found = json.loads(str(derive(settings("before"), other, shared=True)["settings"]))
    assert found == {
        "dut net.core.bpf_jit_harden": "0",
        "dut port.mtu": "1500",
        "tg net.core.bpf_jit_harden": "2",
        "tg port.mtu": "1500",
        "tg kernel.numa_balancing": "1",
    }
