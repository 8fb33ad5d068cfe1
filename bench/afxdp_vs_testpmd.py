"""The AF_XDP application against dpdk-testpmd's net_af_xdp macswap and a forwarder written straight on libxdp.

Run as root on a machine with two CPUs or more. The sender has CPU 0, the application CPU 1, all at real-time priority:
the same frames, runs in turns, medians of the ratios within rounds. One queue gets live frames at the highest rate. A
CPU's live frames reach one queue only, so 2, 4 and 8 queues get frames of AF_XDP sockets, which are fewer: where all
come back, the ratio is 1 and says that the sender is the limit. Our application also polls busily (`--busy`), which
must not be slower than sleeping. A peer that is missing is named and left out.
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

from bounded import Aim, run, show
from xdpgen.lab import VethPair, build_c
from xdpgen.peers import af_xdp_devices

from xdplab.deploy.native import build_tool, build_workload
from xdplab.hosts.local import LocalHost

SENDER_CPU, FORWARDER_CPU = "0", "1"
SENDER_PRIORITY, FORWARDER_PRIORITY = "5", "6"
START_S = 20.0
LEAST_RATIO, LEAST_BUSY = 1.05, 1.0
TESTPMD, L2FWD = "dpdk-testpmd", "l2fwd on libxdp"
QUEUES = (1, 2, 4, 8)
OURS, BUSY = "afxdp_user", "afxdp_user busy"
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
    l2fwd: str

    @classmethod
    def build(cls, cache: str) -> Tools:
        host = LocalHost()
        return cls(
            build_tool(host, "afxdp_user", cache),
            build_tool(host, "xdpgen", cache),
            build_workload(host, SWAP, cache),
            build_c(Path(cache), "l2fwd", "-lxdp", "-lpthread"),
        )


def forwarders(tools: Tools, queues: int) -> dict[str, list[str]]:
    """Return each contender's command line; ours first."""
    ours = [tools.afxdp_user, "--interface", "vd0", "--workload", tools.workload, "--queues", str(queues)]
    ours += ["--cpus", ",".join([FORWARDER_CPU] * queues), "--fifo", FORWARDER_PRIORITY]
    found = {OURS: ours, BUSY: [*ours, "--busy"]}
    found[L2FWD] = [tools.l2fwd, "vd0", str(queues), FORWARDER_CPU, FORWARDER_PRIORITY]
    if shutil.which(TESTPMD):
        eal = ["-l", "0,1", "--main-lcore", SENDER_CPU, "--no-huge", "-m", "512"]
        eal += ["--no-shconf", "--no-pci", "--no-telemetry"]
        application = ["--", "--forward-mode=macswap", "--auto-start", "--total-num-mbufs=65536"]
        application += ["--port-topology=loop"]
        for name, extra in (("testpmd busy-poll", ""), ("testpmd", ",busy_budget=0")):
            devices = af_xdp_devices("vd0", queues, extra)
            found[name] = ["chrt", "-f", FORWARDER_PRIORITY, TESTPMD, *eal, *devices, *application]
    return found


def program_attached(pair: VethPair) -> bool:
    return "xdp" in json.loads(pair.run(pair.dut, "ip", "-j", "link", "show", "dev", "vd0"))[0]


@contextlib.contextmanager
def forwarding(pair: VethPair, argv: list[str]) -> Iterator[None]:
    """Hold one contender running; it ends when its standard input does."""
    with tempfile.TemporaryFile("w+") as log:
        command = ["ip", "netns", "exec", pair.dut, *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
        try:
            wait_until_attached(pair, process, log)
            yield
        finally:
            stop(process)


def wait_until_attached(pair: VethPair, process: subprocess.Popen[str], log: IO[str]) -> None:
    deadline = time.monotonic() + START_S
    while not program_attached(pair):
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


def forwarded_pps(pair: VethPair, tools: Tools, queues: int) -> float:
    """Offer frames at the highest rate and return how many per second came back."""
    argv = [tools.xdpgen, "--interface", "vg0", "--engine", "live" if queues == 1 else "afxdp", "--cpus", SENDER_CPU]
    argv += ["--queues", str(queues), "--fifo", SENDER_PRIORITY, "--stamp", "none"]
    argv += ["--bursts", "warmup:0.2,measure:1.0"]
    lines = [json.loads(line) for line in pair.run(pair.tg, *argv).splitlines()]
    measured = next(line for line in lines if line["type"] == "summary" and line["burst"] == "measure")
    return float(measured["rx_packets"] / measured["duration_s"])


def compare(tools: Tools, queues: int, runs: int) -> dict[str, list[float]]:
    """Return each contender's rates, one per round; every round visits all of them."""
    contenders = forwarders(tools, queues)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(runs):
        for name, argv in contenders.items():
            # A new pair each time: the queue of a closed socket stays busy for a moment, and testpmd does not wait.
            with VethPair(queues) as pair, forwarding(pair, argv):
                rates[name].append(forwarded_pps(pair, tools, queues))
        shown = ", ".join(f"{name} {rates[name][-1] / 1e6:.3f}" for name in rates)
        print(f"{queues} queues, round {number + 1}: {shown}", flush=True)
    return rates


def within_rounds(rates: dict[str, list[float]], ours: list[str], peers: list[str]) -> float | None:
    """Return the median of the rounds' own ratios, best of ours to best of the peers; None if there is no peer."""
    if not peers:
        return None
    rounds = [dict(zip(rates, values, strict=True)) for values in zip(*rates.values(), strict=True)]
    best = [max(each[name] for name in ours) / max(each[name] for name in peers) for each in rounds]
    return float(round(statistics.median(best), 3))


def aims(queues: int, rates: dict[str, list[float]]) -> list[Aim]:
    testpmd = [name for name in rates if name.startswith("testpmd")]
    of = "1 queue" if queues == 1 else f"{queues} queues"
    found = [
        Aim(
            f"{of}: times the best testpmd, within rounds",
            within_rounds(rates, [OURS, BUSY], testpmd),
            at_least=LEAST_RATIO,
            reason=f"{TESTPMD} is not installed",
        ),
        Aim(f"{of}: times {L2FWD}", within_rounds(rates, [OURS, BUSY], [L2FWD]), at_least=LEAST_RATIO),
    ]
    busy = Aim(f"{of}: busy polling, times sleeping", within_rounds(rates, [BUSY], [OURS]), at_least=LEAST_BUSY)
    return [*found, busy] if queues == 1 else found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=7, help="rounds, at least 7 (%(default)s)")
    parser.add_argument("--queues", type=int, nargs="+", default=QUEUES, help="queue counts (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("needs two CPUs: sender and application each have one")
    if not shutil.which(TESTPMD):
        print(f"missing peer: {TESTPMD} (apt install dpdk-dev)")
    with tempfile.TemporaryDirectory() as cache:
        tools = Tools.build(cache)
        found = {queues: compare(tools, queues, arguments.runs) for queues in arguments.queues}
    show("Frames that AF_XDP applications forward, Mpps, medians", table(found))
    return [aim for queues, rates in found.items() for aim in aims(queues, rates)]


def table(found: dict[int, dict[str, list[float]]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for rates in found.values() for name in rates)
    return [
        {"application": name} | {f"{q} queues": statistics.median(rates[name]) / 1e6 for q, rates in found.items()}
        for name in names
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
