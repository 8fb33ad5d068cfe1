"""The environment of a study's run: each place is asked, the answers are kept, shown, and listed first by compare."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.studies.test_every_run import lengths, view
from tests.studies.test_frame import WORDS, Measurer, Request

from xdplab.cli import cli
from xdplab.hosts.local import LocalHost
from xdplab.run.journal import CheckedLines
from xdplab.run.rundir import RunDirectory
from xdplab.studies import provenance
from xdplab.studies.comparing import Unlike
from xdplab.studies.environment import around, flat, origin, summary
from xdplab.studies.kind import Run
from xdplab.studies.places import Place
from xdplab.studies.provenance import CONTROLLER, LAB, LAB_KEPT, PLACE, answers
from xdplab.studies.study_kind import study_kind
from xdplab.studies.verifier.prevail import Prevail, version_of

GUEST = "a guest"
HARDEN = "/proc/sys/net/core/bpf_jit_harden"


class Guest(Measurer):
    """The run's place is a guest, which is this machine under another name."""

    place: Place | None = None

    def enter_block(self, trials: object) -> None:
        self.place = Place(GUEST, LocalHost(), "time", "6.1", GUEST)

    def leave_block(self) -> None:
        self.place = None


OF_GUEST = {"session": lambda _: Guest(), "table": lengths, "views": {"lengths": view}}
STUDY = study_kind(**WORDS | OF_GUEST | {"tools": lambda _: {"alarm clock": "1.2"}})


def measured(folder: Path, name: str = "words") -> Run[Any]:
    made = STUDY.start(Request(words=("a",), repetitions=2), folder, name)
    made.measure()
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run[Any]:
    return measured(tmp_path)


def test_an_answer_is_a_value_or_absent_with_the_last_line() -> None:
    questions = {
        "greeting": ("printf", "%s", "it's; $HOME"),
        "lines": ("printf", "a\\nb"),
        "none": ("cat", "/nowhere"),
        "no_tool": ("no-such-tool",),
        "silent": ("true",),
        "here": ("echo", "x"),
    }
    found = answers(LocalHost(), questions)
    assert "No such file" in found.pop("none")["absent"]
    assert "not found" in found.pop("no_tool")["absent"]
    assert found == {
        "greeting": {"value": "it's; $HOME"},
        "lines": {"value": "a\nb"},
        "silent": {"absent": "it printed nothing"},
        "here": {"value": "x"},
    }


def make_tool(folder: Path, version: str) -> None:
    """Put a program into ``folder`` that says its version, and counts how often it was asked."""
    folder.mkdir(exist_ok=True)
    script = folder / "new"
    script.write_text(f'#!/bin/sh\necho >>"$ASKED"\necho {version}\n')
    script.chmod(0o755)
    script.rename(folder / "tool")


CHANGES: dict[str, Callable[[Path], object]] = {
    "another file in its place": lambda at: make_tool(at / "bin", "2"),
    "its file was written to": lambda at: (at / "bin/tool").write_text(
        (at / "bin/tool").read_text().replace("1", "22")
    ),
    "another one is first in PATH": lambda at: make_tool(at / "local", "2"),
    "it was removed": lambda at: (at / "bin/tool").unlink(),
    "the installed packages": lambda at: (at / "packages").write_text("one more"),
    "the boot": lambda at: (at / "boot").write_text("another"),
    "ten minutes": lambda _: time.sleep(provenance.KEPT_S),
}


AFTER = {"its file was written to": "22", "it was removed": None} | dict.fromkeys(
    ("the installed packages", "the boot", "ten minutes"), "1"
)
"""The version then, where it is not 2."""


def test_a_host_that_is_cut_off_has_answered_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_MOST_HANGING", 0.01)
    found = answers(LocalHost(), {"word": ("echo", "a"), "slow": ("sleep", "60")}, deadline_s=0.5)
    assert found == {"word": {"value": "a"}, "slow": {"absent": "the host did not answer"}}


def test_each_host_is_asked_about_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_state", lambda lab, host, port: f"{lab.name} {host} {port}")
    ends = {"dut": "first", "dut_interface": "vd0", "tg": "second", "tg_interface": "vg0"}
    lab: Any = SimpleNamespace(name="rack", label="r", virtual=False, arrangement="hosts", **ends)
    monkeypatch.setattr(provenance, "own_version", lambda: {"commit": "ab12"})
    assert provenance.host_states(lab) == {
        "lab": "rack", "label": "r", "virtual": False, "arrangement": "hosts", "xdplab": {"commit": "ab12"},
        "dut": "rack first vd0", "tg": "rack second vg0",
    }  # fmt: skip
    monkeypatch.setattr(provenance, "answers", lambda host, asked: (host, *asked))
    after = provenance.host_states(lab, "after")
    assert (after["dut"], after["tg"]) == (("first", *provenance.MOMENT), ("second", *provenance.MOMENT))


@pytest.mark.parametrize("change", CHANGES)
def test_a_programs_version_is_asked_once_until_something_changes(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages").write_text("")
    (tmp_path / "boot").write_text("one")
    monkeypatch.setattr(provenance, "PACKAGES", (str(tmp_path / "packages"),))
    monkeypatch.setattr(provenance, "BOOT", str(tmp_path / "boot"))
    monkeypatch.setattr(provenance, "KEPT_S", 1 if change == "ten minutes" else 10**9)
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("PATH", f"{tmp_path}/local:{tmp_path}/bin:{os.environ['PATH']}")
    make_tool(tmp_path / "bin", "1")

    def ask() -> tuple[provenance.Answers, int]:
        tools = {"tool": ("tool", "--version"), "none": ("no-such-tool",)}
        found = answers(LocalHost(), {"word": ("echo", "a")}, kept=tools, file=f"{tmp_path}/work/versions")
        return found, len((tmp_path / "asked").read_text())

    first, asked = ask()
    assert first["tool"] == {"value": "1"}
    assert "not found" in first["none"]["absent"]
    assert change == "ten minutes" or ask() == (first, asked)
    CHANGES[change](tmp_path)
    found, asked_again = ask()
    assert found["word"] == {"value": "a"}
    assert (asked_again == asked + 1) is (change != "it was removed")
    assert found["tool"].get("value") == AFTER.get(change, "2")


def test_what_a_run_has_recorded_of_its_hosts_is_still_asked() -> None:
    sample = Path(__file__).parents[2] / "results" / "sample"
    recorded = json.loads((sample / "manifest.json").read_text())["sessions"][0]["state"]
    assert set(recorded["dut"]) == set(recorded["tg"]) <= set(LAB | LAB_KEPT)


def test_each_place_is_asked_once_per_session(run: Run[Any]) -> None:
    manifest = json.loads((run.directory.path / "manifest.json").read_text())
    asked = [(one["session"], one["place"], one["when"]) for one in manifest["sessions"]]
    assert asked == [(0, CONTROLLER, "before"), (0, GUEST, "before"), (0, CONTROLLER, "after")]
    here = manifest["sessions"][0]["state"]
    assert set(PLACE) | {"load", "cpu_ticks", "qemu", "libbpf", "clang", "alarm clock", "xdplab"} <= set(here)
    assert here["alarm clock"] == {"value": "1.2"}
    assert here["kernel"] == manifest["sessions"][1]["state"]["kernel"]


def rewritten(
    run: Run[Any], place: str, change: Callable[[dict[str, Any]], object], when: tuple[str, ...] = ("before",)
) -> None:
    """Change the journal's record of a place."""
    path = run.directory.path / "journal.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event.get("place") == place and event["when"] in when:
            change(event)
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    run.directory.journal.checked = CheckedLines()  # it was of the journal before


def changed(run: Run[Any], place: str, **answered: str) -> None:
    said = {name: {"value": value} for name, value in answered.items()}
    rewritten(run, place, lambda event: event["state"].update(said))


def renamed(run: Run[Any], place: str, other: str) -> None:
    rewritten(run, place, lambda event: event.update(place=other))


def forgotten(run: Run[Any], place: str, name: str) -> None:
    rewritten(run, place, lambda event: event["state"].pop(name))


def test_compare_lists_what_was_not_the_same_first(run: Run[Any], tmp_path: Path) -> None:
    other = measured(tmp_path, "later")
    assert run.compare(other).unlike == ()
    changed(other, GUEST, settings=f"{HARDEN}:2", mitigations="/sys/x/spectre_v2:Vulnerable\n/sys/x/mds:Not affected")
    changed(other, CONTROLLER, **{"alarm clock": "1.3", "load": "9 9 9"})
    unlike = run.compare(other).unlike
    names = [one.what for one in unlike]
    assert f"{GUEST}: net.core.bpf_jit_harden" in names
    assert any("mitigations" in name for name in names)
    assert f"{CONTROLLER}: alarm clock" in names
    assert not any("load" in name for name in names)
    lines = run.compare(other).lines()
    assert lines[0].startswith("What differs around")
    assert "alarm clock: 1.2 → 1.3" in "\n".join(lines[1 : 1 + len(unlike)])


A_LIST = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov"


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (None, "", "x: not known → empty"),
        ("8" * 80, "9", f"x: {'8' * 59}… → 9"),
        (f"{A_LIST} pat avx", f"{A_LIST} pat sse", "x: …avx → …sse"),
        (f"{A_LIST} pat", f"{A_LIST} pat sse", "x: …pat → …pat sse"),
        ("/" * 61 + "a", "/" * 61 + "b", "x: …a → …b"),
        (f"{A_LIST} {'4,' * 99}62", f"{A_LIST} {'4,' * 99}64", f"x: …,{'4,' * 14}62 → …,{'4,' * 14}64"),
        ("tool v7\nlib 1.5", "tool v7\nlib 1.6", "x: …1.5 → …1.6"),
        ("tool v7", "tool v7\n\nlib", "x: …and no more → …lib"),
    ],
)
def test_a_difference_shows_what_differs(first: str | None, second: str, shown: str) -> None:
    """Two lists of a CPU's flags were cut to the same text on both sides."""
    assert Unlike("x", first, second).text == shown


def test_a_file_of_the_kernel_has_its_whole_answer() -> None:
    """It was cut at the last colon: a mitigation of one machine had another name than that of the other machine."""
    here = "/sys/v/spectre_v2:Mitigation: Retpolines; STIBP: disabled\n/sys/v/mds:Not affected"
    assert flat("m", here) == {
        "m /sys/v/spectre_v2": "Mitigation: Retpolines; STIBP: disabled",
        "m /sys/v/mds": "Not affected",
    }


def test_status_and_captions_say_it(run: Run[Any]) -> None:
    changed(
        run,
        GUEST,
        command_line="quiet mitigations=off",
        mitigations="/sys/x/spectre_v2:Vulnerable",
        settings=f"{HARDEN}:0",
    )
    said = summary(run.directory)
    assert said
    assert f"0 CPU mitigations active by mitigations=off ({GUEST})" in said
    assert f"bpf_jit_harden 0 ({GUEST})" in said
    shown = CliRunner().invoke(cli, ["status", str(run.directory.path)])
    assert "mitigations=off" in shown.output
    run.draw_figures()
    assert said in (run.directory.figures / "lengths.md").read_text()


def test_the_qemu_that_is_told_is_the_one_that_ran_the_guests(run: Run[Any]) -> None:
    ours, theirs = "QEMU emulator version 7.2", "QEMU emulator version 8.1"
    changed(run, CONTROLLER, qemu=f"{ours}\nCopyright")
    assert "qemu" not in str(summary(run.directory))  # no guest of QEMU was measured
    renamed(run, GUEST, "vm:6.1@arm64")
    changed(run, "vm:6.1@arm64", guest_qemu=theirs)
    said = str(summary(run.directory))
    assert f"qemu: {theirs} (vm:6.1@arm64)" in said
    assert ours not in said
    renamed(run, "vm:6.1@arm64", "vm:6.1:count")
    forgotten(run, "vm:6.1:count", "guest_qemu")
    assert f"qemu: {ours}" in str(summary(run.directory))


@pytest.mark.parametrize(("stolen", "share"), [(0, "0.0%"), (100, "50.0%")])
def test_stolen_time_is_that_of_the_session(stolen: int, share: str, run: Run[Any]) -> None:
    ticks = {"before": "100 0 100 700 0 0 0 5 0 0", "after": f"150 0 150 700 0 0 0 {5 + stolen} 0 0"}
    for when, counted in ticks.items():
        said = {"cpu_ticks": {"value": f"cpu  {counted}"}}
        rewritten(run, CONTROLLER, lambda event, said=said: event["state"].update(said), (when,))
    assert f"{share} of the time stolen" in str(summary(run.directory))


def test_a_run_of_before_has_nothing_to_say(tmp_path: Path) -> None:
    old = RunDirectory.create(tmp_path, "old", run_id="1", plan_yaml="study: naps\n")
    assert summary(old) is None
    assert "at a load that was not recorded, xdplab absent: not recorded" in origin(old)
    assert around(old) == {}


def test_every_study_has_places_and_the_verifier_its_tools(tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_text("#!/bin/sh\necho prevail 0.9.1\n")
    program.chmod(0o755)
    said = version_of(Prevail("check", str(program), "prevail"))
    assert said.startswith("prevail 0.9.1, prevail, sha256 ")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert version_of(Prevail("check", str(program), "check")).startswith("tells no version, check, sha256 ")


@pytest.mark.parametrize(
    "said", ['{"lscpu": [{"field": "Model na', '{"lscpu": [{}]}', '{"lscpu": 1}', "{}", '{"lscpu": null}']
)
def test_half_of_what_lscpu_says_is_kept_as_it_stands(said: str) -> None:
    """Comparing and reporting finished runs raised a JSONDecodeError."""
    assert flat("cpus", said) == {"cpus": said}


def test_a_machine_of_two_kinds_of_cores_has_both_models() -> None:
    fields = [("Architecture:", "aarch64"), ("Model name:", "Cortex-A55"), ("CPU max MHz:", "1800")]
    fields += [("Model name:", "Cortex-A76"), ("CPU max MHz:", "2400"), ("Model name:", "Cortex-A76")]
    rows = [{"field": field, "data": data} for field, data in fields]
    nested = [rows[0], {"field": "Vendor ID:", "data": "ARM", "children": rows[1:]}, {"field": "Caches:", "data": None}]
    for shape in (rows, nested):
        told = flat("cpus", json.dumps({"lscpu": shape}))
        assert told["cpus Model name"] == "Cortex-A55, Cortex-A76"
        assert told["cpus Architecture"] == "aarch64"


def test_a_tool_that_hangs_costs_its_own_answer_only() -> None:
    """All later answers were absent too: "the host did not answer"."""
    asked = {
        "hangs": ("sh", "-c", "trap '' TERM; sleep 9"),
        "here": ("echo", "x"),
        "fails": ("sh", "-c", "echo no >&2; exit 3"),
    }
    assert answers(LocalHost(), asked, deadline_s=12.0) == {
        "hangs": {"absent": "no answer within 2 s"},
        "here": {"value": "x"},
        "fails": {"absent": "no"},
    }


def test_where_a_row_of_a_page_is_from_has_day_load_and_version(run: Run[Any]) -> None:
    here = next(event for event in run.directory.journal.events("hosts") if event["place"] == CONTROLLER)["state"]
    told = origin(run.directory)
    assert told.startswith(f"run {run.directory.run_id} of 20")
    assert f"at a load of {here['load']['value'].split()[0]}, xdplab " in told
