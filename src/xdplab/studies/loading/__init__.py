"""What loading code into the kernel costs: a BPF program opened, verified, compiled, attached; a module inserted.

`STUDY.start` makes a run, which measures, resumes, tables and draws itself.
"""
