"""XDP programs: generated with exactly N proved accesses per packet, or a user's own.

`ProgramSpec` says what a program is to do, `source` and `user_source` write it, `build` compiles it once, `prove` shows
that it does exactly that, `load_report` what a kernel makes of it, `testrun` what a packet costs. `program` returns the
object for the notebook, which does all of it when asked.
"""
