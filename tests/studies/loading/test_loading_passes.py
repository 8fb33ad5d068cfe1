"""How a pass treats loadbench's answer: a refusal, an unavailable tracer, the next tracer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.hosts import Played

from xdplab.errors import HostError, UnsupportedError
from xdplab.studies.loading import passes
from xdplab.studies.loading.points import BPF, MODULE, LoadingRequest
from xdplab.studies.places import Place

CYCLE = {"type": "cycle", "rank": 0, "load_ns": 100, "logged_us": 0, "check_ns": 60, "jit_ns": 9, "jit_inside_ns": 0}
REFUSED = {"type": "error", "step": "load", "message": "p is refused", "log": "R1 is not allowed\n"}
NO_TRACER = {"type": "error", "step": "trace", "message": "this kernel cannot", "log": None}


class Watched(Played):
    """Answers by the argument of ``--watch``; it has no tool whose answer is None."""

    def __init__(self, **answers: list[dict[str, Any]] | None) -> None:
        super().__init__()
        self.answers = answers

    def answer(self, argv: Sequence[str]) -> str | None:
        watched = argv[argv.index("--watch") + 1] if "--watch" in argv else argv[0].rpartition("/")[2]
        lines = self.answers.get(watched, [CYCLE, {"type": "end"}])
        return None if lines is None else "".join(json.dumps(line) + "\n" for line in lines)


def bench(
    host: Watched, mode: str = BPF, place: str = "vm:6.1:count", clock: str = "instructions"
) -> passes.LoadRunner:
    there = Place(place, host, clock, "6.1", place)  # type: ignore[arg-type]
    return passes.LoadRunner(there, "/loadbench", mode, "/p.o", LoadingRequest(loads=7, budget_s=2.0))


def test_a_refusal_is_unsupported_with_the_verifiers_message(tmp_path: Path):
    host = Watched(loadbench=[REFUSED])
    with pytest.raises(UnsupportedError, match="load: p is refused: R1 is not allowed"):
        passes.measure(bench(host), tmp_path)
    assert (tmp_path / passes.PLAIN).read_text()  # the output stays


def test_a_tool_that_says_nothing_is_an_error_of_its_host(tmp_path: Path):
    with pytest.raises(HostError, match="no such command is played"):
        passes.measure(bench(Watched(loadbench=None)), tmp_path)


def test_the_next_tracer_has_its_turn(tmp_path: Path):
    found = passes.measure(bench(Watched(graph=[NO_TRACER])), tmp_path)
    assert found == ("fentry", None)


def test_without_any_tracer_the_reasons_are_kept(tmp_path: Path):
    told_by, reason = passes.measure(bench(Watched(graph=[NO_TRACER], fentry=[NO_TRACER])), tmp_path)
    assert told_by is None
    assert reason == "function_graph: this kernel cannot; fentry: this kernel cannot"


def test_this_machine_is_never_traced_by_function_graph(tmp_path: Path):
    host = Watched(fentry=[NO_TRACER], perf=None)
    _, reason = passes.measure(bench(host, place="host", clock="time"), tmp_path)
    assert reason == "fentry: this kernel cannot; perf samples: no such command is played"
    assert not any("graph" in argv for argv in host.ran)


def test_a_module_has_no_log(tmp_path: Path):
    host = Watched(graph=[NO_TRACER])
    passes.measure(bench(host, MODULE), tmp_path)
    assert not any("log" in argv for argv in host.ran)
    assert not (tmp_path / passes.LOGGED).exists()


@pytest.mark.parametrize(("clock", "budget"), [("time", "2000"), ("instructions", "400")])
def test_a_counting_guest_gets_a_budget_of_instructions(tmp_path: Path, clock: str, budget: str):
    host = Watched()
    bench(host, clock=clock).run(tmp_path, passes.PLAIN)
    (argv,) = host.ran
    assert argv[argv.index("--budget-ms") + 1] == budget
    assert argv[argv.index("--repetitions") + 1] == "7"
