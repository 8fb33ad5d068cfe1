"""What bringing code into the kernel costs: a BPF program opened, verified, compiled, attached; a module inserted.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.studies.loading.points import LoadingPoint, LoadingRequest, smallest
from xdplab.studies.loading.runs import STUDY, LoadingRun

__all__ = ["STUDY", "LoadingPoint", "LoadingRequest", "LoadingRun", "smallest"]
