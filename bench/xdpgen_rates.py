"""xdpgen's live engine against bare live frames and against every other sender: interleaved rounds, medians.

Run as root. xdpgen sends, a DUT reflects by native XDP_TX, and every frame is checked when it comes back. The bare live
frames do the same without the check: in batches of the kernel's default size, which the aims refer to, and of xdpgen's
own, which is faster for both. A stamped frame reads the clock twice, so a third bare sender does that too. The peers
only send, to a DUT that drops, and what arrives there counts: the easier task. xdpgen's plain frames, without numbers,
are counted by the devices, and do both. All send 64-byte frames from one CPU at
the same real-time priority. Nothing is installed: a peer that is missing or does not start is named. xdp-trafficgen
sends live frames too; the other peers write to sockets.
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

SECONDS = 0.6
CPU = "0"
STAMPS = {"every frame stamped": "all", "one frame in 16 stamped": "16", "numbers only": "none"}
LEAST_OF_BARE = {"numbers only": 0.95, "one frame in 16 stamped": 0.93}
LEAST_OF_CLOCK = 0.95
LEAST_OF_PEERS = 5.0
PLAIN, PLAIN_SENT = "plain", "plain, sent only"
OWN_PLAIN = {PLAIN: ["--plain"], PLAIN_SENT: ["--plain", "--no-receive"]}
LEAST_PLAIN, LEAST_PLAIN_OF_PEER = 0.98, 1.0

KERNEL_BATCH = "64"  # the default of BPF_PROG_TEST_RUN
BARE, BARE_SAME_BATCH = "bare live frames", "bare live frames, xdpgen's batch"
BARE_CLOCK = "bare live frames that read the clock twice"
LIMITS = (BARE, BARE_SAME_BATCH, BARE_CLOCK)

Contenders = dict[str, Callable[[], float]]


def xdpgen_rate(pair: VethPair, bpf_object: Path, xdpgen: str, *words: str) -> float:
    """Return the frames per second that came back, or that were sent where none is received."""
    argv = [xdpgen, "--interface", "vg0", "--cpus", CPU, "--fifo", PRIORITY, *words]
    receives = "--no-receive" not in words
    with pair.dut_program(bpf_object, "xdp/reflect" if receives else "xdp/drop"):
        text = pair.run(pair.tg, *argv, "--bursts", f"warmup:0.2,measure:{SECONDS}")
    lines = [json.loads(line) for line in text.splitlines()]
    measured = next(line for line in lines if line["type"] == "summary" and line["burst"] == "measure")
    return float(measured["rx_packets" if receives else "tx_packets"] / measured["duration_s"])


def own_batch(pair: VethPair, xdpgen: str) -> str:
    """Return the batch that xdpgen chooses at the highest load; the bare sender gets the same."""
    text = pair.run(pair.tg, xdpgen, "--interface", "vg0", "--bursts", "none:0.01", "--max-frames", "1")
    return str(json.loads(text.splitlines()[0])["batch"])


def bare_rate(pair: VethPair, bpf_object: Path, bare: str, batch: str, *words: str) -> float:
    with pair.dut_program(bpf_object, "xdp/reflect"):
        return pair.rate([bare, str(bpf_object), "vg0", CPU, PRIORITY, batch, "60", *words], pair.tg, "vg0", SECONDS)


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
        BARE_CLOCK: lambda: bare_rate(pair, bpf_object, bare, KERNEL_BATCH, "clock"),
    }
    for name, stamp in STAMPS.items():
        found[name] = partial(xdpgen_rate, pair, bpf_object, xdpgen, "--stamp", stamp)
    for name, words in OWN_PLAIN.items():
        found[name] = partial(xdpgen_rate, pair, bpf_object, xdpgen, *words)
    if with_peers:
        name_missing()
        for name, argv in peer_commands(cache, Work(), modes=("txonly", "flowgen")).items():
            found[name] = lambda argv=argv: peer_rate(pair, bpf_object, argv)  # type: ignore[misc]
    return found


def shares(rates: dict[str, list[float]], name: str, of: str) -> list[float]:
    """Return the share within each round, in which both met the same machine."""
    return [mine / limit for mine, limit in zip(rates[name], rates[of], strict=True)]


def aims(rates: dict[str, list[float]]) -> list[Aim]:
    def share(name: str, of: str) -> float:
        return round(statistics.median(shares(rates, name, of)), 3)

    found = [
        Aim(f"{name}, share of bare frames", share(name, BARE), at_least=least) for name, least in LEAST_OF_BARE.items()
    ]
    stamped, sixteenth = "every frame stamped", "one frame in 16 stamped"
    clock = Aim(
        f"{stamped}, share of bare frames with two clock reads", share(stamped, BARE_CLOCK), at_least=LEAST_OF_CLOCK
    )
    plain = Aim("plain, share of bare frames", share(PLAIN, BARE), at_least=LEAST_PLAIN)
    of_peer = Aim(
        f"{PLAIN_SENT}, times {LIVE_FRAMES}",
        share(PLAIN_SENT, LIVE_FRAMES) if LIVE_FRAMES in rates else None,
        at_least=LEAST_PLAIN_OF_PEER,
        reason="it is not installed, or --no-peers",
    )
    peers = [_times_the_best(rates, sixteenth, live=live) for live in (True, False)]
    return [*found, clock, plain, of_peer, *peers]


def _times_the_best(rates: dict[str, list[float]], name: str, *, live: bool) -> Aim:
    peers = [peer for peer in rates if peer not in (*LIMITS, *STAMPS, *OWN_PLAIN) and (live or peer != LIVE_FRAMES)]
    what = f"{name}, times the best peer" + ("" if live else " that writes to sockets")
    if not peers:
        return Aim(what, None, at_least=LEAST_OF_PEERS, reason="no peer is installed, or --no-peers")
    best = max(peers, key=lambda peer: statistics.median(rates[peer]))
    return Aim(f"{what} ({best})", round(statistics.median(shares(rates, name, best)), 2), at_least=LEAST_OF_PEERS)


def table(rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "sender": name,
            "Mpps": statistics.median(values) / 1e6,
            "of bare frames": statistics.median(own := shares(rates, name, BARE)),
            "lowest": min(own),
            "highest": max(own),
            "of bare frames with two clock reads": statistics.median(shares(rates, name, BARE_CLOCK)),
        }
        for name, values in rates.items()
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="rounds (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="bare live frames only")


def measured(found: Contenders, runs: int) -> dict[str, list[float]]:
    """Return the rates, one per round; a peer that sends nothing is named and left out."""
    rates: dict[str, list[float]] = {name: [] for name in found}
    for number in range(runs):
        for name in list(rates):
            try:
                rates[name].append(found[name]())
            except PeerError as error:
                del rates[name]
                print(f"{name} does not send here, and is left out: {error}", flush=True)
        shown = ", ".join(f"{name} {values[-1] / 1e6:.3f}" for name, values in rates.items())
        print(f"round {number + 1}: {shown} Mpps", flush=True)
    return rates


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if os.geteuid() != 0:
        sys.exit("needs root: makes network namespaces")
    with tempfile.TemporaryDirectory() as cache, VethPair() as pair:
        rates = measured(contenders(pair, Path(cache), not arguments.no_peers), arguments.runs)
    show(f"64-byte frames from one CPU, medians of {arguments.runs} rounds", table(rates))
    return aims(rates)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
