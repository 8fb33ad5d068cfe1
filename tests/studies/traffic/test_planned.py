"""A run directory alone shows which trials it owes."""

import json
import shutil
import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.attempts import attempt_of

from xdplab.cli.programs import ProgramSettings
from xdplab.cli.race import RaceRules, race_plan
from xdplab.compiler import sources_of
from xdplab.errors import PlanError
from xdplab.plan import load_plan, parse_plan
from xdplab.plan.model import Plan
from xdplab.run.progress import silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.fleet import JoinedLabs
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.studies.traffic.prepare import require_content
from xdplab.studies.traffic.race import race_sides
from xdplab.studies.traffic.run_files import create_run, extend_run, plan_trials, rivals, run_plan, run_trials_of
from xdplab.studies.traffic.runs import MEASURED
from xdplab.studies.traffic.trials import _visits


def plan_of(*blocks: dict[str, Any], **keys: Any) -> Plan:
    return parse_plan({"name": "t", "blocks": list(blocks)} | keys)


def of_accesses(*accesses: int, **keys: Any) -> Plan:
    return plan_of({"points": {"accesses": list(accesses)}}, **keys)


PLAN = of_accesses(0, 100)


def begun(folder: Path, plan: Plan = PLAN, lab: str = "netns", **options: Any) -> RunDirectory:
    return create_run(plan, folder, lab=lab, arrangement="shared", **options)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return begun(tmp_path)


def user_plan(folder: Path) -> Plan:
    (folder / "mine.bpf.c").write_text('#include "mine.h"\n')
    (folder / "mine.h").write_text("#define X 1\n")
    return plan_of({"points": {"program": {"file": str(folder / "mine.bpf.c"), "action": "drop"}}})


def test_the_trials_come_back_from_the_directory(run: RunDirectory) -> None:
    assert run_trials_of(run) == plan_trials(PLAN, "shared")
    assert read_state(run).owed == [t.trial_id for t in run_trials_of(run)]


RACE, DROPS = RaceRules(at_most=30, name="r"), ProgramSettings(action="drop")
LAYOUTS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "a header beside it": ({"p.c": '#include "a.h"', "a.h": "int a;"}, {}),
    "of a subfolder, where the system has one of that name": (
        {"p.c": '#include "linux/bpf.h"\nint x = MINE;', "linux/bpf.h": "#define MINE 1"},
        {},
    ),
    "of a parent folder": (
        {"src/p.c": '#include "../common/a.h"', "common/a.h": '#include "b.h"', "common/b.h": ""},
        {},
    ),
    "of which only is asked whether it is there": (
        {"p.c": '#if __has_include("fast.h")\nint x;\n#endif', "fast.h": "int y;"},
        {},
    ),
    "another C file": ({"p.c": '#include "rest.c"', "rest.c": "int x;"}, {}),
    "a flag, from the plan": (
        {"src/p.c": '#include "a.h"\nint x = LIMIT;', "inc/deep/a.h": ""},
        {"cflags": ["-Iinc/deep", "-DLIMIT=4"]},
    ),
    "a flag, from its folder": ({"src/p.c": "#include <k/a.h>", "inc/k/a.h": ""}, {"cflags": "-I ../inc -I ../src"}),
    "a folder above all": ({"src/p.c": "#include <inc/a.h>", "inc/a.h": ""}, {"cflags": ["-I."]}),
    "a flag with a file": ({"p.c": "int y = A;", "inc/a.h": "#define A 1"}, {"cflags": ["-include", "inc/a.h"]}),
    "names with spaces": ({"a b/p c.c": '#include "x y/ö #1.h"', "a b/x y/ö #1.h": ""}, {}),
    "files that its setup names": (
        {"p.c": "int x;", "fill.sh": "bpftool", "data/nets.txt": "10.0.0.0"},
        {"setup": [["sh", "fill.sh"], ["sh", "-c", "cat data/nets.txt | sh ./fill.sh; cat /etc/passwd"]]},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_users_program_travels_with_all_that_it_consists_of(tmp_path: Path, layout: str) -> None:
    """Of another's header of that name, another program was made: 17.9 Mpps for 0.93."""
    files, keys = LAYOUTS[layout]
    source = tmp_path / "project"
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    program = {"file": next(iter(files)), "action": "drop"} | keys
    (source / "plan.yaml").write_text(json.dumps({"name": "u", "blocks": [{"points": {"program": program}}]}))
    plan = load_plan(source / "plan.yaml")
    asked = plan_trials(plan, "shared")[0].point
    run = begun(tmp_path / "out", plan)
    assert str(tmp_path) not in (run.path / "plan.yaml").read_text()
    moved = run.path.rename(tmp_path / "moved")
    shutil.rmtree(source)
    point = run_trials_of(type(run)(moved))[0].point
    copies = [point.program.file, *point.program.sources, *dict(point.program.setup_files).values()]
    assert all(Path(path).is_relative_to(moved) for path in copies)
    assert sorted(Path(path).read_text() for path in copies) == sorted(files.values())
    assert point.point_id == asked.point_id
    require_content(point.program)
    if "setup" not in keys:
        read = sources_of(Path(point.program.file), point.program.cflags)
        assert [str(path) for path in read] == [point.program.file, *point.program.sources]


def test_all_programs_of_a_block_travel(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.bpf.c" for name in "ab"]
    for file in files:
        file.write_text(f"int {file.name[0]};")
    run = begun(tmp_path / "out", plan_of({"points": {"program": [{"file": str(file)} for file in files]}}))
    assert str(tmp_path) not in (run.path / "plan.yaml").read_text()


def test_headers_that_only_the_environment_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc/a.h").write_text("")
    (tmp_path / "p.c").write_text("#include <a.h>")
    monkeypatch.setenv("C_INCLUDE_PATH", str(tmp_path / "inc"))
    plan = plan_of({"points": {"program": {"file": str(tmp_path / "p.c")}}})
    with pytest.raises(PlanError, match=r"inc/a.h .*`cflags"):
        begun(tmp_path / "out", plan)


@pytest.mark.parametrize(
    ("frames", "timing", "words"),
    [
        ([(0, 9000)], "load", r"frame 1 has 9000 bytes"),
        ([(2, 60), (1, 60)], "recorded", "frame 2"),
        ([(2, 60), (1, 60)], "load", None),
    ],
)
def test_a_pcap_that_cannot_be_sent_is_named_before_anything_is_made(
    frames: list[tuple[int, int]], timing: str, words: str | None, tmp_path: Path
) -> None:
    """What else is refused: tests/formats/test_pcap.py."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = [struct.pack("<IIII", time, 0, size, size) + bytes(size) for time, size in frames]
    (tmp_path / "x.pcap").write_bytes(header + b"".join(records))
    plan = user_plan(tmp_path).model_dump()
    plan["blocks"][0]["points"]["program"][0]["frames"] = str(tmp_path / "x.pcap")
    plan["blocks"][0]["traffic"] |= {"timing": [timing], "engine": ["afxdp"], "stamp": ["none"]}
    with pytest.raises(PlanError, match=rf"x\.pcap: {words}") if words else nullcontext():
        begun(tmp_path / "out", parse_plan(plan))
    assert (tmp_path / "out").exists() == (words is None)


def test_why_a_users_program_measures_nothing_is_known_after_its_first_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path / "out", user_plan(tmp_path))
    judged = {"verdict": "invalid", "reason": "no frame came back"}
    monkeypatch.setattr(runs, "trials", SimpleNamespace(attempt_rows=lambda *_, **__: SimpleNamespace(row=judged)))
    seen: list[str | None] = []
    observer: Any = SimpleNamespace(finished=lambda trial, attempt: seen.append(attempt.reason))
    observing = runs.JudgingObserver(observer, run, 1.0)
    for trial in run_trials_of(run):
        observing.finished(trial, attempt_of(trial.trial_id))
        judged |= {"verdict": "valid"} if trial.repetition == 2 else {}
    assert seen == ["invalid: no frame came back", "invalid: no frame came back", None]


def test_each_point_of_a_race_whose_sides_differ_in_their_program_alone_is_sliced() -> None:
    sides = [{"points": {"workload": workload, "accesses": [1, 2]}} for workload in ("array", "packet")]
    sliced = rivals(plan_of(*sides, race={}), "shared")
    assert sorted(a.program.accesses for a in sliced.values()) == [1, 2]
    assert {a.program.workload for a in sliced.values()} == {"array"}
    assert rivals(plan_of(*sides, race={"by": "windows"}), "shared") == {}


def test_an_edited_plan_is_refused(run: RunDirectory) -> None:
    (run.path / "plan.yaml").write_text((run.path / "plan.yaml").read_text().replace("100", "200"))
    with pytest.raises(PlanError, match="not the plan this run was made with"):
        run_trials_of(run)


def test_an_extension_adds_only_what_is_new(run: RunDirectory) -> None:
    wider = of_accesses(0, 100, 1600)
    extend_run(run, wider)
    trials = run_trials_of(run)
    assert len(trials) == 9
    assert sorted(t.order for t in trials) == list(range(9))
    assert set(read_state(run).owed) == {t.trial_id for t in plan_trials(wider, "shared")}


def test_only_is_remembered(tmp_path: Path) -> None:
    run = begun(tmp_path, only={"accesses": "0"})
    assert {t.point.program.accesses for t in run_trials_of(run)} == {0}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of({}, {"lab": "netns:b"}), "netns:b"),  # `resume --labs` would measure it in whichever lab is free
        (plan_of({}, repetitions={"until": "2%"}), "an open number of repetitions"),  # all would be measured
    ],
)
def test_what_is_not_shared_among_labs(tmp_path: Path, plan: Plan, words: str) -> None:
    shared = JoinedLabs(("netns:c", "netns:d"), None, None, MEASURED)  # type: ignore[arg-type]
    run = begun(tmp_path / "begun", plan, lab="netns:a")
    with pytest.raises(PlanError, match=words):
        shared.measure(TRAFFIC.run(run), silent())


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"trial": {"window_s": 10}}, r"trial.window_s is 10.0 in this plan and 1.0 in "),
        ({"trial": {"throttling": "off"}}, "trial.throttling is off"),
        (
            {"perf_events": ["cycles"], "blocks": [{"points": {"accesses": 7}, "passes": ["rate", "perf"]}]},
            "perf_events is",
        ),
        ({"metrics": [{"name": "forks", "argv": ["true"]}]}, "metrics is"),
        ({"repetitions": {"until": "2%"}}, "repetitions is"),
    ],
)
def test_an_extension_that_would_be_measured_otherwise_is_refused(
    run: RunDirectory, other: dict[str, object], words: str
) -> None:
    """The run's first plan says how its trials are measured: the settings of the second one were ignored silently."""
    before = run.journal.path.read_bytes()
    with pytest.raises(PlanError, match=words):
        extend_run(run, of_accesses(1600, **other))
    assert run.journal.path.read_bytes() == before
    assert not (run.path / "plan-2.yaml").exists()


def test_an_extension_may_have_more_repetitions_and_another_seed(run: RunDirectory) -> None:
    more = {"name": "m", "lab": "netns:b", "seed": 7, "repetitions": 5, "trial": {"retries": 3}, "perf_events": []}
    extend_run(run, of_accesses(100, **more))
    assert {t.repetition for t in run_trials_of(run)} == {1, 2, 3, 4, 5}


def test_a_race_is_not_extended(tmp_path: Path) -> None:
    """The old plan's race released the new points, and a new race's rivals were unknown to the run."""
    race = plan_of(*({"points": {"accesses": n}} for n in (100, 400)), race={})
    for first, second in ((race, PLAN), (PLAN, race)):
        with pytest.raises(PlanError, match="a race has two sides"):
            extend_run(begun(tmp_path, first), second)


def test_a_point_of_the_run_gets_no_further_pass(run: RunDirectory) -> None:
    """Its trials are measured already, without that pass, and the extension measured nothing."""
    old, new = (plan_of({"points": {"accesses": n}, "passes": ["rate", "perf"]}) for n in (100, 1600))
    with pytest.raises(PlanError, match="without pass perf"):
        extend_run(run, old)
    extend_run(run, new)


def test_a_program_with_another_header_is_another_point(tmp_path: Path) -> None:
    run = begun(tmp_path / "out", user_plan(tmp_path))
    extend_run(run, user_plan(tmp_path))
    assert len(run_trials_of(run)) == 3
    wider = user_plan(tmp_path)
    (tmp_path / "mine.h").write_text("#define X 2\n")
    extend_run(run, wider)
    kept = {trial.point.program.file_sha256: trial.point.program for trial in run_trials_of(run)}
    headers = [Path(program.file).with_name("mine.h").read_text() for program in kept.values()]
    assert sorted(headers) == ["#define X 1\n", "#define X 2\n"]


@pytest.mark.parametrize("header", ["#define X 1\n", "#define X 2\n"])
def test_files_of_one_name_race_under_the_names_of_their_folders(tmp_path: Path, header: str) -> None:
    for folder, text in (("old", "#define X 1\n"), ("new", header)):
        (tmp_path / folder / "src").mkdir(parents=True)
        user_plan(tmp_path / folder / "src")
        (tmp_path / folder / "src/mine.h").write_text(text)
    sides = [str(tmp_path / folder / "src/mine.bpf.c") for folder in ("old", "new")]
    plan = race_plan((sides[0], sides[1]), RACE, DROPS)
    assert race_sides(plan, "shared") == ("old/src/mine.bpf.c", "new/src/mine.bpf.c")
    run = begun(tmp_path / "out", plan)
    assert race_sides(run_plan(run), "shared") == ("old/src/mine.bpf.c", "new/src/mine.bpf.c")
    assert len({trial.point.point_id for trial in run_trials_of(run)}) == 2
    with pytest.raises(PlanError, match="both sides measure mine"):
        plan_trials(race_plan((sides[0], sides[0]), RACE, DROPS), "shared")


def test_programs_of_one_name_race_under_the_names_of_their_files(tmp_path: Path) -> None:
    plans = []
    for side in ("old", "new"):
        (tmp_path / f"{side}.bpf.c").write_text(f"int {side};\n")
        program = f"{{file: {side}.bpf.c, name: filter, action: drop}}"
        (tmp_path / f"{side}.yaml").write_text(f"name: {side}\nblocks: [{{points: {{program: {program}}}}}]\n")
        plans.append(str(tmp_path / f"{side}.yaml"))
    assert race_sides(race_plan((plans[0], plans[1]), RACE, ProgramSettings()), "shared") == ("old.bpf.c", "new.bpf.c")


def test_a_visit_of_a_block_ends_with_another_block_or_session(tmp_path: Path) -> None:
    """What `--extend`, `resume` or a retry adds to a block is of another visit than its N = 0."""
    run = begun(tmp_path, plan_of({"points": {"accesses": [100], "mode": ["native", "generic"]}}))
    trials = {trial.trial_id: trial for trial in run_trials_of(run)}
    a, b, c, d = [trial.trial_id for trial in list(trials.values())[:4]]
    assert trials[a].block == trials[b].block != trials[c].block

    def ended(trial: str, attempt: int, **facts: str) -> None:
        run.journal.append("finished", **vars(attempt_of(trial, attempt, facts=facts)))

    for trial in (a, b, c, d):
        ended(trial, 1)
    ended(b, 2)
    run.journal.append("hosts", when="before", session=1, state={"lab": "netns", "xdplab": {}, "dut": {}, "tg": {}})
    ended(b, 3)
    found = {key: number for key, (number, _) in _visits(run, trials).items()}
    assert found == {(a, 1): 1, (b, 1): 1, (c, 1): 2, (d, 1): 2, (b, 2): 3, (b, 3): 4}
    for trial in (a, c, b, d):  # two labs at once
        ended(trial, 4, lab="netns:1" if trial in (a, b) else "netns:2")
    found = {key: number for key, (number, _) in _visits(run, trials).items()}
    assert found[a, 4] == found[b, 4] != found[c, 4] == found[d, 4]
