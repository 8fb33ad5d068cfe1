"""How long the kernel's verifier takes and how much memory it needs, by program size: over kernels, compilers, PREVAIL.

`start` gathers objects and makes a run directory, `execute` measures (and resumes), `table`, `tables` and `draw` show.
"""

from xdplab.studies.verifier.runs import (
    Request,
    VerifierRun,
    draw,
    execute,
    figure,
    open_run,
    silent,
    smallest,
    start,
    table,
    tables,
)

__all__ = [
    "Request",
    "VerifierRun",
    "draw",
    "execute",
    "figure",
    "open_run",
    "silent",
    "smallest",
    "start",
    "table",
    "tables",
]
