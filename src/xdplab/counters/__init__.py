"""Counters of both hosts: read at rest around the window, recorded through it, derived from the files they leave."""

from xdplab.counters.columns import (
    COUNTERS,
    Counters,
    counted,
    files_in,
    intervals,
    metrics,
    packets_counted,
    unreadable,
)
from xdplab.counters.cpu import CpuInterval
from xdplab.counters.packets import jain_index
from xdplab.counters.probe import CounterProbe, Recording, install
from xdplab.counters.readings import Readings
from xdplab.counters.table import COLLECTORS, RECORDERS

__all__ = [
    "COLLECTORS",
    "COUNTERS",
    "RECORDERS",
    "CounterProbe",
    "Counters",
    "CpuInterval",
    "Readings",
    "Recording",
    "counted",
    "files_in",
    "install",
    "intervals",
    "jain_index",
    "metrics",
    "packets_counted",
    "unreadable",
]
