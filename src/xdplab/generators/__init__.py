"""Traffic generators: what to send, what a generator can do, and a session of one on a host.

An adapter is an argument vector and a table of capabilities; the output is the same for all (`formats.generator`).
"""

from xdplab.generators.adapter import XDPGEN, Adapter, xdpgen_argv
from xdplab.generators.capabilities import Capabilities
from xdplab.generators.moongen import CAPABILITIES as moongen_engines
from xdplab.generators.moongen import moongen
from xdplab.generators.session import OUTPUT, OUTPUT_BACK, BothWays, Generator, Sender, Staying
from xdplab.generators.settings import GeneratorSettings
from xdplab.generators.testpmd import CAPABILITIES as testpmd_engines
from xdplab.generators.testpmd import testpmd

BY_DPDK = (*moongen_engines, *testpmd_engines)
"""Engines whose generator is a DPDK program: it polls the TG's port, and no program of the kernel's is there."""

ENGINES = {"xdpgen": XDPGEN.capabilities, "moongen": moongen_engines, "testpmd": testpmd_engines}
"""The engines of each kind of generator, its usual one first."""

__all__ = [
    "BY_DPDK",
    "ENGINES",
    "OUTPUT",
    "OUTPUT_BACK",
    "XDPGEN",
    "Adapter",
    "BothWays",
    "Capabilities",
    "Generator",
    "GeneratorSettings",
    "Sender",
    "Staying",
    "moongen",
    "testpmd",
    "xdpgen_argv",
]
