"""Traffic generators: what to send, what a generator can do, and a session of one on a host.

An adapter is an argument vector and a table of capabilities; the output is the same for all (`formats.generator`).
"""

from xdplab.traffic.adapter import XDPGEN, Adapter, xdpgen_argv
from xdplab.traffic.capabilities import Capabilities
from xdplab.traffic.moongen import moongen
from xdplab.traffic.session import Generator
from xdplab.traffic.settings import GeneratorSettings

__all__ = ["XDPGEN", "Adapter", "Capabilities", "Generator", "GeneratorSettings", "moongen", "xdpgen_argv"]
