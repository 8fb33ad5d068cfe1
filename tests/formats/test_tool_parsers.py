"""Each parser reads the tools' output from a real machine, and names what it cannot read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from xdplab.counters import readings
from xdplab.errors import FormatError
from xdplab.formats import ethtool, perf, proc
from xdplab.studies.offload import bench as bpftool

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


SIDES = {
    "rx": {"packets": 2**64 - 1, "bytes": 11, "errors": 12, "dropped": 13},
    "tx": {"packets": 14, "bytes": 15, "errors": 16, "dropped": 17},
}
SOFTNET = "{:08x} {:08x} {:08x} " + "00000063 " * 9 + "{:08x} 00000063 00000063\n"
CHANNELS = (
    "Pre-set maximums:\nRX:\t\t11\nTX:\t\t12\nOther:\t\t13\nCombined:\t14\n"
    "Current hardware settings:\nRX:\t\t1\nTX:\t\t2\n"
)
COUNT = perf.PerfCount("cpu-clock", 1.5, None, "msec", 62.5, 3)
PERF = '{"cpu" : "3", "counter-value" : "1.5", "unit" : "msec", "event" : "cpu-clock [x]", "pcnt-running" : 62.5}\n'


@pytest.mark.parametrize(
    ("parser", "text", "record"),
    [
        (
            proc.parse_link,
            json.dumps([{}, {"ifname": "vd0", "stats64": SIDES, "xdp": {"attached": [
                {"mode": mode, "prog": {"id": 20 + mode}} for mode in (1, 2, 3)]}}]),
            proc.Link("vd0", proc.DirectionCounters(2**64 - 1, 11, 12, 13), proc.DirectionCounters(14, 15, 16, 17),
                      (proc.Attachment("native", 21), proc.Attachment("generic", 22), proc.Attachment("offload", 23))),
        ),
        (
            proc.parse_procstat,
            "cpu 9 9 9 9 9 9 9 9 9 9\ncpu2 1 2 3 4 5 6 7 8 9 10\ncpu7 11 12 13 14 15 16 17\nintr 5\n",
            (proc.CpuTicks(2, 1, 2, 3, 4, 5, 6, 7, 8), proc.CpuTicks(7, 11, 12, 13, 14, 15, 16, 17, 0)),
        ),
        (
            proc.parse_softnet,
            SOFTNET.format(1, 2, 3, 4) + SOFTNET.format(5, 6, 7, 8),
            (proc.SoftnetCpu(4, 1, 2, 3), proc.SoftnetCpu(8, 5, 6, 7)),
        ),
        (proc.parse_sadf, '{"sysstat": {"hosts": [{"statistics": [{"a": 1}, {"a": 2}]}]}}', ({"a": 1}, {"a": 2})),
        (perf.parse_perf_json, PERF, (COUNT,)),
        (
            perf.parse_perf_json,
            PERF.replace("1.5", "<not counted>").replace('"cpu" : "3", ', "") + PERF,
            (perf.PerfCount("cpu-clock", None, "<not counted>", "msec", 62.5), COUNT),
        ),
        (
            ethtool.parse_channels,
            f"Channel parameters for a:\n{CHANNELS}Other:\t\t3\nCombined:\tn/a\n",
            ethtool.MaxAndCurrent(ethtool.Channels(11, 12, 14), ethtool.Channels(1, 2, None)),
        ),
        (
            ethtool.parse_rings,
            f"Ring parameters for a:\n{CHANNELS.replace('11', '0').replace('TX:		2', 'TX:		0')}",
            ethtool.MaxAndCurrent(ethtool.Rings(None, 12), ethtool.Rings(1, None)),
        ),
        (ethtool.parse_speed, "Settings for a:\n\tSpeed: 2500Mb/s\n\tLink detected: yes\n", 2.5e9),
        (ethtool.parse_speed, "Settings for a:\n\tSpeed: 2500Mb/s\n\tLink detected: no (No cable)\n", None),
        (ethtool.parse_speed, "Settings for a:\n\tSpeed: \n\tDuplex:\n\tLink detected: yes\n", None),
        (ethtool.parse_pause, "Autonegotiate:\ton\nRX:\ton\nTX:\toff\n", {"autoneg": True, "rx": True, "tx": False}),
        (ethtool.parse_private_flags, "Private flags for a:\nx y: on\nz   : off\n", {"x y": True, "z": False}),
        (ethtool.rss_table, "RX flow hash\n    0:   1  2\n    2:   3  0\nRSS hash key:\n", [1, 2, 3, 0]),
        (ethtool.parse_driver, "driver: veth\nversion: 1.0\n", "veth"),
    ],
)  # fmt: skip
def test_each_field_is_of_its_own_place(parser: Callable[[str], object], text: str, record: object) -> None:
    """All values of a text differ, so that no field can be another's."""
    assert parser(text) == record


def test_what_real_tools_printed_is_read() -> None:
    counts = {count.event: count for count in perf.parse_perf_json(recorded("perf_all.jsonl"))}
    assert (counts["cycles"].value, counts["cycles"].reason) == (None, "<not supported>")
    assert (counts["cpu-clock"].value, counts["cpu-clock"].unit) == (603.867199, "msec")
    link = proc.parse_link(recorded("iplink_generic.json"))
    assert (link.interface, link.rx.packets, link.tx.packets, link.tx.bytes) == ("vd0", 1, 3, 270)
    assert ethtool.parse_rings(recorded("ethtool_g.txt")).current == ethtool.Rings(256, 256)
    assert ethtool.parse_channels(recorded("ethtool_l.txt")).current == ethtool.Channels(8, 8, None)
    first, _ = proc.parse_procstat(recorded("procstat.txt"))
    assert (first.cpu, first.user, first.idle, first.softirq) == (0, 489, 68341, 13)


def test_guest_and_stolen_time_is_no_work_of_this_machine() -> None:
    ticks = proc.CpuTicks(0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
    assert (ticks.busy, ticks.total) == (1_100_111, 11_111_111)


@pytest.mark.parametrize(
    ("version", "switches"), [("6.1.192", [33, 13]), ("6.12.107", [13, 185]), ("7.2.13", [23, 332])]
)
def test_perf_names_events_as_they_were_asked_for(version: str, switches: list[float]) -> None:
    """perf 6.12 prints `context-switches [software]` and `L1-dcache-loads [cpu]` if it does not sum CPUs."""
    by_cpu = perf.parse_perf_json(recorded(f"perf_by_cpu_{version}.jsonl"))
    assert [count.value for count in by_cpu if count.event == "context-switches"] == switches
    assert [count.cpu for count in by_cpu][:2] == [0, 1]
    assert all(" " not in count.event for count in by_cpu)


def test_perf_skips_comments_and_further_metrics_and_reads_nan() -> None:
    line = (
        '{"counter-value" : "<not counted>", "unit" : "", "event" : "x", "event-runtime" : 0, "pcnt-running" : 1e999, '
        '"metric-value" : -nan}'
    )
    (count,) = perf.parse_perf_json(f'# started on …\n\n{line}\n{{"metric-value" : 1.0, "metric-unit" : "GHz"}}\n')
    assert (count.value, count.reason, count.running_percent) == (None, "<not counted>", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (recorded("perf_all.jsonl")[:-30].decode(), "line 8: the last line has no end"),
        ('{"counter-value" : "1,5", "unit" : "", "event" : "x", "event-runtime" : 1}\n', "LC_ALL=C"),
        ('{"counter-value" : "1_5", "unit" : "", "event" : "x", "event-runtime" : 1}\n', "not a count"),
        ("event syntax error: 'nonsuch'\n", "line 1: not JSON"),
        ("# started on Sat\n", "no counter"),
    ],
)
def test_perf_refuses(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        perf.parse_perf_json(text)


@pytest.mark.parametrize(
    ("argv", "kind", "words"),
    [
        ("perf stat -a -j -e cycles -- cat", "system", "system wide"),
        ("env LC_ALL=C perf stat -aj -ecycles sleep 5", "system", "system wide"),
        ("perf stat --all-cpus --event=cycles sleep 5", "system", "system wide"),
        ("perf stat -j", "system", "system wide"),
        ("perf stat -C 0,2 sleep 5", "cpus", "a list of CPUs"),
        ("perf stat --cpu 0 sleep 5", "cpus", "a list of CPUs"),
        ("perf stat -e cycles sleep 5", "command", "sleep 5"),
        ("perf stat -j -- ls -a", "command", "ls -a"),
        ("perf stat -x, -e a -o -a sleep 5", "command", "sleep 5"),
        ("perf stat -a -p 17", "process", "a process id"),
        ("perf stat -a --pid=17", "process", "a process id"),
        ("perf stat -a --tid 17", "process", "a process id"),
    ],
)
def test_perf_target_is_known_from_its_arguments(argv: str, kind: str, words: str) -> None:
    target = perf.target_of_argv(argv.split())
    assert (target.kind, target.text) == (kind, words)


@pytest.mark.parametrize(
    ("events", "asked"),
    [
        ("cycles,cache-misses", ("cycles", "cache-misses")),
        ("{cycles,instructions},branches", ("cycles", "instructions", "branches")),
        ("{cycles,instructions}:u,{cycles,branch-misses}:S", ("cycles", "instructions", "cycles", "branch-misses")),
        ("cpu/event=0x3c,umask=0x0/,instructions", ("cpu/event=0x3c,umask=0x0/", "instructions")),
        ("{cpu/event=0x3c,umask=0x0/u,cycles}", ("cpu/event=0x3c,umask=0x0/u", "cycles")),
        ("power/energy-pkg/,r01c4,sched:sched_switch", ("power/energy-pkg/", "r01c4", "sched:sched_switch")),
    ],
)
def test_a_list_of_events_is_split_as_perf_does(events: str, asked: tuple[str, ...]) -> None:
    assert (
        perf.events_of_argv(("env", "LC_ALL=C", "perf", "stat", "-a", "-A", "-j", "-e", events, "--", "cat")) == asked
    )


@pytest.mark.parametrize(
    ("printed", "asked", "name"),
    [
        ("cpu_core/cycles/", ("cycles",), "cycles"),
        ("armv8_cortex_a55/cycles/", ("cycles",), "cycles"),
        ("cpu_atom/cycles/u", ("cycles:u",), "cycles:u"),
        ("cycles:S", ("cycles",), "cycles"),
        ("cpu_core/cycles/", ("cpu_core/cycles/", "cycles"), "cpu_core/cycles/"),
        ("power/energy-pkg/", ("power/energy-pkg/",), "power/energy-pkg/"),
        ("cpu/event=0x3c,umask=0x0/", ("cpu/event=0x3c,umask=0x0/",), "cpu/event=0x3c,umask=0x0/"),
        ("cpu_core/cycles/", ("instructions",), "cpu_core/cycles/"),
    ],
)
def test_a_count_has_the_name_that_was_asked_for(printed: str, asked: tuple[str, ...], name: str) -> None:
    count = perf.PerfCount(printed, 5.0, None, "", 100.0)
    assert [one.event for one in perf.named_as_asked([count], asked)] == [name]


def test_perf_target_is_known_from_its_header() -> None:
    assert perf.target_of_header(recorded("perf_all.txt")).kind == "system"
    for words, kind in (("'CPU(s) 0-3'", "cpus"), ("process id '7'", "process"), ("'sleep 5'", "command")):
        assert perf.target_of_header(f" Performance counter stats for {words}:\n\n 1 cycles\n").kind == kind


def test_perf_of_a_command_is_refused() -> None:
    perf.require_system_wide(perf.target_of_argv(["perf", "stat", "-a"]))
    with pytest.raises(FormatError, match="perf counted command `sleep 5`, not the machine"):
        perf.require_system_wide(perf.target_of_header("Performance counter stats for 'sleep 5':\n"))


@pytest.mark.parametrize(("version", "intervals"), [("12.6.1", 3), ("12.7.5", 4)])
def test_sar_samples(version: str, intervals: int) -> None:
    assert len(proc.parse_sadf(recorded(f"sadf_{version}.json"))) == intervals


def test_sar_without_samples_is_empty_and_cut_json_is_refused() -> None:
    assert proc.parse_sadf('{"sysstat": {"hosts": [{"statistics": []}]}}') == ()
    with pytest.raises(FormatError, match="not JSON"):
        proc.parse_sadf(recorded("sadf_12.6.1.json")[:-400])


@pytest.mark.parametrize(
    ("name", "attachments"),
    [
        ("iplink_none.json", ()),
        ("iplink_native.json", (proc.Attachment("native", 101),)),
        ("iplink_generic.json", (proc.Attachment("generic", 106),)),
    ],
)
def test_link_tells_what_is_attached(name: str, attachments: tuple[proc.Attachment, ...]) -> None:
    assert proc.parse_link(recorded(name)).attachments == attachments


@pytest.mark.parametrize(
    ("text", "says"),
    [("[]", "0 interfaces"), ("[{},{}]", "0 interfaces"), ('[{"ifname":"x"}]', "not a JSON object"), ("", "empty")],
)
def test_link_refuses(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        proc.parse_link(text)


def test_ethtool_statistics_follow_the_queue_count() -> None:
    pattern = "rx_queue_([0-9]{1,4})_xdp_packets"
    eight = ethtool.parse_statistics(recorded("ethtool_S_8.txt"))
    two = ethtool.parse_statistics(recorded("ethtool_S_2.txt"))
    assert ethtool.by_queue(eight, pattern) == dict.fromkeys(range(8), 0)
    assert ethtool.by_queue(two, pattern) == {0: 1, 1: 0}
    assert ethtool.by_queue(ethtool.parse_statistics(recorded("ethtool_S_virtio.txt")), pattern) == {}


@pytest.mark.parametrize(
    ("parser", "text", "says"),
    [
        (ethtool.parse_statistics, "NIC statistics:\n     a: 1\n     a: 2\n", "line 3: the same counter twice"),
        (ethtool.parse_statistics, "NIC statistics:\n", "no counter in it"),
        *((ethtool.parse_driver, text, "no line `driver: NAME`") for text in ("driver: \n", "version: 1.0\n")),
        (ethtool.parse_statistics, "NIC statistics:\n     a: -1\n", "line 2: not a count"),
        (ethtool.parse_statistics, "no stats available\n", "line 1: no title"),
        (ethtool.parse_channels, recorded("ethtool_l.txt")[:60].decode(), "a block is missing"),
        (ethtool.parse_channels, recorded("ethtool_l.txt")[:-10].decode(), "line 11: the last line has no end"),
        (ethtool.parse_channels, recorded("ethtool_l.txt").decode() + "Combined\n", "line 12: no setting"),
    ],
)
def test_ethtool_refuses(parser: object, text: str, says: str) -> None:
    assert callable(parser)
    with pytest.raises(FormatError, match=says):
        parser(text)


def test_softnet_by_cpu_and_by_kernel() -> None:
    first, second = proc.parse_softnet(recorded("softnet.txt"))
    assert (first.cpu, second.cpu) == (0, 1)
    old = "".join(" ".join(line.split()[:11]) + "\n" for line in recorded("softnet.txt").decode().splitlines())
    assert [row.cpu for row in proc.parse_softnet(old)] == [0, 1]
    offline = recorded("softnet.txt").splitlines(keepends=True)[1]
    assert [row.cpu for row in proc.parse_softnet(offline)] == [1]


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (" 00000001", "no end"),
        (" 0000\n", "not 8 hex digits"),
        ("\n", "14 columns, 15 before"),
        (" 0000000g\n", "not a count"),
    ],
)
def test_softnet_refuses_a_line_that_was_cut(last: str, says: str) -> None:
    whole = recorded("softnet.txt").decode()
    with pytest.raises(FormatError, match=f"line 2: .*({says})"):
        proc.parse_softnet(whole[: whole.rindex(" ")] + last)


def test_bpftool_programs_and_attachments() -> None:
    (program,) = bpftool.parse_programs(recorded("bpftool_programs.json"))
    assert program == bpftool.LoadedProgram(101, "xdp", None)
    assert bpftool.parse_net(recorded("bpftool_net.json")) == (("native", 101),)
    with pytest.raises(FormatError, match="get by id"):
        bpftool.parse_programs('{"error":"get by id (7): No such file or directory"}')


def test_bpftool_tells_the_card_of_a_program_and_what_runs_beside_it() -> None:
    """Output of bpftool 7.1 for netdevsim in a guest of 6.1."""
    programs = bpftool.parse_programs(recorded("bpftool_program_offloaded.json"))
    assert [(p.program_id, p.device) for p in programs] == [(5, "eth1")]
    assert bpftool.parse_net(recorded("bpftool_net_multi.json")) == (("native", 116), ("offload", 110))


TOOLS = sorted((RECORDED / "tools").iterdir())
"""Output of each distribution's tools for one veth with two queues and a program named reflect."""


@pytest.mark.parametrize("folder", TOOLS, ids=lambda folder: folder.name)
def test_each_distributions_tools_tell_the_same(folder: Path) -> None:
    def told(name: str) -> bytes:
        return (folder / name).read_bytes()

    links = {mode: proc.parse_link(told(f"iplink_{mode}.json")) for mode in ("native", "generic", "none")}
    assert {link.interface for link in links.values()} == {"vd0"}
    modes = {mode: [attached.mode for attached in link.attachments] for mode, link in links.items()}
    assert modes == {"native": ["native"], "generic": ["generic"], "none": []}
    (attached,) = links["native"].attachments
    (program,) = bpftool.parse_programs(told("bpftool_programs.json"))
    assert program.type == "xdp"
    assert bpftool.parse_net(told("bpftool_net.json")) == (("native", program.program_id),)
    assert attached.program_id == program.program_id
    statistics = ethtool.parse_statistics(told("ethtool_S.txt"))
    assert {"rx_queue_0_xdp_packets", "rx_queue_1_xdp_packets"} <= statistics.keys()
    assert ethtool.parse_channels(told("ethtool_l.txt")).current.rx == 2


def test_a_clock_is_additions_per_ns() -> None:
    two = b'{"cpu":0,"adds":65536,"ns":21173}\n{"cpu":1,"adds":65536,"ns":32768}\n'
    assert readings.parse_cpuclock(two) == pytest.approx({0: 3.0953, 1: 2.0}, abs=1e-4)
    for damaged in (two[:-4], b'{"cpu":0,"adds":65536,"ns":0}\n', two + two, b"clock\n", b""):
        with pytest.raises(FormatError, match="cpuclock"):
            readings.parse_cpuclock(damaged)
