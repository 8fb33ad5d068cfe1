"""MoonGen's adapter: the scripts of the room moongen_lua, sent to the TG, started there with a MoonGen of its user's.

Engine ``moongen`` stamps test frames in software, ``moongen-hw`` sends probes that the NIC stamps: two kinds of
latency, never mixed. Sizes mean what they mean everywhere: with the FCS.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts.base import Host
from xdplab.resources import room
from xdplab.traffic.adapter import Adapter
from xdplab.traffic.capabilities import Capabilities
from xdplab.traffic.settings import GeneratorSettings

START_S = 60.0
"""DPDK's start and a link that must come up again take ten seconds on some NICs."""

CONFIG = "dpdk.lua"
_PATTERNS = ("*.lua", "*.sh")


def _capabilities(engine: str) -> Capabilities:
    return Capabilities(
        generator="MoonGen",
        engine=engine,
        frame_bytes=(64, 1518),
        max_queues=16,
        max_flows=32768,
        queue_per_cpu=False,
        paced=True,
        latency=True,
        frames_from_file=False,
    )


CAPABILITIES = {engine: _capabilities(engine) for engine in ("moongen", "moongen-hw")}


def moongen(path: str) -> Adapter:
    """Return the adapter of the MoonGen installed in ``path`` on the TG; its binary is the folder of `install`."""

    def argv(settings: GeneratorSettings, folder: str) -> list[str]:
        script = [f"{folder}/moongen.sh", f"{path}/build/MoonGen", f"{folder}/traffic.lua"]
        return [*script, f"--dpdk-config={folder}/{CONFIG}", *_options(settings)]

    return Adapter("MoonGen", argv, CAPABILITIES, start_s=START_S)


def _options(s: GeneratorSettings) -> list[str]:
    """The settings as traffic.lua takes them; ``interface`` is DPDK's port number. ``fifo`` is none of DPDK's."""
    options: dict[str, object] = {
        "port": s.interface,
        "queues": s.queues,
        "frame-bytes": s.frame_bytes,
        "flows": s.flows,
        "load": "max" if s.rate_pps is None else f"{s.rate_pps:.15g}",
        "run-id": s.run_id,
        "src-mac": s.src_mac,
        "dst-mac": s.dst_mac,
        "src-ip": s.src_ip,
        "dst-ip": s.dst_ip,
        "src-ip-stride": s.src_ip_stride,
        "dst-ip-stride": s.dst_ip_stride,
        "src-port": s.src_port,
        "dst-port": s.dst_port,
        "port-stride": s.port_stride,
        "stamp": s.stamp,
        "stamps": "hardware" if s.engine == "moongen-hw" else "software",
        "settle": f"{s.settle_s:g}",
        "max-frames": s.max_frames,
        "batch": s.batch,
    }
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def install(host: Host, folder: str, path: str, *, cores: Sequence[int], dpdk: Sequence[str] = ()) -> str:
    """Send the scripts and DPDK's configuration to ``folder`` on the TG, and return it.

    ``cores`` are the CPUs MoonGen may poll on, two at least: the first waits for commands, the others send and receive.
    Raises UnsupportedError for fewer, HostError where there is no MoonGen in ``path``.
    """
    if len(cores) < 2:
        raise UnsupportedError(f"{host.name}: MoonGen needs two CPUs, one of them to itself, not {len(cores)}")
    if not host.run(["test", "-x", f"{path}/build/MoonGen"], check=False).ok:
        raise HostError(f"{host.name}: no MoonGen in {path}", remedy="build it there as its README says")
    source = room("moongen_lua")
    for file in (file for pattern in _PATTERNS for file in sorted(source.rglob(pattern))):
        name = file.relative_to(source).as_posix()
        host.put(file, f"{folder}/{name}", mode=0o755 if name.endswith(".sh") else 0o644)
    host.put(dpdk_config(cores, dpdk).encode(), f"{folder}/{CONFIG}")
    return folder


def dpdk_config(cores: Sequence[int], dpdk: Sequence[str]) -> str:
    """Return the text of the file that MoonGen reads DPDK's arguments from. Raises UnsupportedError for odd ones."""
    for word in dpdk:
        if not word.isprintable() or '"' in word or "\\" in word:
            raise UnsupportedError(f"DPDK argument {word!r} has a character that cannot be handed on")
    words = ", ".join(f'"{word}"' for word in dpdk)
    numbers = ", ".join(map(str, sorted(cores)))
    return f"DPDKConfig {{ cores = {{{numbers}}}, cli = {{{words}}} }}\n"
