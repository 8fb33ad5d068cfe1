"""dpdk-testpmd's adapter: `testpmd_tool`, sent to the TG, runs the testpmd that is installed there.

Debian's package ``dpdk`` has it, with drivers for current cards. It sends one frame size at full rate, with its own
addresses and without numbers or time stamps: for rates and losses, not for latency or a paced load.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdplab.errors import HostError, UnsupportedError
from xdplab.generators.adapter import (
    Adapter,
    Capabilities,
    DpdkPlace,
    GeneratorSettings,
    Installed,
    as_words,
    traffic_options,
)
from xdplab.generators.moongen import REFUSALS, START_S, own_arguments
from xdplab.hosts import Host

TOOL = "testpmd_tool.py"

ADDRESSES: dict[str, Any] = {"src_ip": "10.254.0.0", "dst_ip": "10.253.0.0", "src_port": 1000, "dst_port": 1001}
"""Those of testpmd's mode flowgen (app/test-pmd/flowgen.c): constants, but the destination differs by flow."""

CAPABILITIES = {
    "testpmd": Capabilities(
        generator="dpdk-testpmd",
        engine="testpmd",
        frame_bytes=(64, 1518),
        max_queues=16,
        max_flows=32768,
        batches=(32, 32),
        queue_per_cpu=False,
        addresses=ADDRESSES,
    )
}


def testpmd(path: str, *, port: int, cores: Sequence[int], eal: Sequence[str]) -> Adapter:
    """Return the adapter of the testpmd at ``path`` on the TG; its program is the tool that `installed` has sent."""

    def argv(settings: GeneratorSettings, tool: str) -> list[str]:
        options = {
            "testpmd": path,
            "cpus": ",".join(map(str, sorted(cores))),
            "port": port,
            **traffic_options(settings),
        }
        return ["sh", "-c", 'exec python3 "$0" "$@"', tool, *as_words(options), "--", *eal]

    return Adapter("dpdk-testpmd", argv, CAPABILITIES, start_s=START_S, refusals=REFUSALS)


def installed(host: Host, folder: str, place: DpdkPlace, cores: Sequence[int]) -> Installed:
    """Send the tool to ``folder``; the first of ``cores`` waits for commands, the others send and receive."""
    path = str(place.path)
    if len(cores) < 2:
        raise UnsupportedError(f"{host.name}: testpmd needs two CPUs, one of them to itself, not {len(cores)}")
    if not host.run(["test", "-x", path], check=False).ok:
        raise HostError(f"{host.name}: no testpmd at {path}", remedy="apt install dpdk")
    tool = f"{folder}/{TOOL}"
    host.put(Path(__file__).with_name(TOOL), tool)
    adapter = testpmd(path, port=place.port, cores=cores, eal=eal_arguments(place.dpdk, place.card))
    return Installed(adapter, tool, str(place.port))


def eal_arguments(dpdk: Sequence[str], pci: str | None) -> list[str]:
    """Return DPDK's arguments as `own_arguments` does; this DPDK calls the card that it may open ``-a``."""
    return own_arguments(dpdk, pci, allow="-a")
