"""Searches with modelled DUTs must find the model's values."""

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from tests.attempts import attempt_of

from xdplab.errors import HostError, PlanError, UnsupportedError
from xdplab.formats.generator import Burst, Histogram, Summary
from xdplab.plan import Trial, parse_plan, points_of, schedule
from xdplab.run.frames import NULL_REASONS
from xdplab.run.state import as_json
from xdplab.studies.search.kind import SearchRequest, as_searched, method
from xdplab.studies.search.profile import PROFILES, Rfc2544Tests, profile
from xdplab.studies.search.rfc2544 import Offer, Offered, back_to_back, loss_curve, search
from xdplab.studies.search.rows import remarks, rfc2544_lines, rfc2544_tables, row_of, shown
from xdplab.studies.search.study import SearchFacts, SearchStudy, Send, largest_accesses, search_point
from xdplab.studies.search.views import VIEWS
from xdplab.studies.traffic.pdr import offered_rate
from xdplab.studies.traffic.runs import JudgingObserver
from xdplab.studies.trial_facts import Limit, TrialFacts

QUICK = PROFILES["quick"]
LINE = 4e6
"""The frames per second that the model's generator can send."""

HISTOGRAM = Histogram("b", 7, 2, 100, 101, 201, ((100, 1), (101, 1)))


def dut(forwards: Callable[[float], float], noise: Callable[[], float] = lambda: 0.0) -> Offer:
    """Return a DUT that forwards ``forwards`` of an offered rate; it loses a share of ``noise`` in addition."""

    def offer(rate: float | None, seconds: float) -> Offered:
        rate = min(rate or LINE, LINE)
        sent = round(rate * seconds)
        received = min(sent, round(forwards(rate) * seconds * (1 - noise())))
        return Offered(sent, received, seconds, HISTOGRAM)

    return offer


def hard(capacity: float) -> Callable[[float], float]:
    return lambda rate: min(rate, capacity)


@pytest.mark.parametrize("capacity", [20e3, 0.7e6, 1.234e6, 3.9e6])
def test_a_hard_limit_lies_between_the_bounds(capacity: float) -> None:
    found = search(dut(hard(capacity)), QUICK, max_pps=LINE)
    assert found.ndr.lower_pps is not None
    assert found.ndr.upper_pps is not None
    assert found.ndr.lower_pps <= capacity <= found.ndr.upper_pps
    assert found.ndr.upper_pps <= found.ndr.lower_pps * (1 + 2 * QUICK.width)
    assert found.pdr.lower_pps is not None
    assert found.ndr.lower_pps <= found.pdr.lower_pps <= capacity * 1.01


def test_what_loses_at_any_load_has_no_ndr_but_may_have_a_pdr() -> None:
    found = search(dut(lambda rate: 0.998 * min(rate, 1e6)), QUICK, max_pps=LINE)
    assert found.ndr.lower_pps is None
    assert found.ndr.throughput_pps is None
    assert found.pdr.lower_pps == pytest.approx(1e6, rel=0.1)


def test_a_dut_that_is_faster_than_the_generator_has_no_upper_bound() -> None:
    found = search_point(dut(hard(2 * LINE)), QUICK, LINE)
    assert found.pdr.upper_pps is None
    assert found.limited_by == "generator"
    assert found.livelock is False


def livelock(rate: float) -> float:
    """Above 1 Mpps, every further frame costs one that would have been forwarded."""
    return rate if rate <= 1e6 else max(0.0, 1e6 - 0.2 * (rate - 1e6))


def test_a_dut_whose_mrr_lies_below_its_pdr_is_reported_as_livelock() -> None:
    (trial, *_) = trials("split")
    found = {name: search_point(dut(model), QUICK, LINE) for name, model in (("lock", livelock), ("hard", hard(1e6)))}
    assert found["lock"].mrr_pps == pytest.approx(0.4e6)
    assert found["lock"].pdr.lower_pps == pytest.approx(1e6, rel=0.1)
    assert {name: one.livelock for name, one in found.items()} == {"lock": True, "hard": False}
    rows = {
        name: pd.DataFrame([row_of(trial, attempt_of(trial.trial_id, facts=as_json(SearchFacts(search=one.short))))])
        for name, one in found.items()
    }
    (line,) = remarks(rows["lock"])
    assert line.startswith("array-read N=0 native 1q 64 B: livelock: the MRR, 400 kpps, lies ")
    assert remarks(rows["hard"]) == []
    lower, upper = (float(bound) for bound in shown(rows["lock"])[0]["PDR kpps"].split("–"))
    assert 900 < lower < upper < 1100


def test_the_mrr_is_the_median_of_its_bursts_and_says_how_far_they_lie_apart() -> None:
    losses = iter([0.0, 0.5, 0.1] + [0.0] * 1000)
    found = search_point(dut(hard(LINE), lambda: next(losses)), replace(QUICK, mrr_repeats=3), LINE)
    assert [found.mrr_pps, found.mrr_low_pps, found.mrr_high_pps] == pytest.approx([0.9 * LINE, 0.5 * LINE, LINE])


def test_a_search_that_ends_at_the_cables_rate_is_limited_by_the_link() -> None:
    assert search_point(dut(hard(LINE)), QUICK, LINE, carried_pps=LINE).limited_by == "link"
    assert search_point(dut(hard(LINE)), QUICK, LINE, carried_pps=2 * LINE).limited_by == "generator"
    assert search_point(dut(hard(LINE / 2)), QUICK, LINE, carried_pps=LINE).limited_by == "dut"


def test_losses_that_the_senders_own_pauses_make_are_the_generators() -> None:
    def offer(rate: float | None, seconds: float) -> Offered:
        """A DUT that carries everything, and a sender that stands still for 50 ms per second above 0.1 Mpps."""
        sent = round(min(rate or LINE, LINE) * seconds)
        late = round(0.05 * sent) if sent / seconds > 0.1e6 else 0
        return Offered(sent, sent - late // 2, seconds, HISTOGRAM, late)

    assert search_point(offer, QUICK, LINE).limited_by == "generator"
    assert search_point(lambda r, s: replace(offer(r, s), late=0), QUICK, LINE).limited_by == "dut"
    assert search_point(lambda r, s: replace(offer(r, s), late=None), QUICK, LINE).limited_by == "dut"


def test_what_the_tgs_ring_did_not_take_is_no_limit_and_no_livelock_of_the_dut() -> None:
    """A DUT that sends all back, to a TG that takes 2 Mpps, and fewer of more."""

    def offer(rate: float | None, seconds: float) -> Offered:
        sent = round(min(rate or LINE, LINE) * seconds)
        taken = min(sent, round(2e6 * seconds))
        taken -= (sent - taken) // 4
        return Offered(sent, taken, seconds, HISTOGRAM, 0, missed=sent - taken)

    found = search_point(offer, TESTS, LINE)
    assert (found.limited_by, found.ndr_limited_by, found.livelock) == ("generator", "generator", False)
    assert found.rfc2544 is not None
    assert [(at.loss_ratio, at.missed) for at in found.rfc2544.loss] == [(0, 2_500_000), (0, 2_000_000)]
    assert (found.rfc2544.back_to_back, found.mrr_loss_ratio) == (None, 0)
    found = search_point(lambda rate, seconds: replace(offer(rate, seconds), missed=0), TESTS, LINE)
    assert (found.limited_by, found.ndr_limited_by, found.livelock) == ("dut", "dut", True)
    assert found.rfc2544 is not None
    assert (found.rfc2544.loss[0].loss_ratio, found.mrr_loss_ratio) == (0.625, 0.625)


def test_a_throughput_that_the_tg_ended_tells_nothing_of_the_duts_buffer() -> None:
    """A DUT that loses above 3 Mpps, to a TG that takes all but a frame of each burst above 1 Mpps."""

    def offer(rate: float | None, seconds: float) -> Offered:
        found = dut(hard(3e6))(rate, seconds)
        missed = int(found.sent > 1e6 * seconds)
        return replace(found, received=found.received - missed, missed=missed, late=0)

    found = search_point(offer, TESTS, LINE)
    assert (found.ndr_limited_by, found.limited_by) == ("generator", "dut")
    assert found.rfc2544 is not None
    assert found.rfc2544.back_to_back is not None
    assert found.rfc2544.back_to_back.buffer_s is None
    assert "TG" in found.rfc2544.missing["buffer"]

    def carries_what_is_paced(rate: float | None, seconds: float) -> Offered:
        return dut(hard(LINE if rate else 3e6))(rate, seconds)

    found = search_point(carries_what_is_paced, TESTS, LINE)
    assert (found.ndr.upper_pps, found.ndr_limited_by) == (None, "generator")
    assert found.rfc2544 is not None
    assert "TG" in found.rfc2544.missing["buffer"]


def test_frames_that_the_sender_did_not_send_are_no_loss_of_the_dut() -> None:
    """A sender that reaches 4 Mpps unpaced and 3.7 Mpps paced ends the search, and the DUT was called its limit."""

    def offer(rate: float | None, seconds: float) -> Offered:
        sent = round((LINE if rate is None else min(rate, 0.93 * LINE)) * seconds)
        return Offered(sent, sent, seconds, HISTOGRAM, 0)

    found = search_point(offer, QUICK, LINE)
    assert found.pdr.upper_pps is not None
    assert found.limited_by == "generator"


def test_latency_can_be_left_out() -> None:
    found = search_point(dut(hard(1e6)), replace(QUICK, latency_repeats=0), LINE)
    assert (found.latency, found.latency_missing) == (None, "not requested: --no-latency")


@pytest.mark.parametrize(("capacity", "shares"), [(1e6, (0.004, 0.1, 0.5, 0.9)), (8e3, (0.1, 0.1, 0.5, 0.9))])
def test_latency_is_measured_at_the_shares_of_the_pdr_that_it_is_told_of_and_never_above(
    capacity: float, shares: tuple[float, ...]
) -> None:
    """The lowest load, a thousandth of the generator's, was half of a slow DUT's PDR, and stood for 0, 10 and 50 %."""
    loads: list[float] = []
    inner = dut(hard(capacity))

    def offer(rate: float | None, seconds: float) -> Offered:
        if seconds == QUICK.latency_s and rate is not None:
            loads.append(rate)
        return inner(rate, seconds)

    found = search_point(offer, replace(QUICK, latency_repeats=3), LINE)
    assert found.pdr.lower_pps is not None
    assert loads == pytest.approx([share * found.pdr.lower_pps for share in shares for _ in range(3)], rel=0.1)
    assert [at.samples for at in found.latency] == [6] * 4
    assert len(found.histograms) == 4


def test_without_a_pdr_there_is_no_latency_but_a_reason() -> None:
    found = search_point(dut(lambda rate: 0.5 * rate), QUICK, LINE)
    assert found.latency is None
    assert "no PDR" in found.latency_missing
    assert found.livelock is None


def test_a_search_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(HostError, match="MLRsearch gave up after"):
        search(dut(hard(1e6)), replace(QUICK, search_max_s=1e-9), max_pps=LINE)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_the_largest_n_is_bisected(share: float) -> None:
    cost = {"per_packet": 250e-9, "per_access": 2.5e-9}
    exact = cost["per_packet"] / cost["per_access"] * (1 / share - 1)
    found = largest_accesses(lambda n: 1 / (cost["per_packet"] + n * cost["per_access"]), share)
    assert found.too_many is not None
    assert found.enough <= exact <= found.too_many
    assert found.too_many - found.enough <= max(1, 0.05 * found.too_many)
    assert len(found.measured) < 20


def test_what_no_n_slows_has_no_end() -> None:
    assert largest_accesses(lambda n: 1e6, 0.5, most=64).too_many is None
    assert largest_accesses(lambda n: 1e6, 0.5, most=64).enough == 64
    assert largest_accesses(lambda n: 1e6 / (1 + n), 0.9).enough == 0


# --- as a study ---


def burst(found: Offered, **changes: Any) -> Burst:
    """Return a generator's output for it."""
    counts = {"duplicates": 0, "reordered": 0, "foreign_packets": 0, "bad_run_id": 0, "rx_by_queue": None}
    counts |= {"tx_by_queue": (found.sent,), "tx_errors": 0, "rate_requested_pps": None, "limited": None}
    lost = found.sent - found.received
    values = {"rx_packets": found.received, "lost_packets": lost} | counts | changes
    return Burst("b", (), Summary("b", found.seconds, found.sent, **values), found.latencies or HISTOGRAM)


def test_frames_that_come_twice_are_received_once_and_unknown_is_no_zero() -> None:
    assert Offered.of(burst(Offered(100, 90, 1.0), duplicates=5)).received == 85
    with pytest.raises(HostError, match="does not know: deaf"):
        Offered.of(burst(Offered(100, 90, 1.0), rx_packets=None, missing={"rx_packets": "deaf"}))


def test_frames_that_drained_after_a_burst_are_received_and_in_no_rate() -> None:
    """With N = 12800 on a veth, the MRR had 1.7 % of such frames in it, and a trial's rate of the same load none."""
    found = Offered.of(burst(Offered(100, 90, 1.0), duplicates=5, rx_window_packets=80, rx_window_s=1.25))
    assert (found.received, found.received_pps) == (85, 60.0)
    assert Offered.of(burst(Offered(100, 90, 1.0))).received_pps == 90.0


def test_frames_that_a_card_refused_were_not_sent(tmp_path: Path) -> None:
    """A DUT that forwards all 2 Mpps that the TG's card puts on the cable was the limit of a search."""
    refused = burst(Offered(100, 60, 1.0), tx_errors=40)
    assert Offered.of(refused, cable=True).sent == 60
    assert Offered.of(refused).sent == 100
    found = {}
    for link in (10e9, None):
        facts = SearchFacts()
        bench = ModelBench(dut(hard(2e6)), Limit(link), lambda one: burst(one, tx_errors=one.sent - one.received))
        SearchStudy(bench, QUICK).measure(trials("split")[0], tmp_path, facts)
        assert facts.search is not None
        found[link] = facts.search.limited_by
    assert found == {10e9: "generator", None: "dut"}


class ModelBench:
    """A bench whose DUT slows with N, unless it has a ``model``; ``seen`` makes a burst of what the DUT did."""

    def __init__(
        self, model: Offer | None = None, link: Limit | None = None, seen: Callable[[Offered], Burst] = burst
    ) -> None:
        self.model, self.link, self.seen = model, link, seen
        self.log: list[str] = []

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self.log.append("enter")

    def leave_block(self) -> None:
        self.log.append("leave")

    @contextmanager
    def attached(self, trial: Trial, raw: Path, facts: TrialFacts) -> Iterator[Send]:
        self.log.append(f"attach {trial.point.program.accesses}")
        facts.link = self.link or facts.link
        model = self.model or dut(hard(1 / (0.5e-6 + 2e-9 * (trial.point.program.accesses or 0))))
        yield lambda rate, seconds: (self.seen(model(rate, seconds)), 0)

    def generator_pps(self, trial: Trial) -> float | None:
        return LINE


def trials(arrangement: str) -> list[Trial]:
    plan = parse_plan(
        {"name": "t", "repetitions": 1, "blocks": [{"points": {"accesses": [0, 250]}, "arrangement": arrangement}]}
    )
    return schedule(plan, points_of(plan, "shared"))


def test_a_shared_core_cannot_be_searched(tmp_path: Path) -> None:
    bench = ModelBench()
    with pytest.raises(UnsupportedError, match="arrangement shared is a closed loop"):
        SearchStudy(bench, QUICK).measure(trials("shared")[0], tmp_path, SearchFacts())
    assert bench.log == []


def test_a_point_is_searched_and_becomes_a_row(tmp_path: Path) -> None:
    bench = ModelBench()
    study = SearchStudy(bench, QUICK, share=0.5)
    for trial in trials("split"):
        facts = SearchFacts()
        study.measure(trial, tmp_path, facts)
        row = row_of(trial, attempt_of(trial.trial_id, facts=as_json(facts)))
        assert row["ndr_pps"] == pytest.approx(2e6 if trial.point.program.accesses == 0 else 1e6, rel=0.06)
        assert row["ndr_pps"] <= row["pdr_pps"]
        assert row["generator_pps"] == LINE
        assert row["accesses_at_share"] == pytest.approx(250, rel=0.06)
        assert row["latency_90pdr_p50_ns"] == 100
        assert row["latency_90pdr_p99_ns"] is None  # of two frames it is the maximum
        assert json.loads(row[NULL_REASONS.name])["latency_90pdr_p99_ns"] == "too few stamped frames"
    assert (tmp_path / "search.json").is_file()


def own_trial(tmp_path: Path, **program: Any) -> Trial:
    """Return the trial of a user's program in an open loop."""
    (tmp_path / "own.bpf.c").write_text("")
    given = {"file": str(tmp_path / "own.bpf.c"), **program}
    plan = parse_plan({"name": "t", "blocks": [{"points": {"program": [given]}, "arrangement": "split"}]})
    return schedule(plan, points_of(plan, "shared"))[0]


def rewriting_bench() -> ModelBench:
    """Its user's program forwards up to 1 Mpps and rewrites the bytes that mark a test frame."""
    return ModelBench(dut(hard(1e6)), Limit(10e9), lambda one: burst(one, rx_packets=0, foreign_packets=one.received))


def searched(trial: Trial, tmp_path: Path, **study: Any) -> dict[str, Any]:
    facts, bench = SearchFacts(), rewriting_bench()
    SearchStudy(bench, QUICK, **study).measure(trial, tmp_path, facts)
    assert bench.log == ["attach None"]
    return row_of(trial, attempt_of(trial.trial_id, facts=as_json(facts)))


def test_frames_that_a_users_program_rewrote_came_back(tmp_path: Path) -> None:
    """They had counted as lost, at every load: an MRR of 0, and no PDR."""
    row = searched(own_trial(tmp_path), tmp_path)
    assert row["mrr_pps"] == pytest.approx(1e6)
    assert row["pdr_pps"] == pytest.approx(1e6, rel=0.06)
    few = burst(Offered(100, 90, 1.0), foreign_packets=5)
    assert Offered.of(few, own_program=True).received == 95
    strays = burst(Offered(100, 99, 1.0), foreign_packets=50)
    assert Offered.of(strays, own_program=True).received == 100
    assert Offered.of(burst(Offered(100, 0, 1.0), foreign_packets=90)).received == 0


def test_a_search_of_a_users_program_is_not_judged_as_a_trial(tmp_path: Path) -> None:
    """The first search of each point ended the run: "facts.search in the journal: there is no such fact"."""
    trial, seen = own_trial(tmp_path), []
    found = SearchFacts(search=search_point(dut(hard(1e6)), QUICK, LINE).short)
    ended = attempt_of(trial.trial_id, facts=as_json(found))
    observer: Any = SimpleNamespace(finished=lambda trial, attempt: seen.append(attempt))
    run: Any = None
    JudgingObserver(observer, run, 1.0, method(SearchRequest(QUICK))).finished(trial, ended)
    assert seen == [ended]


def test_a_users_program_has_no_n_to_bisect(tmp_path: Path) -> None:
    """All N had the same rate, so the greatest that is tried was called the largest that keeps half of it."""
    assert searched(own_trial(tmp_path), tmp_path, share=0.5)["accesses_at_share"] is None


@pytest.mark.parametrize("action", ["drop", "pass", "redirect", "mixed"])
def test_a_program_that_does_not_return_its_frames_is_not_searched(tmp_path: Path, action: str) -> None:
    """Its frames had counted as lost, as if the DUT carried no load at all."""
    bench = rewriting_bench()
    with pytest.raises(UnsupportedError, match=f"action {action}: a search goes by the frames that come back"):
        SearchStudy(bench, QUICK).measure(own_trial(tmp_path, action=action), tmp_path, SearchFacts())
    assert bench.log == []


def test_the_links_rate_is_that_of_a_pcaps_own_frames(tmp_path: Path) -> None:
    """A link that its frames of 1230 B filled was not called the limit: its rate had been that of frames of 64 B."""
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    (tmp_path / "f.pcap").write_bytes(header + struct.pack("<4I", 0, 0, 1226, 1226) + bytes(1226))
    trial = own_trial(tmp_path, frames=str(tmp_path / "f.pcap"))
    bench = ModelBench(lambda rate, seconds: dut(hard(LINE))(min(rate or 1e6, 1e6), seconds), Limit(10e9))
    bench.generator_pps = lambda trial: 1e6  # type: ignore[method-assign]
    facts = SearchFacts()
    SearchStudy(bench, QUICK).measure(trial, tmp_path, facts)
    assert facts.search is not None
    assert facts.search.limited_by == "link"


def test_what_was_not_searched_is_a_row_with_its_reason() -> None:
    (trial, *_) = trials("shared")
    row = row_of(trial, attempt_of(trial.trial_id, status="unsupported", reason="why"))
    assert (row["pdr_pps"], row["mrr_pps"], row["reason"]) == (None, None, "why")


def test_profiles_have_names() -> None:
    assert profile("rfc2544").frame_bytes == (64, 128, 256, 512, 1024, 1280, 1518)
    assert (profile("rfc2544").final_s, profile("rfc2544").latency_repeats) == (60.0, 20)
    with pytest.raises(PlanError, match="there are quick, csit, rfc2544"):
        profile("fast")


# --- RFC 2544 and RFC 9004 ---

TESTS = replace(PROFILES["rfc2544-short"], rfc2544=Rfc2544Tests(0.1, 1.0, 1.0, 3, 0.0))
CAPACITY, BUFFER = 1.5e6, 20_000


def buffered(rate: float | None, seconds: float) -> Offered:
    """A DUT that forwards CAPACITY frames per second and keeps BUFFER frames while it is offered more."""
    rate = min(rate or LINE, LINE)
    sent = round(rate * seconds)
    queued = sent * max(0.0, 1 - CAPACITY / rate)
    return Offered(sent, sent - round(max(0.0, queued - BUFFER)), seconds, HISTOGRAM)


def test_the_longest_burst_without_loss_gives_the_buffer_that_the_dut_has() -> None:
    short = {"longest_s": 1.0, "repeats": 3, "width": 0.001, "rest_s": 0.0}
    found = back_to_back(buffered, CAPACITY, **short)
    assert found is not None
    assert found.buffer_s is not None
    assert found.mean == pytest.approx(BUFFER / (1 - CAPACITY / LINE), rel=0.002)
    assert found.buffer_s * LINE == pytest.approx(BUFFER, rel=0.002)
    assert found.sd == 0
    assert found.step_frames <= 0.001 * 33_000
    assert back_to_back(dut(hard(LINE)), LINE, **short) is None


def test_the_loss_curve_ends_after_two_loads_without_loss() -> None:
    curve = loss_curve(dut(hard(2.5e6)), LINE, 0.1, 1.0)
    assert [at.share for at in curve] == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]
    assert [at.loss_ratio for at in curve] == pytest.approx([3 / 8, 1.1 / 3.6, 0.7 / 3.2, 0.3 / 2.8, 0, 0])
    assert len(loss_curve(dut(hard(LINE)), LINE, 0.1, 1.0)) == 2
    assert len(loss_curve(dut(lambda rate: rate / 2), LINE, 0.1, 1.0)) == 10


def test_a_search_by_rfc2544_has_the_tables_and_figures_that_it_asks_for() -> None:
    rows = []
    for trial, capacity in zip(trials("split"), (1.5e6, LINE), strict=True):
        found = search_point(dut(hard(capacity)) if capacity == LINE else buffered, TESTS, LINE, 2 * LINE)
        facts = as_json(SearchFacts(search=found.short))
        rows.append(row_of(trial, attempt_of(trial.trial_id, facts=facts)))
    table = pd.DataFrame(rows)
    made = rfc2544_tables(table)
    first, second = made["throughput"]
    assert (first["maximum kpps"], first["maximum of the"]) == ("8000", "link")
    assert float(first["share"].rstrip("%")) == pytest.approx(18.75, rel=0.06)
    assert [row["mean µs"] for row in made["latency"]] == ["0.1005", "0.1005"]
    assert made["loss"][0]["100%"] == "62.00%"  # 4 million frames in one second; 1.5 million and the buffer arrive
    assert made["loss"][0]["most offered"] == "50.0%", "the generator reaches half of the link's rate"
    first, second = made["back_to_back"]
    assert float(first["corrected buffer ms"]) == pytest.approx(BUFFER / LINE * 1e3, rel=0.06)
    assert second["average frames"] is None
    assert second["remark"] == "a burst of 1 s at the full rate lost no frame"
    assert set(VIEWS["throughput"](table).marks["hue"].str.partition(",")[0]) == {"maximum", "throughput"}
    marks = VIEWS["loss"](table).marks
    assert marks["x"].max() == pytest.approx(50), "the generator reaches half of the link's rate"
    assert marks["value"].max() == pytest.approx(62)


def test_a_line_of_rfc2544_is_of_all_repetitions_and_of_what_was_offered() -> None:
    """The generator reaches 4 of the link's 10 Mpps."""
    rows = []
    for forwards in (hard(LINE), hard(2e6), hard(1e6), lambda rate: 0.9 * rate):
        found = search_point(dut(forwards), TESTS, LINE, 2.5 * LINE)
        rows.append(row_of(trials("split")[0], attempt_of("t", facts=as_json(SearchFacts(search=found.short)))))
    one, all_four, lossy = (rfc2544_lines(pd.DataFrame(some)) for some in (rows[:1], rows, rows[3:]))
    for name in ("loss", "throughput"):
        (only,), (least, most) = (re.findall(r"[\d.]+", line[name].partition("%")[0]) for line in (one, all_four))
        assert float(only) == float(most) == 40
        assert float(least) == pytest.approx(10, rel=0.06)
        assert "in 3 of 4 searches" in all_four[name]
    assert not {"loss", "throughput"} & {*lossy}


def test_frames_of_several_sizes_are_searched_beside_the_standards_sizes() -> None:
    """They have no place on an axis of sizes: the tables and the loss curves have them."""
    block = {"points": {"accesses": 0}, "traffic": {"imix": ["none", "simple"]}, "arrangement": "split"}
    plan = as_searched(parse_plan({"name": "t", "repetitions": 1, "blocks": [block]}), profile("rfc2544"))
    found = schedule(plan, points_of(plan, "shared"))
    assert sorted(trial.point.frame_bytes or 0 for trial in found) == [0, 64, 128, 256, 512, 1024, 1280, 1518]
    searched = SearchFacts(search=search_point(buffered, TESTS, LINE, 2 * LINE).short)
    rows = [row_of(trial, attempt_of(trial.trial_id, facts=as_json(searched))) for trial in found]
    table = pd.DataFrame(rows)
    mixed = [row["point"] for row in rfc2544_tables(table)["throughput"] if "IMIX" in row["point"]]
    assert mixed == ["array-read N=0 native 1q, simple IMIX"]
    assert set(VIEWS["throughput"](table).marks["x"]) == {64, 128, 256, 512, 1024, 1280, 1518}
    assert "IMIX" in VIEWS["throughput"](table).look.words.caption[-1]
    assert VIEWS["loss"](table).marks["hue"].str.startswith("IMIX").any()


def test_bursts_are_refused_with_what_to_do_and_not_as_those_of_maximum_load() -> None:
    """The plan that a search made of them could not be read again."""
    block = {"points": {"accesses": 0}, "traffic": {"load": "50%", "burst": 32}}
    with pytest.raises(PlanError, match="omit `burst`"):
        as_searched(parse_plan({"name": "t", "blocks": [block]}), QUICK)


def test_the_line_rate_of_several_sizes_is_that_of_their_mean(tmp_path: Path) -> None:
    mixed, plain = ({"imix": imix, "load": "50% of line"} for imix in ("simple", "none"))
    rates = []
    for traffic in (mixed, plain):
        block = {"points": {"accesses": 0}, "traffic": traffic}
        (point,) = points_of(parse_plan({"name": "t", "blocks": [block]}), "shared")
        rates.append(offered_rate(point, {}, Limit(10e9)))
    assert rates == pytest.approx([5e9 / 8 / (4342 / 12 + 20), 5e9 / 8 / 84])


def test_the_maximum_is_that_of_the_link_the_generator_or_said_per_line() -> None:
    """Of two labs in one run, one may have a link without a rate: their maxima were all called the generator's."""
    rows = []
    for trial, medium in zip(trials("split"), (2 * LINE, None), strict=True):
        found = search_point(dut(hard(1e6)), TESTS, LINE, medium)
        facts = as_json(SearchFacts(search=found.short))
        rows.append(row_of(trial, attempt_of(trial.trial_id, facts=facts)))
    table = pd.DataFrame(rows)
    hues = []
    for rows_of in (table[:1], table[1:], table):
        marks = VIEWS["throughput"](rows_of).marks
        hues.append({hue.partition(",")[0] for hue in marks["hue"]} - {"throughput"})
    assert hues == [{"maximum"}, {"maximum"}, {"maximum of the medium", "maximum of the generator"}]


def test_a_missing_result_has_its_reason() -> None:
    lossy = dut(lambda rate: 0.9 * rate)
    found = search_point(lossy, TESTS, LINE)
    assert found.rfc2544 is not None
    assert found.rfc2544.missing["latency"] == "there is no throughput: the lowest load lost frames"
    assert found.rfc2544.back_to_back is not None
    assert found.rfc2544.back_to_back.buffer_s is None
    (trial, *_) = trials("split")
    facts = as_json(SearchFacts(search=found.short))
    row = row_of(trial, attempt_of(trial.trial_id, facts=facts))
    (bursts,) = rfc2544_tables(pd.DataFrame([row]))["back_to_back"]
    assert (bursts["corrected buffer ms"], bursts["remark"]) == (None, found.rfc2544.missing["buffer"])
    none = search_point(dut(hard(1e6)), replace(TESTS, latency_repeats=0), LINE).rfc2544
    assert none is not None
    assert none.missing["latency"] == "not requested: --no-latency"


def test_a_search_by_rfc2544_is_resumed_with_its_tests() -> None:
    asked = SearchRequest(profile("rfc2544"))
    assert SearchRequest.of(json.loads(json.dumps(asked.to_json()))) == asked
