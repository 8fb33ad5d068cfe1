"""What the same code costs interpreted, compiled by the JIT, in a kernel module and in user space.

`STUDY.start` compiles the benchmarks and makes a run, which measures, resumes, tables and draws itself.
"""
