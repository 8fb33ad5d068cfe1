"""What the same code costs interpreted, compiled by the JIT, in a kernel module and in user space.

`STUDY.start` compiles the benchmarks and makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "STUDY": "xdplab.studies.execution.runs",
        "ExecutionRun": "xdplab.studies.execution.runs",
        "smallest": "xdplab.studies.execution.points",
        "Request": "xdplab.studies.execution.points:ExecutionRequest",
    },
)
