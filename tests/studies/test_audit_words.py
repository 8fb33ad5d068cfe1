"""How an audit names points: by what tells them apart."""

import pandas as pd

from xdplab.studies.traffic.audits import point_label


def test_a_program_without_accesses_is_named_by_its_file() -> None:
    same = {"mode": "native", "queues": 1, "frame_bytes": 64}
    trials = pd.DataFrame(
        [
            {"point_id": "p", "program_name": "a.bpf.c", "accesses": pd.NA, **same},
            {"point_id": "q", "program_name": "array-read", "accesses": 100, **same},
        ]
    ).astype({"accesses": "Int64"})
    assert point_label(trials) == {"p": "native, 1 queue, 64 B, a.bpf.c", "q": "native, 1 queue, 64 B, N = 100"}
