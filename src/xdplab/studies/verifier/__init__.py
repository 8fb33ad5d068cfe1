"""How long the kernel's verifier takes and how much memory it needs, by program size.

`STUDY.start` gathers objects and makes a run, which measures, resumes, tables and draws itself.
"""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "STUDY": "xdplab.studies.verifier.runs",
        "VerifierRun": "xdplab.studies.verifier.runs",
        "smallest": "xdplab.studies.verifier.runs",
        "Request": "xdplab.studies.verifier.runs:VerifierRequest",
    },
)
