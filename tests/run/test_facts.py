"""A trial's facts go through the journal and come back with their types."""

import json
from dataclasses import fields

import pytest
from tests.attempts import attempt_of

from xdplab.deploy.afxdp import AfxdpReady, QueueReady, QueueStats, Stats
from xdplab.deploy.xdp import Decided, RunStats
from xdplab.errors import ResultsError
from xdplab.run.state import Attempt, as_json, facts_of
from xdplab.studies.cost.runs import CostStudy
from xdplab.studies.execution.runs import ExecutionFacts, ExecutionStudy
from xdplab.studies.jit.runs import JitStudy
from xdplab.studies.kinds import STUDIES, kind_named
from xdplab.studies.loading.runs import LoadingStudy
from xdplab.studies.neighbour.runs import NeighbourStudy
from xdplab.studies.offload.runs import OffloadStudy
from xdplab.studies.outage.runs import OutageStudy
from xdplab.studies.search.study import SearchStudy
from xdplab.studies.traffic.session import TrafficSession
from xdplab.studies.trial_facts import Limit, Missing, ProgramRuns, TestRuns, TrialCpus, TrialFacts
from xdplab.studies.verifier.study import VerifierStudy

EVERY = (
    *(TrafficSession, SearchStudy, VerifierStudy, ExecutionStudy, LoadingStudy, JitStudy, OffloadStudy, CostStudy),
    *(OutageStudy, NeighbourStudy),
)


def attempt(facts: dict[str, object]) -> Attempt:
    return attempt_of("t-r1", 2, facts=facts)


def through_the_journal(facts: TrialFacts) -> TrialFacts:
    return facts_of(TrialFacts, attempt(json.loads(json.dumps(as_json(facts)))))


def test_every_study_says_what_its_trials_learn_and_a_trial_may_have_learnt_nothing() -> None:
    assert len(EVERY) == len(STUDIES) + 2
    assert {kind_named(name).name for name in STUDIES} <= {kind.__module__.split(".")[2] for kind in EVERY}
    for kind in EVERY:
        assert as_json(kind.facts()) == {}
        assert facts_of(kind.facts, attempt({})) == kind.facts()
        assert all(field.default is None for field in fields(kind.facts))


def test_what_went_in_comes_back_typed() -> None:
    rings = Stats((QueueStats(0, 7, 6, 1, 0, 0, 0, 0, 0, 3, 4, None), QueueStats(1, *range(20, 31))), 2, 900)
    assert (rings.total("rx"), rings.total("tx_dropped"), rings.foreign()) == (27, 23, None)
    assert Stats((rings.queues[1],) * 2, 2, 900).foreign() == 60
    copies, mixed = ((QueueReady(0, 0, "copy"), QueueReady(1, 1, bind)) for bind in ("copy", "zerocopy"))
    obtained = [AfxdpReady(queues, 7, "native", "").bind_obtained for queues in (copies, mixed, mixed[1:])]
    assert obtained == ["copy", "mixed", "zerocopy"]
    facts = TrialFacts(
        lab="netns",
        link=Limit(None, "virtual"),
        cpus=TrialCpus((0,), (1,), (0,)),
        dut_before=rings,
        runstats=ProgramRuns(RunStats(10, 1), RunStats(30, 2), 4.5),
        testrun=TestRuns((8.0, 9.0)),
        decided=Decided({"tx": 5}, None, "no target"),
        harness=Missing("the plan asks for no harness pass"),
    )
    assert through_the_journal(facts) == facts


def test_a_journal_that_was_edited_is_refused_by_the_fields_name() -> None:
    with pytest.raises(ResultsError, match=r"t-r1, attempt 2: facts\.cpus\.dut in the journal") as told:
        facts_of(TrialFacts, attempt({"cpus": {"dut": "all", "tg": [1], "working": [0]}}))
    assert "\n" not in str(told.value)
    with pytest.raises(ResultsError, match=r"facts\.work_steps"):
        facts_of(ExecutionFacts, attempt({"work_steps": "many"}))
    with pytest.raises(ResultsError, match=r"facts\.gone in the journal"):
        facts_of(TrialFacts, attempt({"gone": 1}))
