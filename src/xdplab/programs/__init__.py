"""XDP programs: generated with exactly N proved accesses a packet, or a user's own.

`ProgramSpec` says what a program is to do, `source` and `user_source` write it, `build` compiles it once, `prove` shows
that it does exactly that, `load_report` what a kernel makes of it, `testrun` what a packet costs. `program` returns the
object for the notebook, which does all of it when asked.
"""

from xdplab.programs.build import BuiltProgram, build
from xdplab.programs.onhost import LoadReport, TestRun, calibrated_testrun, load_report, testrun
from xdplab.programs.program import Program, cache_directory, program
from xdplab.programs.proof import Proof, prove, prove_user
from xdplab.programs.source import USER_FLAGS, source, user_source
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.programs.userspace import user_work
from xdplab.programs.work import AccessWork, kernel_work

__all__ = [
    "USER_FLAGS",
    "AccessWork",
    "BuiltProgram",
    "LoadReport",
    "Program",
    "ProgramSpec",
    "Proof",
    "TestRun",
    "UserProgram",
    "build",
    "cache_directory",
    "calibrated_testrun",
    "kernel_work",
    "load_report",
    "program",
    "prove",
    "prove_user",
    "source",
    "testrun",
    "user_source",
    "user_work",
]
