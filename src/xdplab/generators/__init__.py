"""Traffic generators: what to send, what a generator can do, and a session of one on a host.

An adapter is an argument vector and a table of capabilities; the output is the same for all (`formats.generator`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from xdplab.generators.adapter import (
    BY_DPDK,
    XDPGEN,
    Adapter,
    Capabilities,
    DpdkPlace,
    GeneratorSettings,
    Installed,
    xdpgen_argv,
)
from xdplab.generators.session import OUTPUT, OUTPUT_BACK, BothWays, Generator, Sender, Staying
from xdplab.hosts import Host

__all__ = [
    "BY_DPDK",
    "OUTPUT",
    "OUTPUT_BACK",
    "XDPGEN",
    "Adapter",
    "BothWays",
    "Capabilities",
    "Generator",
    "GeneratorSettings",
    "Installed",
    "Sender",
    "Staying",
    "engines_of",
    "installed",
    "xdpgen_argv",
]


class DpdkGenerator(Protocol):
    """The module of a generator that its user has installed."""

    CAPABILITIES: Mapping[str, Capabilities]

    def installed(self, host: Host, folder: str, place: DpdkPlace, cores: Sequence[int], /) -> Installed:
        """Send what the generator needs to ``folder`` on the TG; ``cores``: the CPUs that it may poll on.

        Raises UnsupportedError for fewer than two CPUs, HostError if the generator is not there.
        """


BY_NAME = {"moongen": "xdplab.generators.moongen", "testpmd": "xdplab.generators.testpmd"}
"""Add a line here for a new generator."""


def _module(kind: str) -> DpdkGenerator:
    return cast("DpdkGenerator", importlib.import_module(BY_NAME[kind]))


def engines_of(kind: str) -> Mapping[str, Capabilities]:
    """Return the engines of a kind of generator, its usual one first. Nothing is built or installed."""
    return XDPGEN.capabilities if kind == XDPGEN.name else _module(kind).CAPABILITIES


def installed(kind: str, host: Host, folder: str, place: DpdkPlace, cores: Sequence[int]) -> Installed:
    """Prepare a generator that its user has installed on the TG, as `DpdkGenerator.installed` says."""
    return _module(kind).installed(host, folder, place, cores)
