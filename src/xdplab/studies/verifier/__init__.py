"""How long the kernel's verifier takes and how much memory it needs, by program size.

`STUDY.start` gathers objects and makes a run, which measures, resumes, tables and draws itself.
"""
