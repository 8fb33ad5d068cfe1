"""A claim about a run's points holds, is refuted, or cannot be told; a wrong claim is refused with its line."""

import json
import shutil
from collections.abc import Callable, Iterator
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from tests.unpack import unpacked

from xdplab.analysis import OFFERED
from xdplab.claims.estimates import HOLDS, OPEN, REFUTED, parts_of, verdict_of
from xdplab.claims.grammar import Claim, sentence_of
from xdplab.claims.judged import JudgedClaim, exit_code, judged
from xdplab.claims.points import ClaimedPoint, Instance, instances
from xdplab.cli import cli
from xdplab.errors import PlanError
from xdplab.plan import load_plan, parse_plan
from xdplab.plan.model import race_of
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "results" / "sample"
RECORDED = ROOT / "tests" / "oracle" / "recorded" / "cost.tar.xz"
SIDES = {"of": {"mode": "native"}, "to": {"mode": "generic"}}
MODES = [{"mode": "native"}, {"mode": "generic"}, {"mode": "af_xdp"}]
BLOCK = {"points": {"mode": ["native", "generic"], "accesses": [0, 100]}}
RATIO = {"ratio": "forwarded_pps", **SIDES, "at_least": 2}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def plan_file(folder: Path, *claims: Any, block: Any = BLOCK) -> Path:
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump({"name": "p", "blocks": [block], "claims": list(claims)}, sort_keys=False))
    return file


def line_of(file: Path, text: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line)


# --- what is refused when a plan is read ---

WRONG: dict[str, tuple[Any, str]] = {
    "no form": ({"where": {"mode": "native"}}, "none"),
    "two forms": (RATIO | {"linear": "ns_per_packet"}, "ratio and linear"),
    "a key is missing": ({"ratio": "forwarded_pps", "of": {"mode": "native"}, "at_least": 2}, "to"),
    "no bound": ({"ratio": "forwarded_pps", **SIDES}, "at_least or at_most"),
    "another form's key": (RATIO | {"within": "5%"}, "within"),
    "a misspelt key": (RATIO | {"at_leat": 2}, "did you mean at_least"),
    "no bound between": (RATIO | {"at_most": 1}, "more than"),
    "a share above 1": ({"equal": "forwarded_pps", **SIDES, "within": 5}, "less than 1"),
    "an order of one": ({"order": "forwarded_pps", "falling": [{"mode": "native"}]}, "at least 2"),
    "exactly and more": ({"count": "lost_packets", "exactly": 0, "at_least": 0}, "exactly"),
    "not a mapping": (3, "what it means"),
    "a metric that is none": (RATIO | {"ratio": "colour"}, "colour"),
    "a mode that is not measured": (RATIO | {"to": {"mode": "af_xdp"}}, "af_xdp"),
    "a factor that is none": (RATIO | {"where": {"colour": 1}}, "colour"),
    "a number for a name": (RATIO | {"where": {"mode": 6.10}}, "quotes"),
    "N that is not measured": (RATIO | {"where": {"accesses": 50}}, "0, 100"),
    "a line of two N": ({"linear": "ns_per_packet", "within": "5%"}, "three N"),
    "no counterpart": (RATIO | {"of": {"mode": "native", "accesses": 0}, "to": {"queues": 1}}, "counterparts"),
}


@pytest.mark.parametrize(("meaning", "fact"), WRONG.values(), ids=WRONG)
def test_a_plan_with_a_wrong_claim_is_refused_with_its_line(meaning: Any, fact: str, tmp_path: Path) -> None:
    file = plan_file(tmp_path, {"fine": RATIO}, {"wrong": meaning})
    with pytest.raises(PlanError, match=f"line {line_of(file, 'wrong:')}: claim 2") as refused:
        load_plan(file)
    assert fact in str(refused.value)


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    for first, second in (("a misspelt key", "no bound"), ("a metric that is none", "a line of two N")):
        file = plan_file(tmp_path, {"one": WRONG[first][0]}, {"other": WRONG[second][0]})
        with pytest.raises(PlanError) as refused:
            load_plan(file)
        assert "claim 1: " in str(refused.value)
        assert "claim 2: " in str(refused.value)
    file.write_text(file.read_text().replace("accesses:", "acesses:", 1))
    with pytest.raises(PlanError, match=r"block 1.*acesses"):
        load_plan(file)


def test_a_plan_keeps_its_claims_and_one_without_has_no_such_key(tmp_path: Path) -> None:
    plan = load_plan(plan_file(tmp_path, {"fine": RATIO}))
    assert parse_plan(yaml.safe_load(plan.to_yaml())) == plan
    assert "claims" not in load_plan(plan_file(tmp_path)).to_yaml()
    assert race_of("race", [plan, plan], {}).claims == []


def test_a_race_judges_itself(tmp_path: Path) -> None:
    """It ends when its answer is known: an interval for a fixed number of repetitions would not hold."""
    race = load_plan(plan_file(tmp_path)).model_dump(mode="json") | {"race": {}, "claims": [{"fine": RATIO}]}
    with pytest.raises(PlanError, match="race"):
        parse_plan(race | {"blocks": race["blocks"] * 2})
    run = unpacked(RECORDED.with_name("race.tar.xz"), tmp_path) / "race"
    with pytest.raises(PlanError, match="race"):
        judge(run, {"fine": RATIO}, tmp_path)


def test_what_the_lab_decides_is_no_reason_to_refuse(tmp_path: Path) -> None:
    where = {"lab": "netns:x", "arrangement": "split", "kernel": "6.12"}
    load_plan(plan_file(tmp_path, {"fine": RATIO | {"where": where}}))


# --- what a run says ---

AT_MAX = {"load": "max"}
SAID: dict[str, tuple[dict[str, Any], str, int, int]] = {
    "a ratio": (RATIO | {"where": AT_MAX | {"accesses": 0}}, HOLDS, 1, 6),
    "a ratio at several N, one of which is below": (RATIO | {"where": AT_MAX}, REFUTED, 2, 12),
    "an inverse": (RATIO | {"of": {"mode": "generic"}, "to": {"mode": "native"}, "where": AT_MAX}, REFUTED, 2, 12),
    "a bound in the interval": (RATIO | {"at_least": 2.75, "where": AT_MAX | {"accesses": 0}}, OPEN, 1, 6),
    "an order": ({"order": "forwarded_pps", "falling": MODES, "where": AT_MAX}, HOLDS, 4, 18),
    "another order": ({"order": "forwarded_pps", "falling": MODES[::-1], "where": AT_MAX}, REFUTED, 4, 18),
    "a difference": ({"difference": "ns_per_packet", "of": {"mode": "generic"}, "to": {"mode": "native"},
                      "at_most": 500, "where": AT_MAX}, HOLDS, 2, 12),
    "equal within half": ({"equal": "forwarded_pps", **SIDES, "within": 0.6, "where": AT_MAX | {"accesses": 400}},
                          HOLDS, 1, 6),
    "not equal": ({"equal": "forwarded_pps", **SIDES, "within": "5%", "where": AT_MAX}, REFUTED, 2, 12),
    "a count of none": ({"count": "lost_packets", "exactly": 0, "where": {"load": "20kpps"}}, HOLDS, 3, 3),
    "a count that no trial reaches": ({"count": "rx_packets", "at_most": 10, "where": AT_MAX}, REFUTED, 18, 18),
}  # fmt: skip


def judge(run: Path, claims: dict[str, dict[str, Any]], folder: Path) -> list[JudgedClaim]:
    file = folder / "claims.yaml"
    file.write_text(yaml.safe_dump({"claims": [{name: meaning} for name, meaning in claims.items()]}, sort_keys=False))
    return judged(open_run(run), file)


def test_each_form_is_judged_by_the_trials_of_its_points(tmp_path: Path) -> None:
    answers = judge(SAMPLE, {name: case[0] for name, case in SAID.items()}, tmp_path)
    assert {one.claim: (one.verdict, one.parts, len(one.trials)) for one in answers} == {
        name: case[1:] for name, case in SAID.items()
    }
    assert exit_code(answers) == 1
    assert exit_code([one for one in answers if one.verdict != REFUTED]) == 2
    assert exit_code([one for one in answers if one.verdict == HOLDS]) == 0
    told = [one for one in answers if one.verdict == OPEN]
    assert [one.needed is not None and one.needed > one.n for one in told] == [True]


def test_the_part_that_decides_is_named(tmp_path: Path) -> None:
    (refuted,) = judge(SAMPLE, {"all": RATIO | {"where": AT_MAX}}, tmp_path)
    assert "400" in refuted.at
    assert refuted.high is not None
    assert refuted.high < 2


def no_valid_generic(rows: Any) -> None:
    rows.loc[rows["mode"] == "generic", ["verdict", "reason"]] = "invalid", "it drifted"


def senders_limit(rows: Any) -> None:
    rows.loc[rows["mode"] == "native", "limited_by"] = "generator"


def no_rate(rows: Any) -> None:
    rows.loc[rows["mode"] == "native", ["forwarded_pps", "null_reasons"]] = None, '{"forwarded_pps": "not counted"}'


def one_repetition(rows: Any) -> None:
    rows.loc[rows["repetition"] > 1, "verdict"] = "invalid"


def none_together(rows: Any) -> None:
    rows.loc[(rows["repetition"] > 1) == (rows["mode"] == "native"), "verdict"] = "invalid"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_valid_generic, "it drifted"),
        (senders_limit, "generator"),
        (no_rate, "not counted"),
        (one_repetition, "one repetition"),
        (none_together, "no repetition"),
    ],
)
def test_points_without_values_cannot_be_told_for_a_reason(
    change: Callable[[Any], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = open_run(SAMPLE).rows()
    change(rows)
    monkeypatch.setattr(Run, "rows", lambda *_: rows)
    (answer,) = judge(SAMPLE, {"twice": RATIO | {"where": AT_MAX | {"accesses": 0}}}, tmp_path)
    assert (answer.verdict, answer.low, answer.needed) == (OPEN, None, None)
    assert reason in answer.why


def test_a_latency_at_maximum_load_is_that_of_a_queue(tmp_path: Path) -> None:
    native = {"of": {"load": "max"}, "to": {"load": "20kpps"}, "where": {"mode": "native", "accesses": 0}}
    claims = {
        "latency": {"ratio": "latency_p50_ns", **native, "at_least": 2},
        "rate": {"ratio": "forwarded_pps", **native, "at_least": 2},
    }
    latency, rate = judge(SAMPLE, claims, tmp_path)
    assert (latency.verdict, "queue" in latency.why) == (OPEN, True)
    assert rate.verdict == HOLDS, "the automatic batch, which follows the load, is no other point"


@pytest.mark.parametrize("metric", ["forwarded_pps", "forwarded_l2_bps", "pdr_pps", "ndr_pps", "mrr_pps"])
@pytest.mark.parametrize(("carried", "verdict"), [(("native", "generic"), OPEN), (("native",), HOLDS)])
def test_rates_of_a_load_that_both_sides_carry_are_no_claim_about_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: tuple[str, ...], verdict: str, metric: str
) -> None:
    """At 20 kpps any two modes were `equal` within 1 %, and this held. That a side does not carry it can be claimed."""
    rows = open_run(SAMPLE).rows()
    rows[metric] = 2e4 * (1 + 1e-6 * rows["repetition"]) * (1 - 0.6 * ~rows["mode"].isin(carried))
    rows["limited_by"] = rows["mode"].isin(carried).map({True: "none", False: "dut"})
    monkeypatch.setattr(Run, "rows", lambda *_: rows)
    claim = RATIO | {"ratio": metric} if verdict == HOLDS else {"equal": metric, **SIDES, "within": "1%"}
    rows[metric] *= 1 + 1e-6 * rows["order"]
    (answer,) = judge(SAMPLE, {"rates": claim | {"where": AT_MAX | {"accesses": 0}}}, tmp_path)
    assert (answer.verdict, answer.why == OFFERED) == (verdict, verdict == OPEN)


def test_what_a_point_without_counterpart_differs_in_is_named() -> None:
    few, many = (ClaimedPoint({"mode": mode, "batch": batch}) for mode, batch in (("native", 8), ("generic", 60)))
    twins = [ClaimedPoint({"mode": "generic", "batch": 8, "file": name}) for name in "ab"]
    for others, name in (([many], "batch"), (twins, "file")):
        with pytest.raises(ValueError, match=name):
            instances(ratio(at_least=1), [few, *others])


def test_a_file_about_other_points_is_refused_and_a_run_of_part_of_a_plan_is_not(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"line 2: claim 1: .*offload"):
        judge(SAMPLE, {"offload": RATIO | {"of": {"mode": "offload"}}}, tmp_path)
    with pytest.raises(PlanError, match="no claims"):
        judged(open_run(SAMPLE))


def test_counted_packets_are_exact(tmp_path: Path) -> None:
    (run,) = (path.parent for path in unpacked(RECORDED, tmp_path).rglob("journal.jsonl"))
    counts = {
        "as many": {"count": "program_instructions", "exactly": 87, "where": {"program": "array:10"}},
        "fewer": {"count": "instructions", "at_most": 449},
    }
    answers = judge(run, counts, tmp_path)
    assert [(one.verdict, one.low, one.high) for one in answers] == [(HOLDS, 87, 87), (REFUTED, 450, 450)]
    exact = [ClaimedPoint({"mode": mode}, {1: value}, exact=(value, value)) for mode, value in TWICE.items()]
    same = Claim.model_validate({"equal": "x", **SIDES, "within": 0})
    for claim, verdict in ((ratio(at_least=2), HOLDS), (ratio(at_least=2.01), REFUTED), (same, REFUTED)):
        assert verdict_of(parts_of(claim, instances(claim, exact))) == verdict


# --- a simulation whose truth is known ---

ROUNDS, SPREAD, REPETITIONS = 1000, 0.05, 5
WRONGLY = 0.025 + 3 * np.sqrt(0.025 * 0.975 / ROUNDS)
"""A two-sided interval of 95 % leaves 2.5 % to each side; three standard errors of the simulation more."""


def point(rng: np.random.Generator, truth: float, **factors: Any) -> ClaimedPoint:
    values = dict(enumerate(truth * np.exp(rng.normal(0, SPREAD, REPETITIONS)), 1))
    return ClaimedPoint(factors, values, dict.fromkeys(values, ""))


def shares(claim: Claim, truths: dict[Any, float], by: str = "mode") -> dict[str, float]:
    """Return how often a claim gets each verdict where the points' values are these on average (geometric)."""
    rng = np.random.default_rng(1)
    counts = dict.fromkeys((HOLDS, REFUTED, OPEN), 0)
    for _ in range(ROUNDS):
        points = [point(rng, truth, **{by: level}) for level, truth in truths.items()]
        counts[verdict_of(parts_of(claim, instances(claim, points)))] += 1
    return {verdict: count / ROUNDS for verdict, count in counts.items()}


def ratio(**bounds: float) -> Claim:
    return Claim(ratio="x", **SIDES, **bounds)  # type: ignore[arg-type]


TWICE = {"native": 2.0, "generic": 1.0}
EDGES: dict[str, tuple[Claim, dict[Any, float]]] = {
    "at the least ratio": (ratio(at_least=2), TWICE),
    "at the most ratio": (ratio(at_most=2), TWICE),
    "at the least difference": (Claim(difference="x", **SIDES, at_least=1), TWICE),
    "at a margin": (Claim(equal="x", **SIDES, within=0.3), {"native": 1.3, "generic": 1.0}),
    "an order of equals": (
        Claim(order="x", falling=[{"mode": "a"}, {"mode": "b"}, {"mode": "c"}]), {"a": 1.0, "b": 1.0, "c": 1.0}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "truths"), EDGES.values(), ids=EDGES)
def test_at_the_bound_a_claim_is_called_either_in_two_and_a_half_per_cent_at_most(
    claim: Claim, truths: dict[Any, float]
) -> None:
    """There both wrong answers are most frequent: it is just true, and just false by the least more."""
    answers = shares(claim, truths)
    assert answers[HOLDS] <= WRONGLY
    assert answers[REFUTED] <= WRONGLY


LINE = {0: 100.0, 100: 150.0, 200: 200.0, 400: 300.0}
BENT = LINE | {400: 420.0}


def test_a_line_holds_and_a_bent_one_does_not() -> None:
    straight = shares(Claim(linear="x", within=0.15), LINE, "accesses")
    bent = shares(Claim(linear="x", within=0.02), BENT, "accesses")
    assert (straight[REFUTED] <= WRONGLY, straight[HOLDS] > 0.5) == (True, True), straight
    assert (bent[HOLDS] <= WRONGLY, bent[REFUTED] > 0.5) == (True, True), bent


def test_so_many_repetitions_as_are_named_would_tell_in_four_of_five() -> None:
    rng = np.random.default_rng(2)
    log, claim = 0.03, ratio(at_least=exp(-0.03))
    pilots = []
    for _ in range(400):
        instance: Instance = (point(rng, 1.0, mode="native"), point(rng, 1.0, mode="generic"))
        (part,) = parts_of(claim, [instance])
        pilots.append(part.needed if part.needed is not None else inf)
    n = int(np.median([one for one in pilots if one < inf]))
    draws = rng.normal(0, SPREAD * np.sqrt(2), (ROUNDS, n))
    half = 2.0 * draws.std(axis=1, ddof=1) / np.sqrt(n)
    assert 0.5 < float(np.mean(draws.mean(axis=1) - half >= -log)) < 0.98


# --- the command ---


def test_the_command_ends_with_its_answer(tmp_path: Path) -> None:
    run = shutil.copytree(SAMPLE, tmp_path / "sample")
    claims = [{name: SAID[name][0] | {"printed": 2.5}} for name in ("a ratio", "a bound in the interval")]
    (run / "claims.yaml").write_text(yaml.safe_dump({"claims": claims}))
    answer = CliRunner().invoke(cli, ["claims", str(run), "--json"], standalone_mode=False)
    assert answer.return_value == 2
    assert [one["printed"] for one in json.loads(answer.stdout)["claims"]] == ["2.5", "2.5"]
    for form in ("table", "markdown", "csv"):
        shown = CliRunner().invoke(cli, ["claims", str(run), "--format", form])
        assert all(word in shown.stdout for word in (HOLDS, OPEN, "2.5"))
    (run / "claims.yaml").write_text("claims: 3\n")
    assert CliRunner().invoke(cli, ["claims", str(run)]).exception.exit_code == 64  # type: ignore[union-attr]


def test_a_sentence_has_one_meaning() -> None:
    with pytest.raises(ValueError, match="a sentence"):
        sentence_of({"one": RATIO, "two": RATIO})
