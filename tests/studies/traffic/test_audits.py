"""An audit: fits are told with what distinguishes them, no error is printed as 0, points are named by their factors."""

import pandas as pd
from tests.analysis import synthetic

from xdplab.studies.traffic.audits import _fit_lines, _with_error, audit, fits_by_repetition, point_label


def test_fits_of_two_working_sets_are_told_apart() -> None:
    """Two rows of the table had the same words and other numbers."""
    parts = [
        synthetic.run(workload="chase", working_set_bytes=size, repetitions=1, vary={"accesses": [0, 100, 1600]})
        for size in (32768, 1 << 20)
    ]
    trials = pd.concat([part.assign(point_id=part["point_id"] + str(n)) for n, part in enumerate(parts)])
    fits = fits_by_repetition(trials.assign(trial_id=trials["point_id"]))
    assert [fit.setting for fit in fits] == ["1 MiB working set", "32 KiB working set"]
    assert "| native | 1 | 1 | chase-read, 1 MiB working set |" in "\n".join(_fit_lines(fits))
    assert [fit.setting for fit in fits_by_repetition(parts[0])] == [""]


def test_a_small_error_is_not_none() -> None:
    assert _with_error(108.04, 0.34, 0) == "108.0 ± 0.3"
    assert _with_error(0.01234, 0.00042, 3) == "0.0123 ± 0.0004"
    assert _with_error(108.04, 3.4, 0) == "108 ± 3"
    assert _with_error(2.4, None, 3) == "2.400"
    assert _with_error(2.4, 0.0, 3) == "2.400 ± 0.000"


def test_a_line_through_two_points_has_no_r2() -> None:
    """Each repetition of two N was told with R² = 1.0000."""
    trials = synthetic.run(workload="chase", vary={"accesses": [0, 100]})
    fits = fits_by_repetition(trials)
    assert [(fit.accesses, fit.r2) for fit in fits] == [(2, None)] * 3
    assert all(line.endswith(" |  | 2 | 2 |") for line in _fit_lines(fits)[4:])


def test_a_program_without_accesses_is_named_by_its_file() -> None:
    same = {"mode": "native", "queues": 1, "frame_bytes": 64}
    trials = pd.DataFrame(
        [
            {"point_id": "p", "program_name": "a.bpf.c", "accesses": pd.NA, **same},
            {"point_id": "q", "program_name": "array-read", "accesses": 100, **same},
        ]
    ).astype({"accesses": "Int64"})
    assert point_label(trials) == {"p": "native, 1 queue, 64 B, a.bpf.c", "q": "native, 1 queue, 64 B, N = 100"}
    of_a_file = trials.assign(frame_bytes=pd.array([pd.NA, 64], dtype="Int64"))
    assert point_label(of_a_file)["p"] == "native, 1 queue, a.bpf.c", "the frames of a file have no size: `<NA> B`"
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


def test_a_run_without_a_valid_trial_has_an_audit_without_fits() -> None:
    trials = synthetic.run(vary={"accesses": [0, 100]}, workload="chase", repetitions=1)
    assert audit("run", trials.assign(verdict="invalid")).fits == ()
