"""dpdk-testpmd as a generator: takes bursts from standard input and prints the lines that every generator prints.

Runs on the TG as a script, standard library only. testpmd's mode ``flowgen`` sends one frame size as fast as possible
and receives what comes back; then mode ``rxonly`` empties the ring. The frames carry no number and no time stamp, so
there is no latency, and each frame that arrives counts. testpmd ends within a second of standard input's end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

INTERVAL_S = 0.1
ANSWER_S = 30.0
END_S = 1.0
SOURCE, DESTINATION = "00:01:02:03:04:00", "00:01:02:03:04:01"
"""The MACs of flowgen's frames: no option changes them, so the DUT's port has to be promiscuous."""

_UNMARKED = "testpmd's frames carry no number"
MISSING = {
    "duplicates": _UNMARKED,
    "reordered": _UNMARKED,
    "foreign_packets": "testpmd counts every frame that arrives",
    "bad_run_id": _UNMARKED,
    "stale_packets": _UNMARKED,
    "damaged_packets": "testpmd does not check payloads",
    "altered_packets": "testpmd does not check headers",
    "bad_stamps": "testpmd does not stamp frames",
    "rate_requested_pps": "the load is max",
    "tx_late_packets": "at maximum load no frame is due",
    "tx_late_max_ns": "at maximum load no frame is due",
    "tx_pause_max_ns": "testpmd does not record its pauses",
    "tx_paused_ns": "testpmd does not record its pauses",
    "tx_busy_cores": "DPDK polls: its cores are busy whether they send or not",
    "probes_sent": "testpmd does not stamp frames",
    "probes_lost": "testpmd does not stamp frames",
    "rx_unstamped": "testpmd does not stamp frames",
    "tx_stamped": "testpmd does not stamp frames",
    "tx_unstamped": "testpmd does not stamp frames",
    "unmatched_stamps": "testpmd does not stamp frames",
    "tx_by_size": "testpmd sends frames of one size",
    "tx_bytes": "testpmd sends frames of one size",
    "tx_restored": "no frame that comes back is sent again",
    "tx_unrestored_packets": "no frame that comes back is sent again",
    "stamp_seed": "testpmd does not stamp frames",
    "rx_bytes": _UNMARKED,
    "foreign_bytes": _UNMARKED,
    "rx_by_size": "testpmd sends frames of one size",
    "rx_flows": _UNMARKED,
    "rx_by_rank": _UNMARKED,
}
_PORT = (r"RX-packets:\s*(\d+)\s+RX-missed:\s*(\d+)", r"TX-packets:\s*(\d+)\s+TX-errors:\s*(\d+)")
_FORWARDED = (r"RX-packets:\s*(\d+)", r"TX-packets:\s*(\d+)")
_PORT_ENDS, _DONE = re.compile(r"^  #{70,}$"), re.compile(r"^Done\.$")
_STOPS = re.compile(r"^Telling cores to stop")
_WHY = re.compile("error:|cause|cannot|fail|invalid|no free|unavailable", re.IGNORECASE)


class Gone(Exception):
    """Standard input has ended, or testpmd has."""


class Testpmd:
    """A running dpdk-testpmd. Its output lines and the commands to this tool are put into two queues."""

    def __init__(self, argv: Sequence[str]) -> None:
        # Without stdbuf its output would come in blocks of 4 KiB.
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.printed: queue.Queue[str | None] = queue.Queue()
        self.asked: queue.Queue[str | None] = queue.Queue()
        self.log: list[str] = []
        assert self.process.stdout is not None
        for stream, into in ((self.process.stdout, self.printed), (sys.stdin, self.asked)):
            threading.Thread(target=_read, args=(stream, into, self._hang_up), daemon=True).start()
        self.over = False

    def _hang_up(self, stream: IO[str]) -> None:
        """End testpmd when the controller is gone, whatever is going on."""
        if stream is sys.stdin:
            self.over = True
            self.end()

    def end(self) -> None:
        """Ask testpmd to end, and make it."""
        with contextlib.suppress(Gone, ValueError):
            self.tell("stop")
            self.tell("quit")
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def tell(self, command: str) -> None:
        """Give testpmd a command. Raises Gone if it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Gone from None

    def until(self, pattern: re.Pattern[str]) -> str:
        """Return what it prints up to a line that matches. Raises Gone if it ends before."""
        lines: list[str] = []
        while True:
            line = self.printed.get(timeout=ANSWER_S)
            if line is None:
                raise Gone
            lines.append(line)
            self.log = [*self.log[-200:], line]
            if pattern.search(line.strip("\n")):
                return "".join(lines)

    def port(self, number: int) -> dict[str, int]:
        """Return the port's own counts: registers of a card, or the counts of a software driver."""
        self.tell(f"show port stats {number}")
        shown = self.until(_PORT_ENDS)
        (received, missed), (sent, errors) = (_numbers(pattern, shown) for pattern in _PORT)
        return {"rx": received, "rx_missed": missed, "tx": sent, "tx_errors": errors}

    def start(self, mode: str) -> None:
        self.tell(f"set fwd {mode}")
        self.tell("start")
        self.until(re.compile(f"^{mode} packet forwarding - "))

    def stop(self) -> tuple[int, int, float]:
        """Return the frames that were received and sent since `start`, and the time when it stopped."""
        self.tell("stop")
        self.until(_STOPS)
        stopped = time.monotonic()
        statistics = self.until(_DONE).partition("Accumulated forward statistics")[2]
        (received,), (sent,) = (_numbers(pattern, statistics) for pattern in _FORWARDED)
        return received, sent, stopped

    def empty_ring(self, seconds: float) -> int:
        """Receive only, for ``seconds``; return the number of frames."""
        self.start("rxonly")
        time.sleep(seconds)
        return self.stop()[0]


def _read(stream: IO[str], into: queue.Queue[str | None], ended: Any) -> None:
    for line in stream:
        into.put(line)
    into.put(None)
    ended(stream)


def _numbers(pattern: str, text: str) -> list[int]:
    match = re.search(pattern, text)
    if match is None:
        raise Gone
    return [int(number) for number in match.groups()]


def burst(testpmd: Testpmd, given: argparse.Namespace, name: str, seconds: float) -> None:
    """Send for ``seconds``, wait for the last frames, and print the burst's lines."""
    testpmd.empty_ring(0.0)  # strays that came between the bursts
    before = testpmd.port(given.port)
    testpmd.start("flowgen")
    last, began = before, time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, INTERVAL_S))
        last = interval(testpmd, given, name, last, time.monotonic() - began)
    received, sent, stopped = testpmd.stop()
    took = stopped - began
    interval(testpmd, given, name, last, took)
    drained = testpmd.empty_ring(given.settle)
    after = testpmd.port(given.port)
    summary(name, took, sent, (received, drained), {key: after[key] - before[key] for key in after})


def interval(
    testpmd: Testpmd, given: argparse.Namespace, name: str, last: dict[str, int], until_s: float
) -> dict[str, int]:
    """Print what the port has counted since ``last``, and return its counts."""
    now = testpmd.port(given.port)
    gained = {key: max(0, now[key] - last[key]) for key in ("tx", "rx")}
    say(type="interval", burst=name, t_s=until_s, tx_packets=gained["tx"], rx_packets=gained["rx"])
    return now


def summary(name: str, took: float, sent: int, came: tuple[int, int], port: dict[str, int]) -> None:
    """``came``: the frames that were received until the window's end, and those from the ring after it."""
    received, drained = came
    say(
        type="summary", burst=name, duration_s=took, tx_packets=sent, tx_errors=port["tx_errors"], tx_by_queue=[sent],
        rx_packets=received + drained, rx_by_queue=[received + drained], rx_missing=None,
        lost_packets=max(0, sent - received - drained), rx_window_packets=received, rx_window_s=took, limited=None,
        interrupted=False, device_tx_packets=port["tx"], device_rx_packets=port["rx"],
        device_rx_missed=port["rx_missed"], missing={**MISSING, "latency": MISSING["bad_stamps"]},
        **dict.fromkeys(MISSING),
    )  # fmt: skip
    say(
        type="histogram", burst=name, of="from_sent", unit="ns", scheme="log-linear", sub_bits=7, count=0, min=None,
        max=None, sum=0, buckets=[],
    )  # fmt: skip


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def ready(given: argparse.Namespace, eal: Sequence[str]) -> None:
    same = ("frame_bytes", "flows", "run_id", "src_ip", "dst_ip", "src_ip_stride", "dst_ip_stride", "src_port")
    say(
        type="ready", engine="testpmd", interface=given.port, queues=given.queues, queues_reached=given.queues,
        cpus=given.cpus, sched_policy="SCHED_OTHER (DPDK polls on cores of its own)", rate_requested_pps=None,
        **{name: getattr(given, name) for name in same}, dst_port=given.dst_port, src_mac=SOURCE, dst_mac=DESTINATION,
        stamp_every=0, settle_s=given.settle, batch=given.batch, receives=True, eal=list(eal),
    )  # fmt: skip


def command(given: argparse.Namespace, eal: Sequence[str]) -> list[str]:
    """Return testpmd's command: one CPU waits for commands, the others send and receive."""
    lcores = ",".join(map(str, given.cpus))
    working = min(len(given.cpus) - 1, given.queues)
    return [
        *(given.testpmd, "-l", lcores, "--main-lcore", str(given.cpus[0]), "--no-telemetry", *eal, "--", "-i"),
        *(f"--portlist={given.port}", f"--rxq={given.queues}", f"--txq={given.queues}", f"--nb-cores={working}"),
        *("--forward-mode=flowgen", f"--flowgen-flows={given.flows}", f"--burst={given.batch}"),
        *("--no-flush-rx", "--total-num-mbufs=32768"),
    ]


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the arguments for DPDK's EAL after ``--``."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--testpmd", required=True)
    parser.add_argument("--cpus", type=lambda text: [int(cpu) for cpu in text.split(",")], required=True)
    for name in ("port", "queues", "frame-bytes", "flows", "src-port", "dst-port", "port-stride", "batch"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("run-id", "src-mac", "dst-mac", "src-ip", "dst-ip", "src-ip-stride", "dst-ip-stride", "load", "stamp"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--settle", type=float, default=0.05)
    parser.set_defaults(batch=32)
    return parser.parse_args(argv[:at]), list(argv[at + 1 :])


def main(argv: Sequence[str]) -> int:
    given, eal = parse(argv)
    testpmd = Testpmd(command(given, eal))
    done = 0
    try:
        testpmd.tell(f"set txpkts {given.frame_bytes}")
        testpmd.port(given.port)  # it answers, so it is up
        ready(given, eal)
        while (line := testpmd.asked.get()) is not None:
            _, name, seconds = line.split()
            burst(testpmd, given, name, float(seconds))
            done += 1
    except (Gone, queue.Empty):
        if testpmd.over:
            return 1
        with contextlib.suppress(queue.Empty):
            while (line := testpmd.printed.get(timeout=END_S)) is not None:
                testpmd.log.append(line)
        complaints = [line.strip() for line in testpmd.log if _WHY.search(line)]
        reason = "; ".join(complaints[:3]) or " ".join(testpmd.log[-1:]).strip() or "it printed nothing"
        say(type="error", step="testpmd", error=None, message=reason)
        testpmd.end()
        return 1
    testpmd.end()
    say(type="detached", bursts=done)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
