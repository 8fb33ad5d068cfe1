"""What loading code into the kernel costs: a BPF program opened, verified, compiled, attached; a module inserted.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "STUDY": "xdplab.studies.loading.runs",
        "LoadingPoint": "xdplab.studies.loading.points",
        "LoadingRequest": "xdplab.studies.loading.points",
        "LoadingRun": "xdplab.studies.loading.runs",
        "smallest": "xdplab.studies.loading.points",
    },
)
