"""xdpgen beside every other sender with 1, 2, 4 and 8 queues and frames of 64 and 1500 bytes: rounds in turns, medians.

Run as root. Each sender has as many CPUs as there are queues, at most all but one. xdpgen sends only; sends and
receives with every frame numbered and checked; and with every frame stamped too. Its AF_XDP engine does the last. The
bare live frames come back unchecked; the peers only send, to a DUT that drops. A CPU's live frames reach one queue, so
the live engine reaches at most as many queues as it has CPUs. A peer that is missing or does not start is named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bounded import Aim, run, show
from xdpgen.lab import PeerError, VethPair, build
from xdpgen.peers import LIVE_FRAMES, PRIORITY, Work, name_missing, peer_commands

SECONDS = 0.4
SIZES, QUEUES = (64, 1500), (1, 2, 4, 8)
FCS = 4
LEAST_OF_PEERS = 5.0
BARE = "bare live frames"
CHECKED = "numbered and checked, 1 in 16 stamped"
OWN: dict[str, tuple[list[str], str]] = {
    "send only": (["--stamp", "none", "--no-receive"], "xdp/drop"),
    "numbered and checked": (["--stamp", "none"], "xdp/reflect"),
    CHECKED: (["--stamp", "16"], "xdp/reflect"),
    "with latency": (["--stamp", "all"], "xdp/reflect"),
    "AF_XDP, with latency": (["--stamp", "all", "--engine", "afxdp"], "xdp/reflect"),
}


def own_rate(pair: VethPair, tools: tuple[str, str, Path], work: Work, options: list[str], section: str) -> float:
    """Frames per second that were sent, or that came back whole where they do."""
    xdpgen, _, bpf_object = tools
    argv = [xdpgen, "--interface", "vg0", "--fifo", PRIORITY, "--frame-bytes", str(work.frame_bytes + FCS), *options]
    argv += ["--queues", str(work.queues), "--cpus", ",".join(map(str, work.cpus))]
    with pair.dut_program(bpf_object, section):
        text = pair.run(pair.tg, *argv, "--bursts", f"warmup:0.1,measure:{SECONDS}")
    measured = json.loads(next(t for t in text.splitlines() if '"summary"' in t and '"measure"' in t))
    frames = measured["tx_packets" if "--no-receive" in options else "rx_packets"]
    return float(frames / measured["duration_s"])


def bare_rate(pair: VethPair, tools: tuple[str, str, Path], work: Work) -> float:
    _, bare, bpf_object = tools
    argv = [bare, str(bpf_object), "vg0", ",".join(map(str, work.cpus)), PRIORITY, "64", str(work.frame_bytes)]
    with pair.dut_program(bpf_object, "xdp/reflect"):
        return pair.rate(argv, pair.tg, "vg0", SECONDS)


def peer_rate(pair: VethPair, tools: tuple[str, str, Path], argv: list[str]) -> float:
    with pair.dut_program(tools[2], "xdp/drop"):
        try:
            return pair.rate(argv, pair.dut, "vd0", SECONDS)
        finally:
            pair.run(pair.tg, "ip", "link", "set", "dev", "vg0", "xdp", "off")


def contenders(pair: VethPair, tools: tuple[str, str, Path], cache: Path, work: Work) -> dict[str, Callable[[], float]]:
    found: dict[str, Callable[[], float]] = {BARE: partial(bare_rate, pair, tools, work)}
    for name, (options, section) in OWN.items():
        found[name] = partial(own_rate, pair, tools, work, options, section)
    for name, argv in peer_commands(cache, work).items():
        found[name] = partial(peer_rate, pair, tools, argv)
    return found


def cell(tools: tuple[str, str, Path], cache: Path, work: Work, rounds: int) -> dict[str, float]:
    """Return the median rates in one lab of so many queues; a peer that sends nothing is named and left out."""
    with VethPair(work.queues) as pair:
        asked = contenders(pair, tools, cache, work)
        rates: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(rounds):
            for name in list(rates):
                try:
                    rates[name].append(asked[name]())
                except PeerError as error:
                    del rates[name]
                    print(f"{name} does not send here: {' '.join(str(error).split())[-300:]}", flush=True)
    return {name: statistics.median(values) for name, values in rates.items()}


def best_peer(rates: dict[str, float]) -> str | None:
    """The fastest of those that write to sockets; xdp-trafficgen sends the live frames that xdpgen sends."""
    peers = [name for name in rates if name not in (BARE, LIVE_FRAMES, *OWN)]
    return max(peers, key=rates.__getitem__) if peers else None


def aim(work: Work, rates: dict[str, float]) -> Aim:
    what = f"{work.frame_bytes + FCS} B, {work.queues} queues: {CHECKED}, times the best peer that writes to sockets"
    best = best_peer(rates)
    if best is None:
        return Aim(what, None, at_least=LEAST_OF_PEERS, reason="no peer is installed")
    return Aim(f"{what} ({best})", rates[CHECKED] / rates[best], at_least=LEAST_OF_PEERS)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="rounds (%(default)s)")


def senders_of(cpus: tuple[int, ...], queues: int) -> tuple[int, ...]:
    """Return the CPUs that send: one per queue, and never the last of several.

    Senders of real-time priority on all of them keep everything else from running, also what would end them.
    """
    return cpus[: max(1, min(queues, len(cpus) - 1))]


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    name_missing()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    aims, rows = [], []
    with tempfile.TemporaryDirectory() as cache:
        tools = build(Path(cache))
        for frame_bytes in SIZES:
            for queues in QUEUES:
                work = Work(frame_bytes - FCS, senders_of(cpus, queues), queues)
                rates = cell(tools, Path(cache), work, arguments.runs)
                rows.append((work, rates))
                aims.append(aim(work, rates))
                print(aims[-1], flush=True)
    senders = dict.fromkeys(name for _, rates in rows for name in rates)
    show(
        f"Mpps by queues and frame size, {len(cpus)} CPUs, medians of {arguments.runs} rounds",
        [row(sender, rows) for sender in senders],
    )
    return aims


def row(sender: str, rows: list[tuple[Work, dict[str, float]]]) -> dict[str, Any]:
    cells = {
        f"{work.frame_bytes + FCS} B, {work.queues}": rates[sender] / 1e6 if sender in rates else None
        for work, rates in rows
    }
    return {"sender": f"xdpgen, {sender}" if sender in OWN else sender} | cells


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1200, options=options))
