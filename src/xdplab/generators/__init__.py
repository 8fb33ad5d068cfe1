"""Traffic generators: what to send, what a generator can do, and a session of one on a host.

An adapter is an argument vector and a table of capabilities; the output is the same for all (`formats.generator`).
"""

from xdplab.generators.adapter import XDPGEN, Adapter, xdpgen_argv
from xdplab.generators.capabilities import Capabilities
from xdplab.generators.moongen import moongen
from xdplab.generators.session import Generator
from xdplab.generators.settings import GeneratorSettings
from xdplab.generators.staying import Staying

__all__ = ["XDPGEN", "Adapter", "Capabilities", "Generator", "GeneratorSettings", "Staying", "moongen", "xdpgen_argv"]
