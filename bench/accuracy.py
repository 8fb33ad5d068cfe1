"""Paced load and latency: rates and gaps beside the peers', and round trips against injected delays.

Run as root. Each sender is asked for 1, 10, 100 and 500 thousand 64-byte frames per second for a second, from one CPU
at real-time priority, in turns. A BPF program on the DUT that knows no sender notes when each frame arrives: the rate
is the frames after the first one over the time between first and last, and the spread of the gaps is how far 98 % of
them at most lie from the interval that was asked. trafgen is the peer: testpmd and xdp-trafficgen have no pace. The
delays are those of `xdplab selftest`: 10, 100 and 1000 µs, held back by a BPF program on the frames' path.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bounded import Aim, run, show
from xdpgen.lab import VethPair, build, build_bpf, end_group
from xdpgen.peers import PRIORITY, Work, name_missing, peer_commands

from xdplab.studies.traffic import selftest, turns
from xdplab.studies.traffic.kind import measured

RATES = (1_000, 10_000, 100_000, 500_000)
SECONDS, SETTLE_S = 1.0, 0.3
MOST_OFF = 0.001
OURS = ("xdpgen live", "xdpgen AF_XDP")
WITHIN = 0.98


@dataclass(frozen=True)
class Arrivals:
    """What the DUT saw of one sender."""

    frames: int
    seconds: float
    spread_us: float

    @property
    def rate_pps(self) -> float:
        return (self.frames - 1) / self.seconds


def senders(xdpgen: str, cache: Path, rate: int) -> dict[str, list[str]]:
    """Return the command lines; xdpgen ends by itself, a peer is ended."""
    argv = [xdpgen, "--interface", "vg0", "--cpus", "0", "--fifo", PRIORITY, "--load", str(rate), "--no-receive"]
    argv += ["--stamp", "none", "--bursts", f"measure:{SECONDS}"]
    own = {OURS[0]: [*argv, "--engine", "live"], OURS[1]: [*argv, "--engine", "afxdp"]}
    return own | peer_commands(cache, Work(rate_pps=rate))


def arrivals(pair: VethPair, gaps: Path, argv: list[str], rate: int, *, ends: bool) -> Arrivals:
    """Run one sender and read what arrived at the DUT."""
    with pair.dut_program(gaps, "xdp/gaps"):
        command = ["ip", "netns", "exec", pair.tg, "timeout", "--kill-after=1", "30", *argv]
        none = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)
        try:
            if ends:
                process.wait(30)
            else:
                time.sleep(SETTLE_S + SECONDS)
        finally:
            end_group(process)
        time.sleep(0.05)
        return read(pair, 1e9 / rate)


def read(pair: VethPair, asked_ns: float) -> Arrivals:
    """The memory of the attached program."""
    link = json.loads(pair.run(pair.dut, "ip", "-j", "-d", "link", "show", "dev", "vd0"))[0]
    program = json.loads(pair.run(pair.dut, "bpftool", "-j", "prog", "show", "id", str(link["xdp"]["prog"]["id"])))
    dumped = json.loads(pair.run(pair.dut, "bpftool", "-j", "map", "dump", "id", str(program["map_ids"][0])))
    value: dict[str, Any] = dumped[0]["formatted"]["value"][".bss"][0]["arrivals"]
    if value["frames"] < 2:
        sys.exit("no frames arrived")
    seconds = (value["last_ns"] - value["first_ns"]) / 1e9
    return Arrivals(value["frames"], seconds, spread_ns(value["gaps"], asked_ns) / 1e3)


def spread_ns(counts: list[int], asked_ns: float) -> float:
    """Return how far `WITHIN` of the gaps lie from the asked one, at most; the buckets are 1.6 % wide."""
    off = sorted((abs(gap_ns(bucket) - asked_ns), count) for bucket, count in enumerate(counts) if count)
    left = WITHIN * sum(counts)
    for distance, count in off:
        left -= count
        if left <= 0:
            return distance
    return math.nan


def gap_ns(bucket: int) -> float:
    """Return the middle of a bucket of gaps.bpf.c."""
    octave = max(0, (bucket >> 6) - 1)
    return float(((bucket - (octave << 6)) << octave) + ((1 << octave) - 1) / 2)


def paced(rounds: int) -> tuple[list[Aim], list[dict[str, Any]]]:
    name_missing()
    seen: dict[tuple[int, str], list[Arrivals]] = {}
    with tempfile.TemporaryDirectory() as folder, VethPair() as pair:
        cache = Path(folder)
        xdpgen, gaps = build(cache)[0], build_bpf(cache, "gaps")
        for _ in range(rounds):
            for rate in RATES:
                for name, argv in senders(xdpgen, cache, rate).items():
                    seen.setdefault((rate, name), []).append(arrivals(pair, gaps, argv, rate, ends=name in OURS))
    rows = [
        {
            "frames/s asked": rate,
            "sender": name,
            "rate off, %": 100 * statistics.median(abs(one.rate_pps / rate - 1) for one in found),
            "98 % of gaps within, ± µs": statistics.median(one.spread_us for one in found),
        }
        for (rate, name), found in seen.items()
    ]
    return [aim for rate in RATES for aim in _aims(rate, [row for row in rows if row["frames/s asked"] == rate])], rows


def _aims(rate: int, rows: list[dict[str, Any]]) -> list[Aim]:
    """The live engine, which every plan uses."""
    off = {row["sender"]: row["rate off, %"] / 100 for row in rows}
    spread = {row["sender"]: row["98 % of gaps within, ± µs"] for row in rows}
    peers = [name for name in spread if name not in OURS]
    ratio = spread[OURS[0]] / min(spread[name] for name in peers) if peers else None
    return [
        Aim(f"{rate} frames/s, off by", off[OURS[0]], at_most=MOST_OFF),
        Aim(f"{rate} frames/s, spread of gaps, times the best peer's", ratio, at_most=1, reason="no peer has a pace"),
    ]


def delays() -> tuple[list[Aim], list[dict[str, Any]]]:
    """Each injected delay, measured as any trial is, less the round trip without one."""
    with tempfile.TemporaryDirectory() as folder, turns.lab_for(f"netns:accuracy{os.getpid()}") as lab:
        found = selftest.delays_found(measured(selftest.delay_plan(lab.name), lab, Path(folder)).rows())
    rows = [{"injected": one.injected, "found": one.found, "allowed": one.allowed} for one in found]
    missed = sum(not one.holds for one in found)
    return [Aim("injected delays not found within 1 µs + 1 %", missed, at_most=0)], rows


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="rounds (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    aims, rows = paced(arguments.runs)
    show(f"Paced 64-byte frames from one CPU, medians of {arguments.runs} rounds", rows)
    found, held = delays()
    show("Injected delays", held)
    return [*aims, *found]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
