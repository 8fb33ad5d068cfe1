"""The MoonGen scripts under LuaJIT, against a fake of MoonGen's API whose wire loses, duplicates and swaps frames."""

import dataclasses
import json
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import pytest

from xdplab.formats.generator import Burst, Output, Summary, parse_output
from xdplab.resources import shipped

DOUBLE = Path(__file__).parent / "double"
SCRIPTS = shipped("moongen_lua")

pytestmark = pytest.mark.skipif(shutil.which("luajit") is None, reason="needs luajit to run the Lua scripts")


@dataclass
class Bench:
    """A fake of MoonGen's binary, and the frames that its wire has seen."""

    folder: Path

    @property
    def binary(self) -> Path:
        path = self.folder / "MoonGen"
        path.write_text(f'#!/bin/sh\nexec luajit {DOUBLE}/MoonGen.lua {DOUBLE} "$@"\n')
        path.chmod(0o755)
        return path

    def run(
        self, *words: str, commands: str = "burst measure 0.2\n", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Send the commands, and close the session after the reports of their bursts, as the program does."""
        with self.start(*words, **settings) as process:
            with suppress(BrokenPipeError):  # it has ended already, and says why
                process.stdin.write(commands)
                process.stdin.flush()
            lines, told = [], 0
            while told < commands.count("burst ") and (line := process.stdout.readline()):
                lines.append(line)
                told += '"type":"summary"' in line
            with suppress(BrokenPipeError):
                process.stdin.close()
            rest, error = process.stdout.read(), process.stderr.read()
            process.wait(timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, "".join(lines) + rest, error)

    def start(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        environment = {f"XDPLAB_{key.upper()}": value for key, value in settings.items()}
        return subprocess.Popen(
            ["sh", SCRIPTS / "moongen.sh", self.binary, SCRIPTS / "traffic.lua", "--dpdk-config=x", *words],
            env=os.environ | environment | {"XDPLAB_RECORD": str(self.folder / "frames")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def output(self, *words: str, commands: str = "burst measure 0.2\n", **settings: str) -> Output:
        done = self.run(*words, commands=commands, **settings)
        assert done.returncode == 0, done.stderr
        return parse_output(done.stdout)

    def burst(self, *words: str, **settings: str) -> Burst:
        (burst,) = self.output("--load", "20000", *words, **settings).bursts
        return burst

    def frames(self) -> list[bytes]:
        data, found = (self.folder / "frames").read_bytes(), []
        while data:
            (size,) = struct.unpack_from(">H", data)
            found.append(data[2 : 2 + size])
            data = data[2 + size :]
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(">10H", header))
    return (total & 0xFFFF) + (total >> 16)


def test_a_frame_is_what_xdpgen_sends(bench: Bench) -> None:
    bench.burst(
        "--frame-bytes", "128", "--flows", "3", "--run-id", "beef", "--dst-ip-stride", "0.0.0.255",
        "--port-stride", "2", "--src-mac", "02:00:00:00:00:0a", "--dst-mac", "02:00:00:00:00:0b", "--stamp", "4",
        "--stamp-seed", "7",
    )  # fmt: skip
    frames = bench.frames()
    assert {len(frame) for frame in frames} == {124}
    for number, frame in enumerate(frames):
        flow = number % 3
        assert frame[:14].hex() == "02000000000b02000000000a0800"
        assert frame[14:16] == b"\x45\x00"
        assert struct.unpack_from(">H", frame, 16) == (110,)
        assert checksum(frame[14:34]) == 0xFFFF
        assert frame[26:30] == bytes([198, 18, 0, 1])
        assert struct.unpack_from(">I", frame, 30) == (0xC6130001 + 255 * flow,)
        assert struct.unpack_from(">HHHH", frame, 34) == (1024 + 2 * flow, 50220, 90, 0)
        assert struct.unpack_from(">I", frame, 42) == (0x78646C62 ^ 0xBEEF,)
        (field,) = struct.unpack_from(">H", frame, 46)
        assert field & 0x7FFF == flow
        assert bool(field & 0x8000) == any(frame[48:56])
        assert struct.unpack_from(">I", frame, 56) == (number,)


@pytest.mark.parametrize("flows", [64, 63, 12])
def test_stamps_are_spread_over_flows(bench: Bench, flows: int) -> None:
    summary = bench.burst("--flows", str(flows), "--stamp", "16", "--stamp-seed", "7", "--load", "40000").summary
    stamped = [number for number, frame in enumerate(bench.frames()) if frame[46] & 0x80]
    counts = [sum(number % flows == flow for number in stamped) for flow in range(flows)]
    mean = len(stamped) / flows
    assert len(stamped) == pytest.approx(summary.tx_packets / 16, rel=0.1)
    assert sum((count - mean) ** 2 / mean for count in counts) < flows - 1 + 5 * sqrt(2 * (flows - 1))
    assert summary.stamp_seed == 7


def test_every_frame_that_was_sent_comes_back(bench: Bench) -> None:
    burst = bench.burst()
    s = burst.summary
    assert (s.tx_packets, s.rx_packets, s.lost_packets, s.duplicates, s.foreign_packets) == (4000, 4000, 0, 0, 0)
    assert sum(i.tx_packets for i in burst.intervals) == s.tx_packets
    assert sum(i.rx_packets or 0 for i in burst.intervals) == s.rx_packets
    assert [i.t_s for i in burst.intervals] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    assert burst.histogram.count == 4000
    assert 5e3 <= (burst.histogram.min or 0) <= (burst.histogram.max or 0) < 5e5


def test_a_paced_burst_tells_latency_from_the_due_time_and_its_lateness(bench: Bench) -> None:
    burst = bench.burst()
    due, late = burst.from_due, burst.lateness
    assert burst.latency is due
    assert (due.count, late.count) == (burst.histogram.count, burst.summary.tx_packets)
    assert due.sum == pytest.approx(
        burst.histogram.sum + late.sum, abs=5e3 * due.count
    )  # these calls move the fake's clock
    assert (late.min or 0) < 2e5
    assert (burst.summary.tx_late_max_ns, burst.summary.tx_late_packets) == (late.max, 0)


def test_lateness_includes_the_wait_for_the_queues_before(bench: Bench) -> None:
    """One task serves eight queues in turn; sending a batch takes time."""
    (burst,) = bench.output("--queues", "8", "--load", "400000").bursts
    due, late = burst.from_due, burst.lateness
    assert due.count == late.count
    assert abs(due.sum - burst.histogram.sum - late.sum) < 3e3 * due.count  # a look at the fake's clock takes 1 us


def test_what_came_until_the_window_ended_is_told(bench: Bench) -> None:
    s = bench.burst().summary
    assert s.rx_window_s == pytest.approx(0.2, abs=0.001)
    assert 0 <= s.rx_packets - s.rx_window_packets <= 2


def test_at_max_load_nothing_is_due(bench: Bench) -> None:
    (burst,) = bench.output("--load", "max", commands="burst mrr 0.02\n").bursts
    assert (burst.from_due, burst.lateness, burst.summary.tx_late_packets) == (None, None, None)


def test_numbers_are_made_whole_beyond_32_bits_and_order_is_a_flows_own() -> None:
    """The receiver gets sequence numbers as in a burst of 2**33 frames."""
    done = subprocess.run(["luajit", "-e", RECEIVED], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["40", "0", "0", "0", "1", "1"], done.stderr


RECEIVED = f"""
package.path = '{SCRIPTS}/?.lua;{DOUBLE}/?.lua;' .. package.path
local receiver = require 'xdplab.receiver'
local plan = {{ streams = 1, first = {{ 0 }}, longest_ns = 1e9, begin = 0 }}
local shared = receiver.shared(plan)
local one = setmetatable({{ plan = plan, shared = shared }}, receiver)
local ours = 0
local function take(flow, number)
    if one:record(0, flow, one:whole_number(0, number % 2 ^ 32)) then ours = ours + 1 end
end
for i = 0, 39 do take(i % 2, i * 2 ^ 29) end
print(ours, shared.stale, shared.duplicates, shared.reordered)
take(0, 38 * 2 ^ 29 - 2)    -- behind 38 of its own flow
take(1, 39 * 2 ^ 29)        -- a second time
print(shared.reordered, shared.duplicates)
"""


@pytest.mark.parametrize(
    ("fault", "column", "share"),
    [
        ("lose=10", "lost_packets", 10),
        ("double=8", "duplicates", 8),
        ("swap=5", "reordered", 5),
        ("foreign=20", "foreign_packets", 20),
        ("other_run=20", "bad_run_id", 20),
    ],
)
def test_a_fault_is_counted_as_what_it_is(bench: Bench, fault: str, column: str, share: int) -> None:
    s = bench.burst("--load", "500000", "--flows", "1", faults=fault).summary
    expected = dict.fromkeys(("lost_packets", "duplicates", "reordered", "foreign_packets", "bad_run_id"), 0)
    expected[column] = s.tx_packets // share
    found = {name: getattr(s, name) for name in expected}
    if column == "reordered":  # a frame that is alone on the wire cannot be swapped
        assert 0 < found.pop("reordered") <= expected.pop("reordered")
    assert found == expected


@pytest.mark.parametrize("cores", ["2", "4"])
@pytest.mark.parametrize("queues", [1, 3])
def test_one_task_and_two_count_the_same(bench: Bench, cores: str, queues: int) -> None:
    output = bench.output("--load", "30000", "--queues", str(queues), "--flows", "7", cores=cores)
    assert output.ready.settings["tasks"] == (1 if cores == "2" else 2)
    s = output.bursts[0].summary
    assert s.tx_by_queue == (6000 // queues,) * queues
    assert s.rx_by_queue == s.tx_by_queue
    assert (s.lost_packets, s.reordered) == (0, 0)
    flows = {struct.unpack_from(">H", frame, 46)[0] & 0x7FFF for frame in bench.frames()}
    assert flows == set(range(7))


def test_bursts_go_on_where_the_one_before_ended(bench: Bench) -> None:
    output = bench.output("--load", "10000", commands="burst warmup 0.1\nburst rate 0.2\n")
    assert [(b.name, b.summary.tx_packets, b.summary.rx_packets) for b in output.bursts] == [
        ("warmup", 1000, 1000),
        ("rate", 2000, 2000),
    ]
    assert struct.unpack_from(">I", bench.frames()[-1], 56) == (2999,)


def test_at_max_load_it_sends_without_a_break(bench: Bench) -> None:
    (burst,) = bench.output("--load", "max", commands="burst mrr 0.02\n").bursts
    assert burst.summary.rate_requested_pps is None
    assert burst.summary.tx_packets > 10_000


def test_what_a_generator_cannot_keep_up_with_is_said(bench: Bench) -> None:
    (burst,) = bench.output("--load", "5000000", commands="burst measure 0.02\n").bursts
    assert "of the requested rate" in (burst.summary.limited or "")


def test_frames_are_bounded(bench: Bench) -> None:
    assert bench.burst("--max-frames", "99").summary.tx_packets == 99
    assert bench.burst("--max-frames", "99").summary.limited is None


def test_nothing_is_stamped_where_none_is_asked(bench: Bench) -> None:
    assert bench.burst("--stamp", "none").histogram.count == 0


def test_a_nics_own_stamps_are_another_engine(bench: Bench) -> None:
    words = ("--load", "20000", "--stamps", "hardware", "--queues", "2")
    output = bench.output(*words, cores="4", driver="net_ixgbe")
    assert output.ready.engine == "moongen-hw"
    histogram, s = output.bursts[0].histogram, output.bursts[0].summary
    assert 0 < histogram.count < 4000
    assert (histogram.min, len(s.tx_by_queue)) == (1001, 2)
    assert (s.probes_lost, histogram.count) == (s.probes_sent // 10, s.probes_sent - s.probes_sent // 10)
    assert s.tx_packets == len(bench.frames())  # the probes are counted apart


def test_what_the_port_did_not_send_and_could_not_take_is_told(bench: Bench) -> None:
    """With the link down, MoonGen reports 5000 sent and 0 errors; its port reports that it sent none."""
    s = bench.burst(faults="no_link=1").summary
    assert (s.tx_packets, s.tx_errors, s.device_tx_packets, s.rx_packets) == (4000, 0, 0, 0)
    s = bench.burst(faults="overflow=4").summary
    assert (s.device_tx_packets, s.device_rx_packets, s.device_rx_missed, s.lost_packets) == (4000, 3000, 1000, 1000)


@pytest.mark.parametrize("load", ["max", "20000"])
@pytest.mark.parametrize("stamps", ["software", "hardware"])
def test_every_field_is_filled_or_null_with_a_reason(bench: Bench, load: str, stamps: str) -> None:
    done = bench.run("--load", load, "--stamps", stamps, commands="burst x 0.02\n", cores="4", driver="net_ixgbe")
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if '"summary"' in line]
    fields = {field.name for field in dataclasses.fields(Summary)} - {"burst", "missing"}
    without = {"limited"}  # a reason itself
    assert fields - without <= line.keys()
    assert {name for name in fields - without if line[name] is None} == line["missing"].keys()


def test_it_ends_soon_after_the_pipes_end(bench: Bench) -> None:
    """A killed controller closes only this pipe: MoonGen continued to send for up to a minute."""
    with bench.start("--load", "20000") as process:
        process.stdin.write("burst rate 1000\n")
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    failure = parse_output(output).failure
    assert "ended early" in failure.message  # the double would take minutes for 1000 s


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (["--stamps", "hardware"], {"cores": "3"}, "the task `probes` died"),
        (["--frame-bytes", "63"], {}, "--frame-bytes must be 64 to 1518"),
        (["--load", "much"], {}, "--load must be `max` or frames per second"),
        (["--src-mac", "aa"], {}, "not a MAC address: aa"),
        (["--dst-ip", "1.2.3"], {}, "not an IPv4 address: 1.2.3"),
        (["--port", "3"], {}, "DPDK has 1 ports, and no port 3"),
        (["--queues", "17"], {}, "the port has 16 queues, but 17 were requested"),
    ],
)
def test_a_failure_is_a_line_and_an_exit_code(
    bench: Bench, words: list[str], settings: dict[str, str], message: str
) -> None:
    done = bench.run(*words, **settings)
    assert done.returncode == 1
    failure = parse_output(done.stdout).failure
    assert message in failure.message


def test_what_dpdk_says_is_one_line_without_colours(bench: Bench) -> None:
    log = (
        r"\033[1;37m[INFO]  Initializing DPDK.\033[0m\nEAL: Detected 2 lcore(s)\n"
        r"EAL: No free hugepages reported in hugepages-2048kB\nPANIC in rte_eal_init():\n"
        r"Cannot get hugepage information.\n"
        r"7: [MoonGen(_start+0x2a)]\nAborted\n"
    )
    bench.binary.write_text(f"#!/bin/sh\nprintf '{log}'\nexit 134\n")
    words = ["sh", SCRIPTS / "moongen.sh", bench.folder / "MoonGen", "x"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (134, "")
    assert done.stderr.splitlines() == [
        "EAL: No free hugepages reported in hugepages-2048kB PANIC in rte_eal_init(): Cannot get hugepage information. "
    ]


def test_a_command_it_does_not_know_is_refused(bench: Bench) -> None:
    done = bench.run(commands="burst measure 0.1\nbrust x 1\n")
    output = parse_output(done.stdout)
    assert done.returncode == 1
    assert output.failure.message == "not a command: brust x 1"


def test_what_dies_before_it_could_write_leaves_its_log(bench: Bench) -> None:
    done = bench.run("--no-such-option", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unknown option '--no-such-option'" in done.stderr
    assert "\033" not in done.stderr


@pytest.mark.parametrize("value", ["0/0", "1/0", "-1/0"])
def test_what_is_no_number_is_never_written(value: str) -> None:
    script = f"package.path = '{SCRIPTS}/?.lua;' .. package.path; require('xdplab.json').line {{ {{ 'x', {value} }} }}"
    done = subprocess.run(["luajit", "-e", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a result is not a finite number" in done.stderr
