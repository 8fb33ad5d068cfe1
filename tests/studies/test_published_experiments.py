"""Published experiments beside runs: what agrees, what does not and why, and what was not measured."""

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.cli.study import REPEATING
from xdplab.errors import PlanError
from xdplab.run.frames import typed
from xdplab.studies import published
from xdplab.studies.execution.rows import COLUMNS
from xdplab.studies.loading.points import LoadingRequest, smallest
from xdplab.studies.published import SOURCES, Experiment, Ours


def of(value: float | None, *ours: float) -> Experiment:
    found = [Ours(f"place {at}", one, f"x {one:g}") for at, one in enumerate(ours)]
    return Experiment("modules", "1", "something", "as published", value, lambda table: found, "why it differs")


TABLE = pd.DataFrame({"some": [1]})


@pytest.mark.parametrize(
    ("value", "ours", "said"),
    [(10.0, 14.9, "yes"), (10.0, 6.7, "yes"), (10.0, 15.1, "no"), (10.0, 0.0, "no"), (None, 3.0, "–")],
)
def test_a_ratio_agrees_within_a_factor(value: float | None, ours: float, said: str) -> None:
    (row,) = published.rows([of(value, ours)], TABLE)
    assert row["agrees"] == said
    assert row[published.EXPLAINED] == (None if said == "yes" else "why it differs")


def test_of_two_runs_of_one_place_the_last_is_shown() -> None:
    """A page had the first 200 tests of one run and all tests of another, as two results of one place."""
    first, second = (published.rows([of(1.0), of(2.0, *ours)], TABLE) for ours in ((2.0, 9.0), (3.0,)))
    rows = [row for row in published.latest([first, second]) if row["place"]]
    assert [(row["place"], row["ours"]) for row in rows] == [("place 0", "x 3"), ("place 1", "x 9")]


def test_each_row_names_its_run() -> None:
    first = published.rows([of(2.0, 2.0, 9.0)], TABLE, "1")
    second = published.rows([of(2.0, 3.0)], TABLE, "2")
    text = published.page(published.latest([first, second]), [["one", "a CPU"], ["another", "a CPU"]])
    assert "| x 3 | no: x 9 | 1, 2 | why it differs |" in text
    assert text.endswith("## Measured with\n\nAll runs: a CPU.\n\n1. one\n2. another\n")


def test_what_a_run_was_asked_for_is_what_is_not_the_default() -> None:
    assert published.request_text("loading", LoadingRequest()) == "study loading"
    asked = smallest(LoadingRequest(places=("vm:6.1@ppc64el", "uml")))
    assert "places vm:6.1@ppc64el, uml" in published.request_text("loading", asked)
    assert "smallest" in published.request_text("loading", asked)
    assert "workload" not in published.request_text("loading", asked)


def test_what_no_run_measured_is_told_once() -> None:
    rows = published.rows([of(1.0), of(2.0, 2.0, 9.0)], TABLE)
    assert [row["place"] for row in rows] == [None, "place 0", "place 1"]
    text = published.page([*rows, *published.rows([of(2.0)], published.NOTHING)], [["this machine"]])
    assert text.count("not measured in these runs") == 0  # one of that name was measured
    assert "\n1. this machine\n" in text


def test_every_study_lists_experiments_of_known_sources_and_finds_none_in_nothing() -> None:
    for experiments in map(published.experiments, REPEATING):
        assert experiments
        assert {one.source for one in experiments} <= set(SOURCES)
        assert all(row["place"] is None for row in published.rows(experiments, published.NOTHING))


def of_a_chain(*trials: tuple[str, int, int]) -> list[dict[str, object]]:
    """Return the published experiments that a run of chains tells of; a trial has a backend, a pause, and a cost."""
    base = {"label": "here", "place": "host", "clock": "time", "benchmark": "chain 32", "cold": False}
    base |= {"repetition": 1, "executions": 1}
    calls = [
        base | {"trial_id": str(trial), "backend": trial[0], "pause_us": trial[1], "elapsed_ns": trial[2], "call": call}
        for trial in trials
        for call in range(20)
    ]
    rows = published.rows(published.experiments("execution"), typed(calls, COLUMNS))
    return [row for row in rows if row["place"]]


def test_a_ratio_is_found_in_the_calls_of_a_run() -> None:
    found = of_a_chain(("interpreter", 0, 780), ("jit", 0, 100), ("module", 0, 95))
    assert {row["experiment"] for row in found} == {"chain of 32: interpreter by JIT", "chain of 32: JIT by module"}
    assert "× 7.8: 780 by 100 ns" in {row["ours"] for row in found}
    assert {row["agrees"] for row in found} == {"yes"}


def test_a_pause_is_a_row_of_its_own() -> None:
    (row,) = of_a_chain(("jit", 0, 100), ("jit", 1000, 250))
    assert (row["place"], row["ours"]) == ("here, after 1,000 µs asleep", "× 2.5: 250 by 100 ns")


def test_a_run_of_another_kind_is_refused() -> None:
    sample = Path(__file__).resolve().parents[2] / "results/sample"
    done = CliRunner().invoke(cli, ["study", "published", str(sample)])
    assert isinstance(done.exception, PlanError)
    assert "loading, execution, jit" in str(done.exception)
