"""The first table of a run: a row per point, with a mean whose digits fit its interval."""

import math

import pandas as pd
import pytest

from xdplab.analysis.intervals import Spread
from xdplab.analysis.summary import constant_words, for_people, points_summary, varying
from xdplab.analysis.values import three_digits
from xdplab.studies.traffic.columns import trials_frame

RATES = {0: (7.0e6, 7.2e6, 7.4e6), 100: (2.00e6, 2.01e6, 2.02e6), 1600: (0.20e6,)}


def trials() -> pd.DataFrame:
    rows: list[dict[str, object]] = [
        {
            "run_id": "r", "trial_id": f"{accesses}-{number}", "attempt": 1, "point_id": str(accesses),
            "mode": "native", "queues": 1, "workload": "array", "accesses": accesses, "load": "max",
            "forwarded_pps": rate, "latency_p50_ns": 9000.0, "verdict": "valid", "limited_by": "shared_cpu",
        }
        for accesses, rates in RATES.items()
        for number, rate in enumerate(rates)
    ]  # fmt: skip
    rows.append(rows[3] | {"trial_id": "100-3", "forwarded_pps": 9e6, "verdict": "invalid", "limited_by": None})
    return trials_frame(rows)


def test_each_point_has_a_row_with_its_interval_over_valid_repetitions() -> None:
    """Each value has numbers of its own, and the points come in the order of their factors, not of the trials."""
    frame = trials().iloc[::-1].assign(rate_requested_pps=1.0, offered_pps=1.0)
    frame["latency_p50_ns"], frame["latency_p99_ns"] = frame["forwarded_pps"] / 10, frame["forwarded_pps"] / 5
    frame["testrun_raw_ns"] = frame["forwarded_pps"] / 1e5
    frame.loc[2, "limited_by"] = "dut"
    found = points_summary(frame)
    assert list(found["accesses"]) == [0, 100, 1600]
    assert list(found["n"]) == [3, 3, 1]
    assert list(found["verdicts"]) == ["3 valid", "3 valid, 1 invalid", "1 valid"]
    assert list(found["limited_by"]) == ["shared_cpu, dut", "shared_cpu", "shared_cpu"]
    for name, unit in {"mpps": 1e6, "p50_us": 1e4, "p99_us": 5e3, "testrun_ns": 1e5}.items():
        ends = [name, f"{name}_low", f"{name}_high"]
        for row, rates in enumerate(RATES.values()):
            values = [rate / unit for rate in rates]
            known = Spread.of(values, "geometric" if name.startswith("p") else "linear")
            nulls = (known.low, known.high) if len(values) > 1 else (math.nan, math.nan)
            assert found.loc[row, ends].tolist() == pytest.approx([known.mean, *nulls], nan_ok=True)
    texts = trials().assign(load=[f"{5 * rate:g}" for rate in trials()["forwarded_pps"].rank()], accesses=100)
    assert list(points_summary(texts.assign(point_id=texts["load"]))["load"]) == [
        str(5 * place) for place in range(1, 9)
    ]
    named = texts.assign(load=["50%", "max", "20kpps", "9kpps", "1%", "2%", "3%", "4%"], point_id=texts["load"])
    assert list(points_summary(named)["load"]) == ["1%", "2%", "20kpps", "3%", "4%", "50%", "9kpps", "max"]
    assert list(points_summary(named, [str(5 * place) for place in range(8, 0, -1)])["load"])[::7] == ["4%", "3%"]


def test_only_what_varies_is_named_and_latency_only_at_paced_loads() -> None:
    assert varying(trials()) == ["accesses"]
    assert not {"mode", "p50_us"} & set(points_summary(trials()).columns)
    paced = trials().assign(rate_requested_pps=2e4, load="20kpps")
    assert points_summary(paced).loc[0, "p50_us"] == pytest.approx(9.0)


def test_a_trial_that_missed_its_load_has_no_part_in_a_latency() -> None:
    paced = trials().assign(rate_requested_pps=2e4, offered_pps=2e4, load="20kpps")
    paced.loc[0, ["offered_pps", "latency_p50_ns"]] = 1e4, 9e6
    assert points_summary(paced).loc[0, ["p50_us", "p50_us_n"]].tolist() == pytest.approx([9.0, 2])


def test_points_are_named_by_what_was_chosen_not_by_what_follows_from_it() -> None:
    two = pd.concat(
        trials().assign(point_id=engine, engine=engine, tx_stamp=stamp, accesses=None)
        for engine, stamp in (("live", None), ("afxdp", "software"))
    )
    assert varying(two) == ["engine"]


def test_the_digits_are_those_that_the_interval_leaves() -> None:
    assert list(for_people(points_summary(trials()))["Mpps"]) == ["7.20 ± 0.50", "2.010 ± 0.025", "0.2"]
    ends = pd.DataFrame(
        {"mpps": [7.2, 123.4, 1234.0, 5.0], "mpps_low": [7.0, 100.0, 1e3, 5.0], "mpps_high": [7.4, 146.8, 1.5e3, 5.0]}
    )
    assert list(for_people(ends)["Mpps"]) == ["7.20 ± 0.20", "123 ± 23", "1234 ± 250", "5"]


def test_an_interval_that_tells_nothing_gives_way_to_the_range_of_the_repetitions() -> None:
    """Of p99s of 61 and 2,000 µs the interval by Student's t is [8e-08, 1.5e+12] µs."""
    apart = trials()[3:5].assign(latency_p99_ns=[61e3, 2e6], rate_requested_pps=1e4, forwarded_pps=[1e6, 2e6])
    shown = for_people(points_summary(apart))
    assert shown.loc[0, ["Mpps", "p99 µs"]].tolist() == ["1.5 (1 to 2)", "349 (61 to 2,000)"]


def test_the_interval_of_a_latency_lies_above_zero_and_holds_its_mean() -> None:
    far_apart = [10 ** (3 + at % 3) for at in range(len(trials()))]
    shown = points_summary(trials().assign(latency_p99_ns=far_apart, rate_requested_pps=1e4, verdict="valid"))
    several = shown[shown["n"].gt(1)]
    assert len(several)
    assert (several["p99_us_low"].gt(0) & several["p99_us_low"].lt(several["p99_us"])).all()
    assert (several["p99_us"] < several["p99_us_high"]).all()
    close = shown.assign(p99_us_low=shown["p99_us"] / 1.2, p99_us_high=shown["p99_us"] * 1.2)
    assert for_people(close)["p99 µs"].str.contains("[", regex=False).sum() == len(shown)


def test_a_run_without_a_trial_has_no_points() -> None:
    assert points_summary(trials().iloc[:0]).empty


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.03124, "0.0312"),
        (2.4, "2.4"),
        (999.6, "1,000"),
        (6760.4, "6,760"),
        (-59321.0, "-59,300"),
        (1.234e7, "12,300,000"),
    ],
)
def test_a_number_in_a_sentence_has_three_digits_and_no_exponent(value: float, words: str) -> None:
    assert three_digits(value) == words


def test_points_of_several_sizes_are_named_so() -> None:
    """Their frame size is null, which told nothing: the column of the mix stands before it."""
    base = {"run_id": "r", "attempt": 1, "mode": "native", "queues": 1, "verdict": "valid", "forwarded_pps": 1e6}
    sizes = [("none", 64), ("none", 1518), ("simple", None)]
    rows = [
        base | {"trial_id": f"{n}-r1", "point_id": str(n), "imix": mix, "frame_bytes": size}
        for n, (mix, size) in enumerate(sizes)
    ]
    assert varying(trials_frame(rows)) == ["imix", "frame_bytes"]


def test_equal_labs_that_share_a_run_have_rows_of_their_own() -> None:
    """A point's mean over both labs was told as that of the first one."""
    both = pd.concat([trials().assign(lab="a"), trials().assign(lab="b")], ignore_index=True)
    both["trial_id"] = both["lab"].astype(str) + both["trial_id"].astype(str)
    slow = both["lab"].eq("b")
    both.loc[slow, "forwarded_pps"] = both.loc[slow, "forwarded_pps"] / 2
    early = both[both["accesses"].eq(0)].iloc[:1].assign(trial_id="early", lab=pd.NA, verdict="failed")
    found = points_summary(pd.concat([both, early], ignore_index=True))
    zero = found[found["accesses"].eq(0)]
    assert zero[["lab", "n", "mpps"]].to_numpy().tolist() == [["a", 3, 7.2], ["b", 3, 3.6]]
    assert found.loc[0, "verdicts"] == "3 valid, 1 failed"


def test_a_size_that_some_points_have_not_is_not_said_of_all() -> None:
    """Beside 64-byte frames there were frames of several sizes, and the title said "frame 64"."""
    one = trials().assign(frame_bytes=64, imix="none")
    mixed = trials().assign(frame_bytes=pd.NA, imix="simple")
    both = pd.concat([one, mixed], ignore_index=True).astype({"frame_bytes": "Int64"})
    assert constant_words(one, []) == "mode native, frame 64, queues 1, load max"
    assert constant_words(both, []) == "mode native, queues 1, load max"


def test_a_value_that_a_trial_lacks_has_its_own_n() -> None:
    paced = trials().assign(rate_requested_pps=2e4, load="20kpps")
    paced.loc[0, "latency_p50_ns"] = pd.NA
    table = points_summary(paced)
    assert list(table["n"]) == [3, 3, 1]
    assert table["p50_us_n"].fillna(0).tolist() == [2, 0, 0]
    assert list(for_people(table)["p50 µs"]) == ["9 (n = 2)", "9", "9"]
    assert "mpps_n" not in table
