"""XDP programs: generated with exactly N proved accesses per packet, or a user's own.

`ProgramSpec` specifies a program, `source` and `user_source` write it, `build` compiles it once, `prove` shows that it
does exactly what it should, `load_report` shows the kernel's image of it, `testrun` measures its cost per packet.
`program` returns the object for the notebook, which does all of this on demand.
"""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "USER_FLAGS": "xdplab.programs.source",
        "BuiltProgram": "xdplab.programs.build",
        "LoadReport": "xdplab.programs.onhost",
        "Program": "xdplab.programs.program",
        "ProgramSpec": "xdplab.programs.spec",
        "Proof": "xdplab.programs.proof",
        "TestRun": "xdplab.programs.onhost",
        "UserProgram": "xdplab.programs.spec",
        "cache_directory": "xdplab.programs.program",
        "calibrated_testrun": "xdplab.programs.onhost",
        "load_report": "xdplab.programs.onhost",
        "prove": "xdplab.programs.proof",
        "prove_user": "xdplab.programs.proof",
        "testrun": "xdplab.programs.onhost",
        "user_source": "xdplab.programs.source",
    },
    functions=("build", "program", "source"),
)
