"""The only writer of results: run directories, the journal, the tables derived from it."""

from xdplab.store.journal import Journal
from xdplab.store.rundir import RunDirectory

__all__ = ["Journal", "RunDirectory"]
