"""xdpgen's live engine against bare live frames, and against dpdk-testpmd and trafgen: interleaved rounds, medians.

Run as root. xdpgen sends, a DUT reflects by native XDP_TX, and xdpgen checks every frame that comes back. The bare live
frames do the same without the check: once in batches of the kernel's default size, to which the goals refer, and once
in batches of xdpgen's size, which is faster for both. The peers have an easier task: they only send, to a DUT that
drops, and frames that arrive there count. All send 64-byte frames from one CPU at the same real-time priority. The
bench installs nothing: it names a missing peer. The last line is a JSON object with medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bounded import Aim, run
from xdpgen.lab import VethPair, build

SECONDS = 0.6
CPU, OTHER_CPU, PRIORITY = "0", "1", "20"
REAL_TIME = ["chrt", "-f", PRIORITY, "taskset", "-c", CPU]
STAMPS = {"every frame stamped": "all", "one frame in 16 stamped": "16", "numbers only": "none"}
LEAST_OF_BARE = {"numbers only": 0.95, "one frame in 16 stamped": 0.93}
LEAST_OF_PEERS = 5.0
FRAME = "{ 0x02, 0x78, 0x64, 0x70, 0x00, 0x02, 0x02, 0x78, 0x64, 0x70, 0x00, 0x01, 0x88, 0xb5, fill(0x00, 46) }\n"

KERNEL_BATCH = "64"  # the default of BPF_PROG_TEST_RUN
BARE, BARE_SAME_BATCH = "bare live frames", "bare live frames, xdpgen's batch"

Contenders = dict[str, Callable[[], float]]


def xdpgen_rate(pair: VethPair, bpf_object: Path, xdpgen: str, stamp: str) -> float:
    """Return the frames per second that came back intact."""
    argv = [xdpgen, "--interface", "vg0", "--cpus", CPU, "--fifo", PRIORITY, "--stamp", stamp]
    with pair.dut_program(bpf_object, "xdp/reflect"):
        text = pair.run(pair.tg, *argv, "--bursts", f"warmup:0.2,measure:{SECONDS}")
    lines = [json.loads(line) for line in text.splitlines()]
    measured = next(line for line in lines if line["type"] == "summary" and line["burst"] == "measure")
    return float(measured["rx_packets"] / measured["duration_s"])


def own_batch(pair: VethPair, xdpgen: str) -> str:
    """Return the batch that xdpgen chooses at the highest load; the bare sender gets the same."""
    text = pair.run(pair.tg, xdpgen, "--interface", "vg0", "--bursts", "none:0.01", "--max-frames", "1")
    return str(json.loads(text.splitlines()[0])["batch"])


def bare_rate(pair: VethPair, bpf_object: Path, bare: str, batch: str) -> float:
    with pair.dut_program(bpf_object, "xdp/reflect"):
        return pair.rate([bare, str(bpf_object), "vg0", CPU, PRIORITY, batch], pair.tg, "vg0", SECONDS)


def peer_commands(cache: Path) -> dict[str, list[str]]:
    """Return the command of each installed peer; name the missing ones."""
    (cache / "frame.cfg").write_text(FRAME)
    eal = [
        "-l",
        "0,1",
        "--main-lcore",
        OTHER_CPU,
        "--no-huge",
        "-m",
        "512",
        "--no-shconf",
        "--no-pci",
        "--no-telemetry",
    ]
    testpmd = ["chrt", "-f", PRIORITY, "dpdk-testpmd", *eal]
    commands = {
        f"testpmd {driver} {mode}": [
            *testpmd, "--vdev", f"net_{driver}0,iface=vg0", "--", f"--forward-mode={mode}", "--auto-start",
            "--stats-period=60", "--total-num-mbufs=16384", "--txpkts=60",
        ]
        for driver in ("af_xdp", "af_packet")
        for mode in ("txonly", "flowgen")
    }  # fmt: skip
    commands["trafgen"] = [*REAL_TIME, "trafgen", "-i", str(cache / "frame.cfg"), "-o", "vg0", "-P", "1"]
    packages = {"dpdk-testpmd": "dpdk-dev", "trafgen": "netsniff-ng"}
    missing = [tool for tool in packages if not shutil.which(tool)]
    for tool in missing:
        print(f"missing peer: {tool} (apt install {packages[tool]})")
    return {name: argv for name, argv in commands.items() if not set(argv) & set(missing)}


def peer_rate(pair: VethPair, bpf_object: Path, argv: list[str]) -> float:
    with pair.dut_program(bpf_object, "xdp/drop"):
        try:
            return pair.rate(argv, pair.dut, "vd0", SECONDS)
        finally:
            pair.run(pair.tg, "ip", "link", "set", "dev", "vg0", "xdp", "off")  # a killed testpmd leaves its program


def contenders(pair: VethPair, cache: Path, with_peers: bool) -> Contenders:
    xdpgen, bare, bpf_object = build(cache)
    batch = own_batch(pair, xdpgen)
    found: Contenders = {
        BARE: lambda: bare_rate(pair, bpf_object, bare, KERNEL_BATCH),
        BARE_SAME_BATCH: lambda: bare_rate(pair, bpf_object, bare, batch),
    }
    for name, stamp in STAMPS.items():
        found[name] = lambda stamp=stamp: xdpgen_rate(pair, bpf_object, xdpgen, stamp)  # type: ignore[misc]
    for name, argv in (peer_commands(cache) if with_peers else {}).items():
        found[name] = lambda argv=argv: peer_rate(pair, bpf_object, argv)  # type: ignore[misc]
    return found


def report(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return medians, our share of each bare rate, and our ratio to the best peer."""
    median = {name: statistics.median(values) for name, values in rates.items()}
    peers = [value for name, value in median.items() if name not in (BARE, BARE_SAME_BATCH, *STAMPS)]
    return {
        "bench": "xdpgen_rates",
        "runs": len(rates[BARE]),
        "median_pps": {name: round(value) for name, value in median.items()},
        "share_of_bare": {name: round(median[name] / median[BARE], 3) for name in STAMPS},
        "share_of_bare_same_batch": {name: round(median[name] / median[BARE_SAME_BATCH], 3) for name in STAMPS},
        "times_best_peer": round(median["one frame in 16 stamped"] / max(peers), 2) if peers else None,
    }


def aims(found: dict[str, Any]) -> list[Aim]:
    shares = [
        Aim(f"{name}, share of bare frames", found["share_of_bare"][name], at_least=least)
        for name, least in LEAST_OF_BARE.items()
    ]
    times = found["times_best_peer"]
    reason = "" if times is not None else "no peer is installed, or --no-peers"
    return [*shares, Aim("one in 16 stamped, times the best peer", times, at_least=LEAST_OF_PEERS, reason=reason)]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="bare live frames only")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    with tempfile.TemporaryDirectory() as cache, VethPair() as pair:
        found = contenders(pair, Path(cache), not arguments.no_peers)
        rates: dict[str, list[float]] = {name: [] for name in found}
        for number in range(arguments.runs):
            for name, rate in found.items():
                rates[name].append(rate())
            shown = ", ".join(f"{name} {values[-1] / 1e6:.3f}" for name, values in rates.items())
            print(f"round {number + 1}: {shown} Mpps", flush=True)
    print(json.dumps(report(rates)))
    return aims(report(rates))


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
