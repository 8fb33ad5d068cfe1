"""What `race` measures: programs follow the options, plans follow their own text; unfair pairs are refused."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import xdplab as xl
from xdplab import notebook
from xdplab.cli.common import SHARE
from xdplab.cli.programs import ProgramSettings
from xdplab.cli.race import RaceRules, race_plan
from xdplab.errors import LabError, PlanError, UnsupportedError
from xdplab.plan import Plan, parse_plan, race_of
from xdplab.studies.traffic import checks
from xdplab.studies.traffic.run_files import plan_trials, race_pairs, why_not_sliced
from xdplab.studies.traffic.turns import labs_of


def raced(first: str | Path, second: str | Path, labs: tuple[str, str] | None = None) -> Plan:
    rules = RaceRules(mode="generic", accesses=7, frame_bytes=128, at_most=30, name="r")
    return race_plan((str(first), str(second)), rules, labs=labs)


def plan(folder: Path, name: str, **changes: Any) -> Path:
    block = {"points": {"mode": "native", "accesses": [100, 400]}, "traffic": {"flows": 4}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "trial": {"window_s": 0.2}, "blocks": [block]} | changes))
    return path


def test_two_plans_race_as_they_are(tmp_path: Path) -> None:
    other = {"points": {"mode": "generic", "accesses": [100, 400]}, "traffic": {"flows": 8}}
    made = raced(plan(tmp_path, "a"), plan(tmp_path, "b", blocks=[other]))
    pairs = [(a.mode, a.program.accesses, b.mode, b.program.accesses) for a, b in race_pairs(made, "shared")]
    assert pairs == [("native", 100, "generic", 100), ("native", 400, "generic", 400)]
    assert made.trial.window_s == 0.2
    assert made.race is not None
    assert made.race.at_most == 30


def test_a_plan_races_a_workload_by_the_options_of_that_side_alone(tmp_path: Path) -> None:
    one = {"points": {"mode": "native", "accesses": [100]}}
    ((a, b),) = race_pairs(raced(plan(tmp_path, "a", blocks=[one]), "array"), "shared")
    assert (a.mode, a.program.accesses, b.mode, b.program.accesses, b.frame_bytes) == ("native", 100, "generic", 7, 128)


def block(mode: str = "native", load: str = "max", **program: Any) -> dict[str, Any]:
    return {"points": {"mode": mode, **program}, "traffic": {"load": load}}


@pytest.mark.parametrize(
    ("sides", "why"),
    [
        ((block(workload="array"), block(workload="chase")), None),
        ((block(accesses=100), block(accesses=400)), None),
        ((block("generic", workload="array"), block("generic", workload="chase")), None),
        ((block("native"), block("generic")), "the sides differ in mode"),
        ((block(workload="array"), block(workload="chase", frame_bytes=128)), "the sides differ in frame_bytes"),
        ((block("af_xdp", workload="array"), block("af_xdp", workload="chase")), "a program is not exchanged in mode "
         "af_xdp"),
        ((block(load="20kpps", workload="array"), block(load="20kpps", workload="chase")), "at a paced load the sender "
         "decides the rate"),
        ((block(workload="array"), block(workload="chase") | {"lab": "netns:b"}), "the sides differ in lab"),
    ],
)  # fmt: skip
def test_only_programs_alone_are_exchanged_under_one_sender(
    sides: tuple[dict[str, Any], dict[str, Any]], why: str | None
) -> None:
    made = parse_plan({"name": "r", "blocks": list(sides), "race": {}})
    ((a, b),) = race_pairs(made, "shared")
    assert why_not_sliced(a, b) == why
    passes = {trial.point.point_id: trial.point.passes for trial in plan_trials(made, "shared")}
    assert passes == {a.point_id: ("rate",), b.point_id: ("rate",) if why else ("rate", "slices")}
    windows = parse_plan({"name": "r", "blocks": list(sides), "race": {"by": "windows"}})
    assert {trial.point.passes for trial in plan_trials(windows, "shared")} == {("rate",)}


def test_a_program_that_is_set_up_by_commands_is_not_exchanged(tmp_path: Path) -> None:
    """bpftool finds a map by its name, and both programs of a pair may have a map of that name."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.bpf.c").write_text(f"// {name}")
    files = [{"file": str(tmp_path / f"{name}.bpf.c"), "action": "tx", "setup": [["true"]]} for name in ("a", "b")]
    sides = [{"points": {"mode": "native", "program": file}} for file in files]
    ((a, b),) = race_pairs(parse_plan({"name": "r", "blocks": sides, "race": {}}), "shared")
    assert "`maps:`" in str(why_not_sliced(a, b))


def test_a_notebook_races_plans_by_file_and_in_hand(tmp_path: Path) -> None:
    file = plan(tmp_path, "a", blocks=[{"points": {"mode": "native", "accesses": [100]}}])
    in_hand = xl.plan("b", "array", mode="generic", accesses=100, trial={"window_s": 0.2})
    limits = {"margin": 0.05, "at_least": 5, "at_most": 9}
    made = race_of("r", notebook._sides(str(file), in_hand, "r", {}), limits, ("netns", "vm:6.1"))
    ((a, b),) = race_pairs(made, "shared")
    assert (a.mode, a.program.accesses, b.mode, b.program.accesses, b.lab) == ("native", 100, "generic", 100, "vm:6.1")
    assert (made.trial.window_s, made.race and made.race.margin) == (0.2, 0.05)
    ((_, workload),) = race_pairs(
        race_of("r", notebook._sides(in_hand, "chase", "r", {"accesses": 7, "flows": 8}), {}), "shared"
    )
    assert (workload.program.workload, workload.flows) == ("chase", 8)
    with pytest.raises(PlanError, match="flows: both sides are plans, which have their own factors"):
        xl.race(str(file), in_hand, flows=8)


def test_a_margin_is_a_share_as_in_a_plan() -> None:
    assert SHARE.convert("2%", None, None) == SHARE.convert("0.02", None, None) == 0.02


def test_sides_that_would_not_be_fair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="other `trial:` settings"):
        raced(plan(tmp_path, "a"), plan(tmp_path, "b", trial={"window_s": 1.0}))
    two = plan(tmp_path, "two", blocks=[{"points": {"mode": mode}} for mode in ("native", "generic")])
    with pytest.raises(PlanError, match="has 2 blocks, and a side of a race is one"):
        raced(two, "array")


def test_one_program_races_itself_in_two_labs() -> None:
    made = raced("array", "array", labs=("vm:6.1", "vm:6.12"))
    ((a, b),) = race_pairs(made, "shared")
    assert (made.lab, a.lab, b.lab) == ("vm:6.1", "auto", "vm:6.12")
    assert a.program == b.program
    assert a.point_id == race_pairs(raced("array", "chase"), "shared")[0][0].point_id, "the plan's lab is in no id"


def _lab(name: str, **own: Any) -> Any:
    return SimpleNamespace(name=name, arrangement="shared", virtual=True, clock="time", **own)


def test_labs_that_would_not_be_fair_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"split": SimpleNamespace(name="split", arrangement="split"), "netns:default": _lab("netns")}
    monkeypatch.setattr("xdplab.studies.traffic.turns.use_lab", lambda name: nullcontext(known[name]))
    refused = {"split": "arrangement shared, split of split", "netns:default": "the lab of the plan itself"}
    for other, words in refused.items():
        blocks = raced("array", "array", labs=("netns", other)).blocks
        with pytest.raises(LabError, match=words), labs_of(blocks, _lab("netns")):
            pass


def test_a_guest_without_real_time_is_in_no_race() -> None:
    guest = SimpleNamespace(name="vm:6.1", virtual=True, clock=None)
    with pytest.raises(PlanError, match=r"a race goes by rates, and lab vm:6\.1 has none"):
        checks.check_plan(raced("array", "chase"), guest)  # type: ignore[arg-type]
    guest.clock = "instructions"
    with pytest.raises(UnsupportedError):
        checks.check_plan(raced("array", "chase"), guest)  # type: ignore[arg-type]


def test_programs_of_a_command_line_have_what_a_plan_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old.bpf.c", "new.bpf.c"):
        (tmp_path / name).write_text(f"int {name[:3]};")
    (tmp_path / "nets.csv").write_text("key,value\n1,1\n")
    (tmp_path / "fill.sh").write_text("true")
    monkeypatch.chdir(tmp_path)
    settings = ProgramSettings(
        action="drop",
        section="xdp.frags",
        rodata=("limit=5", "cfg={low: 1}"),
        maps=("allowed=50220={packets: 0}", 'allowed={"src":"10.0.0.1"}=7', "nets=nets.csv"),
        setup=("sh fill.sh 'a b'",),
    )
    made = race_plan(("old.bpf.c", "new.bpf.c"), RaceRules(), settings)
    assert made.trial.window_s == 0.5
    for (program,) in (block.points.program or () for block in made.blocks):
        assert (program.section, program.action) == ("xdp.frags", "drop")
        assert program.rodata == {"limit": 5, "cfg": {"low": 1}}
        entries = [{"key": "50220", "value": {"packets": 0}}, {"key": {"src": "10.0.0.1"}, "value": 7}]
        assert program.maps == {"allowed": entries, "nets": str(tmp_path / "nets.csv")}
        assert program.setup == [["sh", "fill.sh", "a b"]]
        assert program.setup_files == {"fill.sh": str(tmp_path / "fill.sh")}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"maps": ("allowed",)}, "neither NAME=KEY=VALUE nor NAME=FILE"),
        ({"maps": ("allowed=7",)}, "neither NAME=KEY=VALUE nor NAME=FILE"),
        ({"maps": ('allowed={"a"=1',)}, "the key is not JSON"),
        ({"maps": ("allowed=a.csv", "allowed=1=1")}, "given twice"),
        ({"maps": ("allowed=1={a",)}, "no value of a plan"),
        ({"rodata": ("limit",)}, "not NAME=VALUE"),
    ],
)
def test_an_option_of_another_form_is_refused_with_its_text(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        ProgramSettings(**settings).of(Path("a.bpf.c"))


def test_fewer_pairs_than_the_least_of_a_plan_are_asked_for_with_one_option() -> None:
    limits = [race_plan(("array", "chase"), RaceRules(at_most=most)).race for most in (3, 30)]
    assert [(limit.at_least, limit.at_most) for limit in limits if limit] == [(3, 3), (5, 30)]
