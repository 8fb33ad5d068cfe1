"""One process watches several objects: what it counts, which objects, and what happens if it says nothing of one."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from xdplab.errors import FormatError, HostError
from xdplab.formats.verifier import lines_by_object
from xdplab.hosts import Result
from xdplab.hosts.local import LocalHost
from xdplab.run.rundir import RunDirectory
from xdplab.studies.places import Place
from xdplab.studies.points import schedule
from xdplab.studies.verifier import study
from xdplab.studies.verifier.machines import LoaderPlace
from xdplab.studies.verifier.points import LINUX, VerifierPlan, VerifierPoint, VerifierRequest, VerifierTrial
from xdplab.studies.verifier.study import VerifierFacts, VerifierStudy


class Recorder(LocalHost):
    """Answers as bpfverify does, and keeps what it was asked."""

    def __init__(self, silent: str = "nothing") -> None:
        super().__init__()
        self.asked: list[tuple[bool, list[str]]] = []
        self.silent = silent

    def run(self, argv: Sequence[str], **_: object) -> Result:
        paths = [one for one in argv if one.endswith(".o")]
        self.asked.append(("--watch" in argv, [Path(one).name.split("-")[1] for one in paths]))
        said = [json.dumps({"object": one, "verdict": "accepted"}) for one in paths if self.silent not in one]
        return Result("here", tuple(argv), 0, "".join(f"{line}\n" for line in said).encode(), b"", 0.1)


def begun(tmp_path: Path, monkeypatch, host: LocalHost, count: int) -> tuple[VerifierStudy, list[VerifierTrial]]:
    """Return a study within a block of so many objects on this machine, and its trials in their order."""
    points = [VerifierPoint(LINUX, "host", "verify", "c", f"{rank:02}.o", f"{rank:064x}") for rank in range(count)]
    machine = LoaderPlace(Place("here", host, "time", "6", "Linux 6"), "bpfverify", "types")
    monkeypatch.setattr(study, "machine_of", lambda *_: nullcontext(machine))
    trials = list(schedule(points, 1, seed=1))
    begun_study = VerifierStudy(VerifierPlan(RunDirectory(tmp_path), VerifierRequest(), tuple(points), ()))
    begun_study.enter_block(trials)
    return begun_study, trials


def measured(found: VerifierStudy, trial: VerifierTrial, tmp_path: Path) -> bytes:
    raw = tmp_path / trial.trial_id
    raw.mkdir(exist_ok=True)
    found.measure(trial, raw, VerifierFacts())
    return (raw / study.WATCHED).read_bytes()


def test_a_process_watches_the_objects_of_the_trials_to_come(tmp_path, monkeypatch):
    host = Recorder()
    found, trials = begun(tmp_path, monkeypatch, host, count=study.WATCHED_TOGETHER + 3)
    for trial in trials:
        (line,) = measured(found, trial, tmp_path).splitlines()
        assert Path(json.loads(line)["object"]).name == trial.point.file_name
    order = [trial.point.object.removesuffix(".o") for trial in trials]
    most = study.WATCHED_TOGETHER
    assert [asked for watched, asked in host.asked if watched] == [order[:most], order[most:]]
    assert [asked for watched, asked in host.asked if not watched] == [[name] for name in order]


def test_a_trial_that_is_measured_again_is_watched_again(tmp_path, monkeypatch):
    host = Recorder()
    found, trials = begun(tmp_path, monkeypatch, host, count=3)
    for trial in (trials[0], trials[0], *trials[1:]):
        assert measured(found, trial, tmp_path)
    order = [trial.point.object.removesuffix(".o") for trial in trials]
    assert [asked for watched, asked in host.asked if watched] == [order, order]


def test_an_object_of_which_it_says_nothing_fails_alone(tmp_path, monkeypatch):
    found, trials = begun(tmp_path, monkeypatch, Recorder(silent="c-01"), count=3)
    for trial in trials:
        if trial.point.object == "01.o":
            with pytest.raises(HostError, match=r"printed nothing about .*c-01"):
                measured(found, trial, tmp_path)
        else:
            assert measured(found, trial, tmp_path)


def test_lines_are_told_apart_by_their_object():
    lines = [b'{"object": "a", "name": "\xc3\xa9"}\n', b'{"object": "b"}\n', b'{"object": "a"}\n']
    assert lines_by_object(b"".join(lines)) == {"a": lines[0] + lines[2], "b": lines[1]}
    for wrong in (b"{}\n", b'{"object": 1}\n', b'{"object": "a"}', b""):
        with pytest.raises(FormatError):
            lines_by_object(wrong)


@pytest.mark.root
def test_objects_watched_together_have_the_counts_of_each_alone(verify, compile_member):
    paths = [compile_member(*member) for member in (("branches", 20), ("double_strcmp", 10), ("pruning", 6))]
    together = verify(paths, "--watch")
    for program, path in zip(together, paths, strict=True):
        (alone,) = verify(path, "--watch")
        assert program.watched.branches == alone.watched.branches is not None
        # Once 128 bytes of 254,216 more, likely since some memory is freed after a grace period, sooner or later.
        assert program.watched.kmalloc_peak_bytes == pytest.approx(alone.watched.kmalloc_peak_bytes, rel=0.005)
        assert program.watched.kmalloc_peak_bytes > 0
