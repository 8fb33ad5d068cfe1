"""The senders xdpgen is measured against, by name: the command of each that is installed."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from xdplab.generators.moongen import dpdk_config

PRIORITY = "20"
LIVE_FRAMES = "xdp-trafficgen"
"""The peer that sends the kernel's live frames, as xdpgen does; the others write to sockets."""
MOONGEN = "MoonGen"
WHERE = {
    "dpdk-testpmd": "apt install dpdk-dev",
    "trafgen": "apt install netsniff-ng",
    LIVE_FRAMES: "apt install xdp-tools",
    MOONGEN: "build it as docs/use/generators.md says, and put a link to build/MoonGen on the PATH",
}
"""The program of each peer, which must be on the PATH, and how to get it."""
HEADER = "0x02, 0x78, 0x64, 0x70, 0x00, 0x02, 0x02, 0x78, 0x64, 0x70, 0x00, 0x01, 0x88, 0xb5"
MIN_BYTES = 60


@dataclass(frozen=True)
class Work:
    """Frames of ``frame_bytes`` (without FCS), sent from ``cpus`` by ``vg0``, whose queues they are to reach.

    ``rate_pps``: frames per second; None is as many as possible.
    """

    frame_bytes: int = MIN_BYTES
    cpus: tuple[int, ...] = (0,)
    queues: int = 1
    rate_pps: int | None = None

    @property
    def real_time(self) -> list[str]:
        return ["chrt", "-f", PRIORITY, "taskset", "-c", ",".join(map(str, self.cpus))]


def peer_commands(cache: Path, work: Work, *, modes: tuple[str, ...] = ("txonly",)) -> dict[str, list[str]]:
    """Return the command of each peer that is installed and can do this; name those that are missing."""
    commands = {"trafgen": _trafgen(cache, work)}
    if not work.rate_pps:
        commands |= _testpmd(work, modes) | {LIVE_FRAMES: _trafficgen(work), MOONGEN: _moongen(cache, work)}
    missing = [tool for tool in WHERE if not shutil.which(tool)]
    return {name: argv for name, argv in commands.items() if not set(argv) & set(missing)}


def name_missing() -> None:
    for tool, way in WHERE.items():
        if not shutil.which(tool):
            print(f"missing peer: {tool} ({way})")


def _testpmd(work: Work, modes: tuple[str, ...]) -> dict[str, list[str]]:
    # One thread of DPDK per sending CPU, and one that only waits, on a CPU that none of them keeps busy.
    threads = [f"{number}@{cpu}" for number, cpu in enumerate((*work.cpus, max(os.sched_getaffinity(0))))]
    eal = ["--lcores", ",".join(threads), "--main-lcore", str(len(work.cpus)), "--no-huge", "-m", "512"]
    eal += ["--no-shconf", "--no-pci", "--no-telemetry"]
    drivers = {
        "af_xdp": (af_xdp_devices("vg0", work.queues), []),
        "af_packet": (
            ["--vdev", f"net_af_packet0,iface=vg0,qpairs={work.queues}"],
            [f"--txq={work.queues}", f"--rxq={work.queues}"],
        ),
    }
    return {
        f"testpmd {driver} {mode}": [
            "chrt", "-f", PRIORITY, "dpdk-testpmd", *eal, *devices, "--", f"--forward-mode={mode}", "--auto-start",
            "--stats-period=60", "--total-num-mbufs=65536", "--port-topology=loop", f"--txpkts={work.frame_bytes}",
            f"--nb-cores={min(len(work.cpus), work.queues)}", *queues,
        ]
        for driver, (devices, queues) in drivers.items()
        for mode in modes
    }  # fmt: skip


def af_xdp_devices(interface: str, queues: int, extra: str = "") -> list[str]:
    """Return DPDK's options for one device per queue: it takes a veth for a device of one queue."""
    names = [f"net_af_xdp{queue},iface={interface},start_queue={queue},queue_count=1{extra}" for queue in range(queues)]
    return [word for name in names for word in ("--vdev", name)]


def _trafgen(cache: Path, work: Work) -> list[str]:
    frame = cache / f"frame-{work.frame_bytes}.cfg"
    frame.write_text(f"{{ {HEADER}, fill(0x00, {work.frame_bytes - 14}) }}\n")
    # Its --rate sends all frames of a second at once: --gap paces them.
    pace = ["--gap", f"{round(1e9 / work.rate_pps)}ns"] if work.rate_pps else []
    return [*work.real_time, "trafgen", "-i", str(frame), "-o", "vg0", "-P", str(len(work.cpus)), *pace]


def _trafficgen(work: Work) -> list[str]:
    udp = ["udp", "vg0", "-s", str(max(work.frame_bytes, 64)), "-t", str(len(work.cpus)), "-m", "02:78:64:70:00:02"]
    return [*work.real_time, LIVE_FRAMES, *udp]


def _moongen(cache: Path, work: Work) -> list[str]:
    """MoonGen on DPDK's af_packet driver, the one that takes a veth; it sends from one CPU."""
    device = f"--vdev=net_af_packet0,iface=vg0,qpairs={work.queues},framecnt=4096"
    config = cache / f"moongen-{work.queues}.lua"
    config.write_text(dpdk_config(work.cpus[:1], ["--no-huge", "-m", "512", "--no-pci", "--no-shconf", device]))
    script = [str(Path(__file__).with_name("moongen.lua")), f"--dpdk-config={config}"]
    return ["chrt", "-f", PRIORITY, MOONGEN, *script, str(work.frame_bytes), str(work.queues)]
