"""XDP programs: generated with exactly N proved accesses per packet, or a user's own.

`ProgramSpec` specifies a program, `source` and `user_source` write it, `build` compiles it once, `prove` shows that it
does exactly what it should, `load_report` shows the kernel's image of it, `testrun` measures its cost per packet.
`program` returns the object for the notebook, which does all of this on demand.
"""
