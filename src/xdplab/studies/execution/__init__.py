"""What the same code costs interpreted, compiled by the JIT, in a kernel module and in user space.

`STUDY.start` compiles the benchmarks and makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.studies.execution.points import ExecutionRequest, smallest
from xdplab.studies.execution.runs import STUDY, ExecutionRun

__all__ = ["STUDY", "ExecutionRequest", "ExecutionRun", "smallest"]
