"""xdpgen's rate with a million flows drawn by Zipf's law beside that with 64 in turn: interleaved pairs, median ratio.

Run as root. A DUT reflects by native XDP_TX, and every frame is checked when it comes back; 64-byte frames from one
CPU, one in 16 stamped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from bounded import Aim, run, show
from xdpgen.lab import VethPair, build
from xdpgen.peers import PRIORITY

SECONDS = 0.5
LEAST = 0.9
KINDS = {"64 in turn": ["--flows", "64"], "1 M by Zipf's law": ["--flows", "1000000", "--skew", "zipf:1.1"]}


def rate(pair: VethPair, bpf_object: Path, xdpgen: str, words: list[str]) -> float:
    """Return the frames per second that came back intact."""
    argv = [xdpgen, "--interface", "vg0", "--cpus", "0", "--fifo", PRIORITY, *words]
    with pair.dut_program(bpf_object, "xdp/reflect"):
        text = pair.run(pair.tg, *argv, "--bursts", f"warmup:0.2,measure:{SECONDS}")
    summaries = (line for line in map(json.loads, text.splitlines()) if line["type"] == "summary")
    measured = next(line for line in summaries if line["burst"] == "measure")
    return float(measured["rx_packets"] / measured["duration_s"])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=9, help="pairs (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as cache, VethPair() as pair:
        xdpgen, _, bpf_object = build(Path(cache))
        for number in range(arguments.runs):
            for name in list(KINDS)[:: 1 if number % 2 else -1]:
                rates[name].append(rate(pair, bpf_object, xdpgen, KINDS[name]))
    rows = [{"flows": name, "Mpps": round(statistics.median(each) / 1e6, 3)} for name, each in rates.items()]
    show(f"64-byte frames, {arguments.runs} interleaved pairs", rows)
    in_turn, drawn = rates.values()
    ratio = statistics.median(b / a for a, b in zip(in_turn, drawn, strict=True))
    return [Aim("a million flows by Zipf's law, of the rate of 64 in turn", ratio, at_least=LEAST)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=300, options=options))
