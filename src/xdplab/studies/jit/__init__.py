"""Interpreter against JIT, for every kind of BPF instruction: the kernel's own tests, programs of one class, filters.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "STUDY": "xdplab.studies.jit.runs",
        "JitPoint": "xdplab.studies.jit.points",
        "JitRequest": "xdplab.studies.jit.points",
        "JitRun": "xdplab.studies.jit.runs",
        "smallest": "xdplab.studies.jit.points",
    },
)
