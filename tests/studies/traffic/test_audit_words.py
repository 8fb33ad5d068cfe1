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
    both = pd.concat([trials, trials.assign(point_id=["r", "s"], program_name=["b.bpf.c", "chase-read"])])
    assert point_label(both) == {
        "p": "native, 1 queue, 64 B, a.bpf.c",
        "q": "native, 1 queue, 64 B, N = 100, array read",
        "r": "native, 1 queue, 64 B, b.bpf.c",
        "s": "native, 1 queue, 64 B, N = 100, chase read",
    }


def test_points_with_the_same_words_get_the_factors_that_tell_them_apart() -> None:
    same = {"mode": "native", "queues": 1, "frame_bytes": 64, "accesses": 100, "engine": "live", "xsk_bind": pd.NA}
    rows = [
        {"point_id": "a", "program_name": "chase-read", "load": "max"},
        {"point_id": "b", "program_name": "chase-read", "load": "20kpps"},
        {"point_id": "c", "program_name": "lookup-read", "load": "max"},
        {"point_id": "d", "program_name": "lookup-read", "load": "max", "mode": "af_xdp", "xsk_bind": "copy"},
        {"point_id": "e", "program_name": "lookup-read", "load": "max", "mode": "af_xdp", "xsk_bind": "zerocopy"},
    ]
    assert point_label(pd.DataFrame([same | row for row in rows]).astype({"accesses": "Int64"})) == {
        "a": "native, 1 queue, 64 B, N = 100, chase read, maximum load",
        "b": "native, 1 queue, 64 B, N = 100, chase read, load 20kpps",
        "c": "native, 1 queue, 64 B, N = 100, lookup read, maximum load",
        "d": "af_xdp, 1 queue, 64 B, N = 100, lookup read, maximum load, AF_XDP copy",
        "e": "af_xdp, 1 queue, 64 B, N = 100, lookup read, maximum load, AF_XDP zerocopy",
    }
