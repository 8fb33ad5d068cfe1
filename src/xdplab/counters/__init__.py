"""Counters of both hosts: read at rest around the window, recorded through it, derived from the files they leave."""

from xdplab.counters.cpu import CpuInterval
from xdplab.counters.derive import DERIVED, derive, derive_from_directory, intervals, unreadable
from xdplab.counters.probe import CounterProbe, Recording, install
from xdplab.counters.table import COLLECTORS, RECORDERS
from xdplab.counters.value import Value, jain_index

__all__ = [
    "COLLECTORS",
    "DERIVED",
    "RECORDERS",
    "CounterProbe",
    "CpuInterval",
    "Recording",
    "Value",
    "derive",
    "derive_from_directory",
    "install",
    "intervals",
    "jain_index",
    "unreadable",
]
