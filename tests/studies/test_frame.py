"""The framework of all studies, with a study that measures the length of a word."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.attempts import attempt_of
from tests.waiting import until

from xdplab.cli import cli
from xdplab.errors import (
    FigureError,
    HostError,
    LabError,
    LabInUseError,
    MissingToolError,
    NotApplicableError,
    PlanError,
    ProgramError,
    ResultsError,
    ResultsWarning,
    UnsupportedError,
)
from xdplab.figures.draw import draw
from xdplab.figures.marks import Axes, Look, View, Words, marks_frame
from xdplab.figures.styles import sized
from xdplab.hosts.local import LocalHost
from xdplab.labs import rights
from xdplab.labs.base import HOST
from xdplab.run.progress import PlainObserver
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, read_state
from xdplab.run.waiting import MEASURED, WAITS
from xdplab.studies import guests, places
from xdplab.studies.execution import views as execution
from xdplab.studies.figure_table import without_trends
from xdplab.studies.guests import place_of
from xdplab.studies.jit import views as jit
from xdplab.studies.loading import views as loading
from xdplab.studies.points import (
    BOOT_S,
    Gathered,
    StudyPlan,
    StudyPlanning,
    StudyPoint,
    StudyRequest,
    StudyTrial,
    costs_s,
    name_places,
    schedule,
)
from xdplab.studies.study_kind import failures, study_kind
from xdplab.studies.tables import Table, markdown
from xdplab.studies.verifier import views as verifier
from xdplab.studies.verifier.machines import machine_of
from xdplab.studies.verifier.points import Given


@dataclass(frozen=True)
class Request(StudyRequest):
    words: tuple[str, ...] = ("a", "bb")


@dataclass(frozen=True)
class Word(StudyPoint):
    word: str

    @property
    def block(self) -> tuple[str, ...]:
        return (self.word[0],)

    @property
    def once(self) -> bool:
        return self.word == "once"

    def __str__(self) -> str:
        return self.word


class Measurer:
    place, facts = None, dict

    def enter_block(self, trials: object) -> None: ...

    def measure(self, trial: StudyTrial[Word], raw: Path, facts: dict[str, object]) -> None:
        if trial.point.word == "bad":
            raise ProgramError("bad is refused")
        (raw / "length").write_text(str(len(trial.point.word)))

    def leave_block(self) -> None: ...


def table(plan: StudyPlan[Request, Word]) -> pd.DataFrame:
    rows = [
        {"word": trial.point.word, "length": int((raw / "length").read_text())}
        for trial, last, raw in plan.attempts()
        if last.status == "measured"
    ]
    return pd.DataFrame(rows, columns=["word", "length"])


def lengths(found: pd.DataFrame) -> View:
    marks = [{"figure": "l", "kind": "bar", "x": w, "value": n, "verdict": "valid"} for w, n in found.values]
    return View(marks_frame(marks), Look(Axes(x_label="word", y_label="letters", x_scale="category")))


def nothing(found: pd.DataFrame) -> View:
    raise NotApplicableError("there is nothing to show")


def gather(request: Request) -> Gathered[Word]:
    if not request.words:
        raise PlanError("no words")
    return Gathered([Word(w) for w in request.words], {"kept/words": " ".join(request.words).encode()}, ["one note"])


WORDS: dict[str, Any] = {
    "planning": StudyPlanning("words", "Which words?", Request, Word, gather),
    "session": lambda plan: Measurer(),
    "table": table,
    "tables": lambda plan, found: {"all": Table("Words", found), "none": Table("None", found.iloc[:0])},
    "views": {"lengths": lengths, "nothing": nothing},
}
STUDY = study_kind(**WORDS)


def test_a_run_measures_tables_and_draws_itself(tmp_path: Path) -> None:
    run = STUDY.start(Request(words=("a", "bad", "ccc"), repetitions=2), tmp_path)
    state = run.measure()
    assert len(state.failed) == 2
    assert set(failures(run.plan)) == {"bad: bad is refused"}
    assert sorted(run.rows()["word"]) == ["a", "a", "ccc", "ccc"]
    assert pd.read_parquet(run.directory.path / "words.parquet").equals(run.rows())
    assert [(one.stem, one.reason) for one in run.draw_figures()][1:] == [("nothing", "there is nothing to show")]
    files = (run.directory.path / "figures").glob("lengths.*")
    assert {file.suffix for file in files} == {".svg", ".csv", ".md", ".txt", ".tex"}
    assert list(run.tables()) == ["all"]
    assert (run.directory.path / "tables" / "all.csv").read_text().splitlines()[0] == "word,length"
    assert (run.directory.path / "kept" / "words").read_text() == "a bad ccc"
    with pytest.raises(FigureError, match="lengths, nothing"):
        run.figure("other")


def test_a_run_opened_again_is_the_same_and_owes_what_failed(tmp_path: Path) -> None:
    run = STUDY.start(Request(words=("a", "bad"), repetitions=1, seed=7), tmp_path, "mine")
    run.measure()
    again = STUDY.run(run.directory)
    assert (again.plan.request, again.plan.points) == (run.plan.request, run.plan.points)
    assert again.plan.notes == ("one note",)
    assert [t.trial_id for t in again.plan.trials] == [t.trial_id for t in run.plan.trials]
    assert len(again.state.owed) == 1


def test_blocks_stay_together_and_what_is_once_is_measured_once() -> None:
    trials = schedule([Word("ax"), Word("once"), Word("ay"), Word("b")], 3, seed=1)
    assert [t.block for t in trials if t.repetition == 1] == [0, 0, 1, 2]
    assert sum(t.point.word == "once" for t in trials) == 1
    assert len(trials) == 10
    assert trials == schedule([Word("ax"), Word("once"), Word("ay"), Word("b")], 3, seed=1)


def test_another_study_s_run_is_refused(tmp_path: Path) -> None:
    run = STUDY.start(Request(), tmp_path)
    plan = run.directory.path / "plan.yaml"
    plan.write_text(plan.read_text().replace("study: words", "study: others"))
    with pytest.raises(ResultsError, match="not a run of study words"):
        _ = STUDY.run(run.directory).plan


def test_null_is_an_empty_cell() -> None:
    assert markdown(pd.DataFrame({"a|b": [1, None]})).splitlines()[2:] == ["| 1.0 |", "|  |"]


@pytest.mark.root
@pytest.mark.machine
def test_this_machine_as_a_place_interprets_only_where_its_kernel_can() -> None:
    with place_of(HOST) as place:
        assert place.clock == "time"
        assert place.put(Path("/etc/hostname")) == "/etc/hostname"
        if not Path("/proc/sys/net/core/bpf_jit_enable").exists():
            pytest.skip("this network namespace does not show the setting")
        before = _setting()
        can = pytest.raises(UnsupportedError, match="no interpreter") if _always_compiled() else nullcontext()
        with can, place.jit(False):
            assert _setting() in (None, "0")
        assert _setting() == before


@pytest.mark.parametrize(
    "study", [("verifier", "--kernel", "host"), ("loading", "--place", "host"), ("jit", "--place", "host")]
)
def test_a_user_without_the_right_to_load_programs_is_told_before_anything_is_measured(
    study: tuple[str, ...], tmp_path: Path
) -> None:
    """The verifier's study measured it: none of the programs was accepted, and each trial was valid."""
    rights = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    argv = [*rights, sys.executable, "-m", "xdplab", "study", *study, "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "this user may not load BPF programs" in done.stderr
    assert "use sudo, or measure in a guest: --" in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes this process hold the capabilities of a mask, as a user of this many users."""

    def hold(mask: str, users: str) -> None:
        texts = {"/proc/self/status": f"CapEff:\t{mask}\n", "/proc/self/uid_map": f"  0  0  {users}\n"}
        monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])

    return hold


ALL_USERS = str((1 << 32) - 1)


@pytest.mark.parametrize(
    ("held", "users", "missing"),
    [
        ("0", ALL_USERS, "lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"),
        ("8000000000", ALL_USERS, "lacks CAP_NET_ADMIN, CAP_PERFMON"),  # CAP_BPF alone loads no XDP program
        ("c000001000", ALL_USERS, None),
        ("200000", ALL_USERS, None),
        ("1ffffffffff", "1", "has .* only in a user namespace"),
    ],
)
def test_network_and_tracing_programs_need_three_capabilities_or_one(
    held: str, users: str, missing: str | None, holding: Callable[[str, str], None]
) -> None:
    holding(held, users)
    with pytest.raises(UnsupportedError, match=f"may not load .*{missing}") if missing else nullcontext():
        places.require_rights(("host",), "--place vm:6.1:count")


@pytest.mark.parametrize(
    ("held", "users", "missing"),
    [
        ("400203000", ALL_USERS, None),
        ("a80425fb", ALL_USERS, "lacks CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYSLOG$"),  # podman's for root
        ("800405fb", ALL_USERS, "lacks CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYSLOG$"),
        ("1ffffffffff", "65536", "only in a user namespace"),  # podman's for a rootless container, --privileged
    ],
)
def test_a_lab_of_this_machine_needs_four(
    held: str, users: str, missing: str | None, holding: Callable[[str, str], None]
) -> None:
    holding(held, users)
    answer = rights.missing_rights(rights.FOR_LAB)
    assert answer is None if missing is None else re.search(missing, answer or "")


def test_a_run_that_another_user_began_measures_nothing_without_the_right(holding: Callable[[str, str], None]) -> None:
    """`resume` gathers nothing anew: the places themselves must ask."""
    holding("0", ALL_USERS)
    with (
        pytest.raises(UnsupportedError, match="may not load BPF programs"),
        machine_of("host", Path(), Given()),
    ):
        pytest.fail("the machine was given")


@pytest.mark.root
@pytest.mark.parametrize(
    ("study", "exit_code"),
    [
        (("execution", "--backend", "interpreter"), 2),
        pytest.param(("jit", "--class", "map lookup"), 3, marks=pytest.mark.thorough),
    ],
)
def test_a_study_that_needs_a_hidden_setting_ends_at_once_with_the_reason(
    study: tuple[str, ...], exit_code: int, tmp_path: Path
) -> None:
    """Each trial was reported as unsupported, and `resume` would never have measured it."""
    argv = [sys.executable, "-m", "xdplab", "study", *study, "--place", "host", "--out", str(tmp_path)]
    done = subprocess.run(["unshare", "-n", *argv], capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert done.stderr.count("net.core.bpf_jit_enable is not visible in this network namespace") == 1, done.stderr
    for run in tmp_path.iterdir():
        assert RunDirectory.open(run).journal.count("finished") == 0


TWO = """
import sys, time
from pathlib import Path
from typing import Any
from xdplab.studies import guests, places
from xdplab.labs import rights
from xdplab.labs.base import HOST
places._LOCK, places.LOCK_S = sys.argv[3], float(sys.argv[4])
with guests.place_of(HOST) as place, place.jit(sys.argv[1] == "on"):
    print("in", flush=True)
    sys.stdin.read()
    print(Path(sys.argv[2]).read_text().strip())
"""


def jit_setting(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the file of a made-up JIT setting, and the environment whose `sysctl` reads and writes it."""
    tool, setting = folder / "bin" / "sysctl", folder / "setting"
    tool.parent.mkdir()
    tool.write_text(SYSCTL)
    tool.chmod(0o755)
    setting.write_text("1\n")
    return setting, {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "SETTING": str(setting)}


@pytest.mark.thorough
def test_two_studies_do_not_switch_each_others_jit(tmp_path: Path) -> None:
    """If one study switches the JIT off, another one would measure interpreted code as compiled."""
    setting, environment = jit_setting(tmp_path)

    def study(mode: str, patience_s: float) -> subprocess.Popen[str]:
        words = [mode, str(setting), str(tmp_path / "lock"), str(patience_s)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", TWO, *words], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    compiled, also = study("on", 100), study("on", 100)
    for each in (compiled, also):
        assert each.stdout is not None
        assert each.stdout.readline() == "in\n", "those who want the same measure side by side"
    assert "another study has held net.core.bpf_jit_enable for 1 s" in study("off", 1).communicate(timeout=60)[1]
    interpreted = study("off", 100)
    time.sleep(1)
    assert setting.read_text() == "1\n"
    assert [each.communicate(timeout=60)[0] for each in (compiled, also)] == ["1\n", "1\n"]
    assert interpreted.communicate(timeout=60)[0] == "in\n0\n"
    assert until(lambda: setting.read_text() == "1\n", 10)


KILLED = """
import os, signal
from xdplab.studies.guests import place_of
from xdplab.labs import rights
from xdplab.labs.base import HOST
with place_of(HOST) as place, place.jit(False):
    print(open(os.environ["SETTING"]).read().strip(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
SYSCTL = """#!/bin/sh
case "$1" in -n) cat "$SETTING" ;; -q) echo "${3#*=}" >"$SETTING" ;; esac
"""


def test_the_jit_is_back_after_a_study_was_killed(tmp_path: Path) -> None:
    """It is a machine-wide switch: the next study would take the changed value for the original one."""
    setting, environment = jit_setting(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0\n", -signal.SIGKILL), done.stderr
    assert until(lambda: setting.read_text() == "1\n", 10)


@pytest.mark.root
def test_the_setting_is_not_held_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would switch it during another study. A user who is not root cannot change it, and needs no lock."""
    _, environment = jit_setting(tmp_path)
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setenv("SETTING", environment["SETTING"])
    monkeypatch.setattr(places, "_LOCK", "/proc/none/lock")
    with place_of(HOST) as place:
        with pytest.raises(HostError, match=r"cannot be held: .*/proc/none/lock"), place.jit(True):
            pytest.fail("held")
        monkeypatch.setattr(places, "_HOLD_SETTING", places._HOLD_SETTING.replace("id -u", "echo 1000"))
        with place.jit(True):
            pass


def _setting() -> str | None:
    path = Path("/proc/sys/net/core/bpf_jit_enable")
    return path.read_text().strip() if path.exists() else None


def _always_compiled() -> bool:
    """Tell by trying whether this kernel refuses to interpret; the setting is put back."""
    setting = Path("/proc/sys/net/core/bpf_jit_enable")
    before = setting.read_text()
    try:
        setting.write_text("0")
    except OSError:
        return True
    setting.write_text(before)
    return False


PLACES = [
    "vm:6.1@vax",
    "vm:6.1@arm64:kvm",
    "vm:6.1:cuont",
    "vm:6.1:count:a/b",
    "vm:six",
    "rack",
    "rack.yaml",
    "netns",
    "netns:stu",
]
"""Names that are no lab's, and labs of two hosts: a study needs this machine or a guest."""
FOREIGN = ("qemu-system-aarch64", "aarch64-linux-gnu-gcc")


REFUSED = [
    *((study, place, "", ("--place", place)) for study in ("execution", "loading", "jit") for place in PLACES),
    ("offload", "vm:6.1@arm64", "", ("studies jit, execution and loading",)),
    *((study, "vm:6.1@arm64", tool, (tool,)) for study in ("execution", "loading") for tool in FOREIGN),
]


@pytest.mark.parametrize(("study", "place", "missing", "words"), REFUSED)
def test_a_place_that_cannot_be_measured_is_refused_before_anything_runs(
    study: str, place: str, missing: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == missing else f"/bin/{name}")
    done = CliRunner().invoke(cli, ["study", study, "--place", place, "--out", str(tmp_path / "runs")])
    assert isinstance(done.exception, LabError)
    assert [word for word in words if word not in str(done.exception)] == []
    assert not (tmp_path / "runs").exists()


def test_one_reason_is_said_once_with_the_first_of_its_points(tmp_path: Path) -> None:
    """An unavailable place was reported 58 times, once per trial."""
    run = STUDY.start(Request(words=tuple("abcdefgh"), repetitions=2), tmp_path)
    for trial in run.plan.trials:
        reason = "no such thing" if trial.point.word != "h" else "other"
        ended = attempt_of(trial.trial_id, status="unsupported", reason=reason)
        run.directory.journal.append("finished", **vars(ended))
    lines = sorted(failures(run.plan))
    assert len(lines) == 2
    assert lines[1] == "h: other" or lines[0] == "h: other"
    assert sum("and 4 more points: no such thing" in line for line in lines) == 1


def test_a_run_with_failed_trials_is_not_called_complete(tmp_path: Path) -> None:
    run = STUDY.start(Request(words=("a", "bad"), repetitions=1), tmp_path)
    run.measure()
    found = json.loads(CliRunner().invoke(cli, ["status", str(run.directory.path), "--json"]).output)
    assert (found["state"], found["failed"], found["trials"]) == ("ended", 1, 2)
    assert "xdplab resume" in CliRunner().invoke(cli, ["status", str(run.directory.path)]).output


class LabOfTest:
    """A lab that is in use for so many looks; ``clock`` says what its nanoseconds count."""

    def __init__(self, clock: str, looks: int) -> None:
        self.clock, self.looks = clock, looks
        self.label = "a lab"

    def host(self, _name: str) -> LocalHost:
        return LocalHost()

    @contextmanager
    def lock(self) -> Iterator[None]:
        self.looks -= 1
        if self.looks >= 0:
            raise LabInUseError("in use")
        yield


def labs_of_test(monkeypatch: pytest.MonkeyPatch, **labs: LabOfTest) -> None:
    named = {name.replace("_", ":"): lab for name, lab in labs.items()}
    monkeypatch.setattr(guests, "use_lab", lambda name: nullcontext(named[name]))
    monkeypatch.setattr(guests, "_LOOK_S", 0.01)


def test_a_counting_guest_in_use_gives_the_study_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second study's error named the option --lab, which studies lack."""
    labs_of_test(monkeypatch, vm_6_count=LabOfTest("instructions", 9), vm_6_count_2=LabOfTest("instructions", 0))
    with place_of("vm:6:count") as place:
        assert place.name == "vm:6:count", "the point is the same, whichever guest measures it"
        assert "instructions counted" in place.label


def test_what_tells_time_is_waited_for_and_this_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Placed(Measurer):
        def enter_block(self, trials: object) -> None:
            with place_of("uml"):
                pass

    labs_of_test(monkeypatch, uml=LabOfTest("time", 3))
    seen: list[str] = []

    class Watching(PlainObserver):
        def started(self, state: RunState, trial: object) -> None:
            seen.append(read_state(run.directory).text)

    kind = study_kind(**WORDS | {"session": lambda plan: Placed()})
    run = kind.start(Request(words=("a",), repetitions=1), tmp_path)
    before = WAITS.get(), MEASURED.get()
    with pytest.warns(ResultsWarning, match="waiting: uml is in use by another run"):
        run.measure(Watching(lambda _: None))
    assert (WAITS.get(), MEASURED.get()) == before, "what waits later is no part of this run"
    told = [event["why"] for event in run.directory.journal.events("waiting")]
    assert told == ["uml is in use by another run", None]
    assert "waiting" not in seen[0]
    state = read_state(run.directory)
    state.waiting = told[0]
    assert state.text.endswith("waiting: uml is in use by another run")


def test_a_place_this_machine_lacks_the_tool_for_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended there, and the other places were not measured."""

    def missing(_name: str) -> nullcontext[None]:
        raise MissingToolError("no virtual lab without qemu-system-x86", remedy="apt install qemu-system-x86")

    monkeypatch.setattr(guests, "use_lab", missing)
    with pytest.raises(UnsupportedError, match=r"vm:6.1:count: no virtual lab.*apt install"), place_of("vm:6.1:count"):
        pass


def test_a_guest_with_mitigations_is_another_place_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    labs_of_test(monkeypatch, **{"vm_6+mitigations_count": LabOfTest("instructions", 0)})
    with place_of("vm:6+mitigations:count") as place:
        assert place.label.endswith("instructions counted, mitigations on")
    guests.require_places(["vm:6.1+mitigations:count"])


def test_this_machines_headers_are_where_its_kernel_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "MODULES", tmp_path)
    with pytest.raises(UnsupportedError, match="no headers"):
        guests.build_tree(HOST)
    (tmp_path / platform.release() / "build").mkdir(parents=True)
    tree = guests.build_tree(HOST)
    assert (tree.release, tree.path) == (platform.release(), (tmp_path / platform.release() / "build").resolve())


@pytest.mark.parametrize(
    ("sizes", "repetitions", "exact", "kind"),
    [
        (3, 2, False, "line"),
        (2, 2, False, "point"),
        (3, 1, False, "point"),
        (3, 1, True, "line"),
        (2, 9, True, "point"),
    ],
)
def test_a_line_joins_three_sizes_of_what_was_repeated_or_counted(
    sizes: int, repetitions: int, exact: bool, kind: str
) -> None:
    marks = marks_frame([{"kind": "line", "hue": "a", "x": x, "value": 1.0, "n": repetitions} for x in range(sizes)])
    assert set(without_trends(marks, exact=exact)["kind"]) == {kind}


def test_every_figure_of_a_study_has_a_title_that_stands_on_it() -> None:
    figures = [figure for module in (execution, jit, loading, verifier) for figure in module.FIGURES]
    assert [figure.name for figure in figures if not figure.title] == []
    view = View(marks_frame([{"kind": "point", "x": 1.0, "value": 1.0}]),
                Look(Axes("N", "ns", "linear"), words=Words(title="What loading costs")))  # fmt: skip
    assert [text.get_text() for text in draw(view).figure.texts] == ["What loading costs"]
    assert not draw(view, sized(caption=False)).figure.texts


@dataclass(frozen=True)
class Switched(Word):
    place: str = "vm:6.1:count"

    @property
    def block(self) -> tuple[str, ...]:
        return (self.place,)

    @property
    def setting(self) -> str:
        return self.word[-1]


def test_a_place_is_switched_once_a_repetition_and_its_start_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated guest took 8 s to switch its JIT: half of a smallest run."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    trials = schedule([Switched(f"{n}{setting}") for n in range(4) for setting in "xy"], 2, 1)
    assert "".join(trial.point.setting for trial in trials) == "xxxxyyyy" * 2
    first, *others = costs_s(trials)
    assert set(others) == {trials[0].point.cost_s}
    assert first == trials[0].point.cost_s + BOOT_S["vm"]
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    assert costs_s(trials)[1] > 2 * others[0]  # a machine at work


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([("a", "one"), ("b", "two"), ("a", "one")], ["one", "two", "one"]),
        ([("a", "one"), ("b", "one"), ("c", "two")], ["one, a", "one, b", "two"]),
        ([("a", "one"), ("a", "one, hardened")], ["one", "one, hardened"]),
        ([("a", None), ("b", None)], [None, None]),
    ],
    ids=["labels differ", "two of one label", "settings of a place", "never entered"],
)
def test_a_label_names_the_place_where_several_have_it(rows: list[tuple[str, str | None]], labels: list[Any]) -> None:
    assert [row["label"] for row in name_places({"place": place, "label": label} for place, label in rows)] == labels
