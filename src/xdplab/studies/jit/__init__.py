"""Interpreter against JIT, for every kind of BPF instruction: the kernel's own tests, programs of one class, filters.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.studies.jit.points import JitPoint, JitRequest, smallest
from xdplab.studies.jit.runs import STUDY, JitRun

__all__ = ["STUDY", "JitPoint", "JitRequest", "JitRun", "smallest"]
