"""xdpgen beside pktgen in a guest whose clock counts instructions: CPU work per frame, in turns.

pktgen is a module of the kernel. This machine's kernel may lack it and Debian's have it, so both send inside a guest of
one of those kernels. The guest is emulated, and its times say nothing; but with one CPU and `-icount`, a nanosecond of
its clock is one instruction, so time per frame is the work per frame, of the kernel too: making it, sending it, and
receiving it on the DUT, which drops it by native XDP. pktgen writes a time stamp and a number into each frame, as it
always does. xdpgen numbers each frame, and stamps one in 16. Needs no root; names what a guest lacks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bounded import Aim, run, show
from xdpgen.lab import build_bpf

from xdplab.errors import XdplabError
from xdplab.hosts import Host
from xdplab.labs import use_lab
from xdplab.labs.vm.lab import VmLab
from xdplab.studies.traffic.prepare import generator_of

KERNEL = "6.1"
SIZES, FCS = (64, 1500), 4
FRAMES = 20_000
LEAST_OF_PEER = 5.0
PKTGEN = "pktgen"
OWN = {"xdpgen, numbered": "none", "xdpgen, numbered, 1 in 16 stamped": "16"}
AIM_OF = "xdpgen, numbered, 1 in 16 stamped"

DRIVE = """
set -e
at=/proc/net/pktgen
echo rem_device_all > $at/kpktgend_0
echo "add_device $1" > $at/kpktgend_0
for words in "count $2" "pkt_size $3" "dst_mac $4" "delay 0" "dst 198.19.0.1"; do echo "$words" > "$at/$1"; done
echo start > $at/pgctrl
cat "$at/$1"
"""
"""Arguments: the interface, frames, bytes without FCS, the DUT's MAC. Returns once all frames are sent."""


def pktgen_instructions(lab: VmLab, frame_bytes: int, frames: int) -> float:
    """Return the instructions per frame, of pktgen's own clock readings before the first and after the last one."""
    words = [lab.tg_interface, str(frames), str(frame_bytes - FCS), lab.dut_mac]
    text = lab.tg.run(["sh", "-c", DRIVE, "pktgen", *words], deadline_s=300).text
    return 1e3 * took_us(text, frames) / frames


def took_us(text: str, frames: int) -> float:
    """Return the time of ``Result: OK: 4321(c4300+d21) usec, 20000 (60byte,0frags)``. Raises SystemExit for others."""
    told = next((line for line in text.splitlines() if line.startswith("Result: OK:")), "")
    time, _, rest = told.removeprefix("Result: OK:").partition(" usec, ")
    if not rest or int(rest.split()[0]) != frames:
        raise SystemExit(f"pktgen sent less than {frames} frames: {text[-300:]}")
    return float(time.partition("(")[0])


def xdpgen_instructions(lab: VmLab, xdpgen: str, frame_bytes: int, frames: int, stamp: str) -> float:
    argv = [xdpgen, "--interface", lab.tg_interface, "--cpus", "0", "--no-receive", "--stamp", stamp]
    argv += ["--frame-bytes", str(frame_bytes), "--dst-mac", lab.dut_mac, "--bursts", f"measure:{frames * 1e-6}"]
    text = lab.tg.run(argv, deadline_s=300).text
    measured = next(one for one in map(json.loads, text.splitlines()) if one["type"] == "summary")
    return float(1e9 * measured["duration_s"] / measured["tx_packets"])


def dropped(host: Host, interface: str) -> int:
    """Return how many frames the DUT's end has received."""
    return int(host.run(["cat", f"/sys/class/net/{interface}/statistics/rx_packets"]).text)


def rounds(lab: VmLab, count: int, frames: int) -> dict[tuple[int, str], list[float]]:
    """Return the instructions per frame by (frame size, sender), one per round; each frame must reach the DUT."""
    xdpgen = generator_of(lab).program
    with tempfile.TemporaryDirectory() as folder:
        lab.dut.put(build_bpf(Path(folder), "bare"), "/tmp/bare.bpf.o")
    link = ["ip", "link", "set", "dev", lab.dut_interface, "xdpdrv", "object", "/tmp/bare.bpf.o", "section", "xdp/drop"]
    lab.dut.run(link)
    found: dict[tuple[int, str], list[float]] = {}
    for _ in range(count):
        for size in SIZES:
            before = dropped(lab.dut, lab.dut_interface)
            found.setdefault((size, PKTGEN), []).append(pktgen_instructions(lab, size, frames))
            if (arrived := dropped(lab.dut, lab.dut_interface) - before) < frames:
                raise SystemExit(f"only {arrived} of pktgen's {frames} frames arrived")
            for name, stamp in OWN.items():
                found.setdefault((size, name), []).append(xdpgen_instructions(lab, xdpgen, size, frames, stamp))
            said = (f"{name} {values[-1]:.0f}" for (of, name), values in found.items() if of == size)
            print(f"{size} B: {', '.join(said)}", flush=True)
    return found


def rows(found: dict[tuple[int, str], list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "frame bytes": size,
            "sender": name,
            "instructions per frame": statistics.median(values),
            "pktgen's, times its own": statistics.median(ratios := shares(found, size, name)),
            "lowest": min(ratios),
            "highest": max(ratios),
        }
        for (size, name), values in found.items()
    ]


def shares(found: dict[tuple[int, str], list[float]], size: int, name: str) -> list[float]:
    return [peer / own for peer, own in zip(found[size, PKTGEN], found[size, name], strict=True)]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", default=KERNEL, help="the guest's kernel (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="rounds (%(default)s)")
    parser.add_argument("--frames", type=int, default=FRAMES, help="frames of one sender in a round (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    what = f"{AIM_OF}: pktgen's instructions per frame, times its own"
    try:
        with use_lab(f"vm:{arguments.kernel}:count:pktgen") as lab:
            assert isinstance(lab, VmLab)
            if not (loaded := lab.guest.run(["modprobe", "pktgen"], check=False)).ok:
                return [Aim(what, None, at_least=LEAST_OF_PEER, reason=f"no pktgen: {loaded.error_text}")]
            found = rounds(lab, arguments.runs, arguments.frames)
    except XdplabError as error:
        return [Aim(what, None, at_least=LEAST_OF_PEER, reason=str(error))]
    show(f"CPU work per frame in a guest with Linux {arguments.kernel}, {arguments.runs} rounds in turns", rows(found))
    return [
        Aim(f"{size} B: {what}", statistics.median(shares(found, size, AIM_OF)), at_least=LEAST_OF_PEER)
        for size in SIZES
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1200, options=options))
