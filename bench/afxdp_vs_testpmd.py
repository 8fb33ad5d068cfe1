"""The AF_XDP application against dpdk-testpmd's net_af_xdp macswap: the same live frames, interleaved runs, medians.

Run as root on a machine with two or more CPUs: ``python bench/afxdp_vs_testpmd.py [--runs 7]``. The sender runs on
CPU 0, the application on CPU 1, both at real-time priority. A missing peer is named and left out. The last line is a
JSON object with medians and ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bounded import Aim, run

from xdplab.deploy.native import build_tool, build_workload
from xdplab.hosts.local import LocalHost

SENDER_CPU, FORWARDER_CPU = "0", "1"
SENDER_PRIORITY, FORWARDER_PRIORITY = "5", "6"
START_S = 20.0
LEAST_RATIO = 1.05
TESTPMD = "dpdk-testpmd"
SWAP = """
#include <string.h>
const unsigned long xdplab_state_bytes = 0;
unsigned long xdplab_workload(void *state, unsigned char *data, unsigned int length)
{
    unsigned char mac[6];
    memcpy(mac, data, 6);
    memcpy(data, data + 6, 6);
    memcpy(data + 6, mac, 6);
    return length + (state != 0);
}
"""


@dataclass(frozen=True)
class Tools:
    """Binaries built for this machine."""

    afxdp_user: str
    xdpgen: str
    workload: str

    @classmethod
    def build(cls, cache: str) -> Tools:
        host = LocalHost()
        return cls(
            build_tool(host, "afxdp_user", cache),
            build_tool(host, "xdpgen", cache),
            build_workload(host, SWAP, cache),
        )


def forwarders(tools: Tools) -> dict[str, list[str]]:
    """Return the command line of each contender, ours first."""
    ours = [tools.afxdp_user, "--interface", "vd0", "--workload", tools.workload, "--cpus", FORWARDER_CPU]
    eal = [
        "-l",
        "0,1",
        "--main-lcore",
        SENDER_CPU,
        "--no-huge",
        "-m",
        "512",
        "--no-shconf",
        "--no-pci",
        "--no-telemetry",
    ]
    application = ["--", "--forward-mode=macswap", "--auto-start", "--total-num-mbufs=16384"]
    found = {
        "afxdp_user": [*ours, "--fifo", FORWARDER_PRIORITY],
        "afxdp_user busy": [*ours, "--fifo", FORWARDER_PRIORITY, "--busy"],
    }
    if shutil.which(TESTPMD):
        for name, extra in (("testpmd busy-poll", ""), ("testpmd", ",busy_budget=0")):
            found[name] = [
                "chrt",
                "-f",
                FORWARDER_PRIORITY,
                TESTPMD,
                *eal,
                "--vdev",
                f"net_af_xdp0,iface=vd0{extra}",
                *application,
            ]
    else:
        print(f"missing peer: {TESTPMD} (apt install dpdk-dev)")
    return found


class Pair:
    """Two namespaces of our own, joined by a veth pair with one queue."""

    def __init__(self) -> None:
        self.dut, self.tg = f"xba{os.getpid()}d", f"xba{os.getpid()}g"

    def __enter__(self) -> Pair:
        for name in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "add", name], check=True)
        link = ["ip", "link", "add", "vd0", "netns", self.dut, "type", "veth", "peer", "name", "vg0", "netns", self.tg]
        subprocess.run(link, check=True)
        for name, interface in ((self.dut, "vd0"), (self.tg, "vg0")):
            self.run(name, "sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
            self.run(name, "ethtool", "-K", interface, "gro", "on")
            self.run(name, "ip", "link", "set", "dev", interface, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def run(self, namespace: str, *argv: str) -> str:
        command = ["ip", "netns", "exec", namespace, *argv]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"{' '.join(command)} failed: {result.stdout[-600:]}{result.stderr[-600:]}")
        return result.stdout

    def program_attached(self) -> bool:
        return "xdp" in json.loads(self.run(self.dut, "ip", "-j", "link", "show", "dev", "vd0"))[0]


@contextlib.contextmanager
def forwarding(pair: Pair, argv: list[str]) -> Iterator[None]:
    """Keep one contender running; it ends when its standard input does."""
    with tempfile.TemporaryFile("w+") as log:
        command = ["ip", "netns", "exec", pair.dut, *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
        try:
            wait_until_attached(pair, process, log)
            yield
        finally:
            stop(process)


def wait_until_attached(pair: Pair, process: subprocess.Popen[str], log: IO[str]) -> None:
    deadline = time.monotonic() + START_S
    while not pair.program_attached():
        if process.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            sys.exit(f"{process.args!r} does not start: {log.read()[-600:]}")
        time.sleep(0.05)
    time.sleep(0.5)  # testpmd begins to forward shortly after it has attached


def stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
        process.communicate("\n" if TESTPMD in str(process.args) else "", timeout=10)
    process.kill()
    process.wait()


def forwarded_pps(pair: Pair, tools: Tools) -> float:
    """Offer live frames at the highest rate and return how many came back per second."""
    argv = [tools.xdpgen, "--interface", "vg0", "--engine", "live", "--queues", "1", "--cpus", SENDER_CPU]
    argv += ["--fifo", SENDER_PRIORITY, "--stamp", "none", "--bursts", "warmup:0.2,measure:1.0"]
    lines = [json.loads(line) for line in pair.run(pair.tg, *argv).splitlines()]
    measured = next(line for line in lines if line["type"] == "summary" and line["burst"] == "measure")
    return float(measured["rx_packets"] / measured["duration_s"])


def compare(runs: int) -> dict[str, list[float]]:
    """Return the rates of each contender, one per round; every round visits all contenders."""
    with tempfile.TemporaryDirectory() as cache:
        tools = Tools.build(cache)
        contenders = forwarders(tools)
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(runs):
            for name, argv in contenders.items():
                # A new pair each time: the queue of a closed socket stays busy for a moment, and testpmd does not wait.
                with Pair() as pair, forwarding(pair, argv):
                    rates[name].append(forwarded_pps(pair, tools))
            print(
                f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1] / 1e6:.3f}" for name in rates), flush=True
            )
    return rates


def report(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return medians, and our ratio to the best peer: the ratio of medians, and the median of the rounds' ratios."""
    ours, peers = ([name for name in rates if name.startswith(kind)] for kind in ("afxdp_user", "testpmd"))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    rounds = [dict(zip(rates, values, strict=True)) for values in zip(*rates.values(), strict=True)]
    return {
        "bench": "afxdp_vs_testpmd",
        "median_pps": {name: round(value) for name, value in medians.items()},
        "ratio": best_ratio(medians, ours, peers) if peers else None,
        "ratio_within_rounds": statistics.median(best_ratio(each, ours, peers) for each in rounds) if peers else None,
        "runs": len(rounds),
    }


def best_ratio(rates: dict[str, float], ours: list[str], peers: list[str]) -> float:
    return round(max(rates[name] for name in ours) / max(rates[name] for name in peers), 3)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=7, help="rounds: at least 7 for a trustworthy result (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("needs two CPUs: sender and application each have one")
    if not Path("/proc/self/ns/net").exists():
        sys.exit("needs network namespaces")
    found = report(compare(arguments.runs))
    print(json.dumps(found))
    ratio = found["ratio_within_rounds"]
    reason = "" if ratio is not None else f"{TESTPMD} is not installed"
    return [Aim("times the best testpmd, within rounds", ratio, at_least=LEAST_RATIO, reason=reason)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
