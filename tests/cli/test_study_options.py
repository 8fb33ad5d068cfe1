"""The options of a study become its request; `--smallest` reduces only what the command line does not set."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from xdplab.cli import cli, conduct, study_verifier
from xdplab.errors import PlanError
from xdplab.studies.execution.points import ExecutionRequest
from xdplab.studies.jit.points import JitRequest
from xdplab.studies.kinds import kind_named
from xdplab.studies.loading.points import LoadingRequest
from xdplab.studies.offload.points import OffloadRequest
from xdplab.studies.outage.points import OutageRequest
from xdplab.studies.points import StudyRequest
from xdplab.studies.verifier.points import VerifierRequest


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that commands make, none of which is measured."""
    made: list[Any] = []

    def instead(kind: object, request: Any, *options: object) -> tuple[None, int]:
        made.append(request())
        return None, 0

    for module in (conduct, study_verifier):
        monkeypatch.setattr(module, "conduct_study", instead)
    return made


def run(line: str) -> Any:
    return CliRunner().invoke(cli, ["study", *line.split()])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("verifier --repetitions 2 --testbed", {"repetitions": 2, "testbed": True, "loads": 5}),
        ("verifier", {"repetitions": 1, "testbed": False, "loads": 5}),
        ("execution --repetitions 4", {"repetitions": 4, "calls": 20, "smallest": True}),
        ("loading --loads 30", {"loads": 30, "compiles": 1, "smallest": True}),
    ],
)
def test_what_was_said_stands_beside_smallest(requests: list[Any], line: str, expected: dict[str, object]) -> None:
    done = run(f"{line} --smallest")
    assert done.exception is None or isinstance(done.exception, SystemExit | click.exceptions.Exit), done.output
    (request,) = requests
    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("execution", ExecutionRequest()),
        ("jit", JitRequest()),
        ("loading", LoadingRequest()),
        ("offload", OffloadRequest()),
        (
            "outage --repetitions 2 --rate-pps 500 --place netns",
            OutageRequest(repetitions=2, rate_pps=500, places=("netns",)),
        ),
        ("verifier", VerifierRequest()),
        (
            "execution --no-cold --pause-us 0 --pause-us 5 --backend jit --host-module",
            ExecutionRequest(cold=False, pauses_us=(0, 5), backends=("jit",), host_module=True),
        ),
        (
            "jit --part tcp --tests 0-3 --harden 0 --harden 2",
            JitRequest(parts=("tcp",), tests="0-3", hardenings=(0, 2)),
        ),
        ("loading --accesses 1,20 --budget-s 0.5", LoadingRequest(accesses=(1, 20), budget_s=0.5)),
        ("offload --place vm:6.1", OffloadRequest(places=("vm:6.1",))),
        ("verifier a.o --family none --size 7", VerifierRequest(objects=("a.o",), families=(), sizes=(7,))),
        ("verifier --flag test_rnd_hi32", VerifierRequest(flags=("test_rnd_hi32",))),
    ],
)
def test_what_was_not_said_keeps_its_default(requests: list[Any], line: str, expected: object) -> None:
    run(line)
    assert requests == [expected]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (LoadingRequest(workload="riddle"), "--workload: 'riddle' is none of array"),
        (LoadingRequest(forms=("unrolled", "curled")), "--form: 'curled' is none of bounded"),
        (LoadingRequest(accesses=(100, 0)), "--accesses: 0 is not from 1 to 1000000"),
        (JitRequest(filters=("x",)), "--filter: 'x' is none of ip"),
        (JitRequest(filters="ip"), "--filter: 'ip' is no list"),  # type: ignore[arg-type]
        (JitRequest(filters=["ip", "x"]), "--filter: 'x' is none of ip"),  # type: ignore[arg-type]
        (ExecutionRequest(pauses_us=("soon",)), "--pause-us: 'soon' is not from 0"),  # type: ignore[arg-type]
        (VerifierRequest(flags=("such_a_flag",)), "--flag: 'such_a_flag' is none of strict_alignment"),
    ],
)
def test_what_the_command_line_refuses_is_refused_in_a_plan(refused: StudyRequest, words: str, tmp_path: Path) -> None:
    study = type(refused).__name__.removesuffix("Request").lower()
    with pytest.raises(PlanError, match=f"^{words}"):
        kind_named(study).start(refused, tmp_path)
