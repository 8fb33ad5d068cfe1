"""Interpreter against JIT, for every kind of BPF instruction: the kernel's own tests, programs of one class, filters.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""
