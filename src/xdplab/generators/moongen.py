"""MoonGen's adapter: the scripts of moongen_lua, sent to the TG, started there with a MoonGen of its user's.

Engine ``moongen`` stamps test frames in software, ``moongen-hw`` sends probes that the NIC stamps: two kinds of
latency, never mixed. Sizes mean what they mean everywhere: with the FCS.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from xdplab.errors import HostError, UnsupportedError
from xdplab.generators.adapter import (
    MOONGEN,
    Adapter,
    Capabilities,
    DpdkPlace,
    GeneratorSettings,
    Installed,
    as_words,
    traffic_options,
)
from xdplab.hosts import Host
from xdplab.resources import shipped

START_S = 60.0
"""DPDK's start and a link that must come up again take ten seconds on some NICs."""

REFUSALS = (
    (r"the port has \d+ queues", "ask for fewer queues"),
    ("hugepage", "`generator.hugepages` of the inventory, or boot with hugepages=1024"),
    (r"lcore \d+ (is )?unavailable|invalid core", "`tg.cpus` of the inventory: CPUs that are online"),
    (r"DPDK has \d+ ports", "`generator.ports` of the inventory: DPDK counts the ports that it may use from 0"),
    ("cannot stamp|timestamping is not|task `probes` died", "engine moongen: this port has no time stamps of its own"),
)
"""What MoonGen, DPDK 17.08 and the scripts say where the port or the machine cannot give what is asked."""

CONFIG = "dpdk.lua"
_PATTERNS = ("*.lua", "*.sh")


def _capabilities(engine: str) -> Capabilities:
    return Capabilities(
        generator="MoonGen",
        engine=engine,
        frame_bytes=(64, 1518),
        max_queues=16,
        max_flows=32768,
        batches=(63, 63),
        queue_per_cpu=False,
        can=frozenset({"pace", "stamp"}),
    )


CAPABILITIES = {engine: _capabilities(engine) for engine in MOONGEN}


def moongen(path: str) -> Adapter:
    """Return the adapter of the MoonGen installed in ``path`` on the TG; its program is the folder of `installed`."""

    def argv(settings: GeneratorSettings, folder: str) -> list[str]:
        script = [f"{folder}/moongen.sh", f"{path}/build/MoonGen", f"{folder}/traffic.lua"]
        return [*script, f"--dpdk-config={folder}/{CONFIG}", *_options(settings)]

    return Adapter("MoonGen", argv, CAPABILITIES, start_s=START_S, refusals=REFUSALS)


def _options(s: GeneratorSettings) -> list[str]:
    """The settings as traffic.lua takes them; ``interface`` is DPDK's port number. ``fifo`` is none of DPDK's."""
    stamps = "hardware" if s.engine == "moongen-hw" else "software"
    return as_words({"port": s.interface, **traffic_options(s), "stamps": stamps})


def installed(host: Host, folder: str, place: DpdkPlace, cores: Sequence[int]) -> Installed:
    """Send the scripts and DPDK's configuration to ``folder``; the first of ``cores`` waits for commands."""
    if len(cores) < 2:
        raise UnsupportedError(f"{host.name}: MoonGen needs two CPUs, one of them to itself, not {len(cores)}")
    if not host.run(["test", "-x", f"{place.path}/build/MoonGen"], check=False).ok:
        raise HostError(f"{host.name}: no MoonGen in {place.path}", remedy="build it there as its README says")
    source = shipped("moongen_lua")
    for file in (file for pattern in _PATTERNS for file in sorted(source.rglob(pattern))):
        name = file.relative_to(source).as_posix()
        host.put(file, f"{folder}/{name}", mode=0o755 if name.endswith(".sh") else 0o644)
    host.put(dpdk_config(cores, own_arguments(place.dpdk, place.card)).encode(), f"{folder}/{CONFIG}")
    return Installed(moongen(str(place.path)), folder, str(place.port))


def own_arguments(dpdk: Sequence[str], pci: str | None, *, allow: str = "-w") -> list[str]:
    """Return DPDK's arguments with those that keep a run apart from others on its host; the user's own stand.

    ``allow`` is the option that names the one card that DPDK may open. Each run has files of its own under /var/run and
    in hugetlbfs, so that what a killed one left locked stops none.
    """
    arguments = list(dpdk)
    if not any(word.startswith("--file-prefix") for word in arguments):
        arguments += ["--file-prefix", f"xdplab-{uuid.uuid4().hex[:12]}"]
    chosen = any(word in ("-w", "-a", "-b", "--no-pci") or word.startswith("--pci-") for word in arguments)
    if pci is not None and not chosen:
        arguments += [allow, pci]
    return arguments


def dpdk_config(cores: Sequence[int], dpdk: Sequence[str]) -> str:
    """Return the text of the file that MoonGen reads DPDK's arguments from. Raises UnsupportedError for odd ones."""
    for word in dpdk:
        if not word.isprintable() or '"' in word or "\\" in word:
            raise UnsupportedError(f"DPDK argument {word!r} has a character that cannot be handed on")
    quoted = ", ".join(f'"{word}"' for word in dpdk)
    numbers = ", ".join(map(str, sorted(cores)))
    return f"DPDKConfig {{ cores = {{{numbers}}}, cli = {{{quoted}}} }}\n"
