"""The native baseline (N = 0) beside the shortest DUTs there are: three lines that return XDP_TX, and xdp-bench.

Run as root. Baseline and three lines take turns every few milliseconds under one sender (a race by slices, see
docs/use/race.md). xdp-bench attaches a program of its own and cannot be exchanged: whole windows in turns. It swaps
addresses as the baseline does; the three lines do not touch the frame. xdp-bench is named where it is missing or does
not start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bounded import Aim, run, show
from xdpgen.lab import VethPair, build, end_group

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost
from xdplab.plan.model import parse_plan
from xdplab.programs.build import build as build_program
from xdplab.programs.spec import ProgramSpec
from xdplab.studies.traffic import race as races
from xdplab.studies.traffic import turns
from xdplab.studies.traffic.kind import measured

THREE_LINES = Path(__file__).parent / "xdpgen" / "three_lines.bpf.c"
LEAST, MOST_PAIRS = 0.99, 24
PEER, PACKAGE = "xdp-bench", "xdp-tools"
START_S, SECONDS = 10.0, 0.5
OWN_RUN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
"""xdp-bench leaves a lock in /run if it is killed, and does not start again until it is removed."""


def by_slices() -> tuple[Aim, dict[str, Any]]:
    """The race; its ratio is the baseline's rate over that of three lines."""
    sides: list[dict[str, Any]] = [
        {"program": [{"file": str(THREE_LINES), "action": "tx"}]},
        {"workload": "array", "accesses": 0},
    ]
    blocks = [{"points": {"mode": "native"} | side, "traffic": {"load": "max", "flows": 1}} for side in sides]
    with tempfile.TemporaryDirectory() as folder, turns.lab_for(f"netns:dutpeers{os.getpid()}") as lab:
        trial = {"warmup_s": 0.1, "window_s": 0.2, "pause_s": 0.02}
        race = {"at_most": MOST_PAIRS, "margin": 0.01}
        plan = parse_plan({"name": "three-lines", "lab": lab.name, "trial": trial, "race": race, "blocks": blocks})
        raced = measured(plan, lab, Path(folder)).directory
        standing = races.standing_of(raced)
    ratio = math.exp(standing.ratio.median) if standing.ratio.n else None
    what = "native baseline, times three lines of XDP_TX"
    row = {"beside": "three lines of XDP_TX", "found": standing.text}
    return Aim(what, ratio, at_least=LEAST, reason=standing.text), row


@contextlib.contextmanager
def held(pair: VethPair, argv: list[str]) -> Iterator[None]:
    """Run what attaches a program to vd0, until the block ends. Raises RuntimeError with its words if it does not."""
    with tempfile.TemporaryFile("w+") as log:
        command = ["ip", "netns", "exec", pair.dut, "timeout", "--kill-after=1", "60", *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + START_S
            while "xdp" not in json.loads(pair.run(pair.dut, "ip", "-j", "link", "show", "dev", "vd0"))[0]:
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise RuntimeError(log.read()[-400:])
                time.sleep(0.02)
            yield
        finally:
            end_group(process)
            pair.run(pair.dut, "ip", "link", "set", "dev", "vd0", "xdp", "off")


def reflected_pps(pair: VethPair, xdpgen: str) -> float:
    argv = [xdpgen, "--interface", "vg0", "--cpus", "0", "--stamp", "none"]
    text = pair.run(pair.tg, *argv, "--bursts", f"warmup:0.1,measure:{SECONDS}")
    measured = json.loads(next(t for t in text.splitlines() if '"summary"' in t and '"measure"' in t))
    return float(measured["rx_packets"] / measured["duration_s"])


def by_windows(rounds: int) -> tuple[Aim, dict[str, Any]]:
    what = f"native baseline, times {PEER} tx"
    if not shutil.which(PEER):
        print(f"missing peer: {PEER} (apt install {PACKAGE})")
        return Aim(what, None, at_least=LEAST, reason=f"{PEER} is not installed"), {"beside": PEER, "found": None}
    with tempfile.TemporaryDirectory() as folder, VethPair() as pair:
        cache = Path(folder)
        baseline = build_program(ProgramSpec("array", 0), cache)
        argv = {
            "baseline": [
                build_tool(LocalHost(), "xdpload", folder), "--interface", "vd0", "--object", str(baseline.object),
                "--section", "xdp", "--mode", "native",
            ],
            PEER: [*OWN_RUN, PEER, "tx", "vd0", "-p", "swap-macs"],  # the option's long name depends on the version
        }  # fmt: skip
        xdpgen = build(cache)[0]
        rates: dict[str, list[float]] = {name: [] for name in argv}
        try:
            for _ in range(rounds):
                for name, command in argv.items():
                    with held(pair, command):
                        rates[name].append(reflected_pps(pair, xdpgen))
        except RuntimeError as error:
            reason = f"it does not start here: {' '.join(str(error).split())[-200:]}"
            return Aim(what, None, at_least=LEAST, reason=reason), {"beside": PEER, "found": reason}
    ratios = [own / peer for own, peer in zip(*rates.values(), strict=True)]
    ratio = statistics.median(ratios)
    medians = ", ".join(f"{name} {statistics.median(values) / 1e6:.3f} Mpps" for name, values in rates.items())
    low, high = min(ratios), max(ratios)
    found = f"{ratio:.3f} ({low:.3f} to {high:.3f} in {rounds} rounds); {medians}"
    return Aim(what, ratio, at_least=LEAST), {"beside": f"{PEER} tx", "found": found}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=9, help="rounds beside xdp-bench (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    found = [by_slices(), by_windows(arguments.runs)]
    show("The native baseline beside the shortest DUTs", [row for _, row in found])
    return [aim for aim, _ in found]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
