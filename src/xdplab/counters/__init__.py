"""Counters of both hosts: read at rest around the window, recorded through it, derived from the files they leave."""

from xdplab.counters.derive import DERIVED, derive, derive_from_directory
from xdplab.counters.probe import Probe, Recording, install
from xdplab.counters.table import COLLECTORS, RECORDERS
from xdplab.counters.value import Value, jain_index

__all__ = [
    "COLLECTORS",
    "DERIVED",
    "RECORDERS",
    "Probe",
    "Recording",
    "Value",
    "derive",
    "derive_from_directory",
    "install",
    "jain_index",
]
