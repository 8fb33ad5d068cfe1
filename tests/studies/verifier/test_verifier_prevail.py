"""PREVAIL's adapter, by commands that answer as it did, and the programs that it shares with Linux."""

import stat
from pathlib import Path

import pytest

from xdplab.errors import PlanError
from xdplab.studies.verifier.prevail import ResourceLimits, Runner, find_prevails

RECORDED = Path(__file__).parents[2] / "formats" / "recorded" / "prevail"


HELP = {
    "section": "A new eBPF verifier\nUsage: check [OPTIONS] path [section]\n  -d,--dom,--domain DOMAIN",
    "check": "PREVAIL is a new eBPF verifier\nUsage: check [OPTIONS] path [section] [function]\n  --domain DOMAIN",
    "prevail": "PREVAIL is a new eBPF verifier\nUsage: prevail [OPTIONS] path [section] [function]",
}


def stand_in(folder: Path, name: str, body: str) -> str:
    """A command with recorded answers: the test is of the adapter, not of PREVAIL."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncase \"$*\" in *--help) echo '{HELP[name]}'; exit 0;; esac\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def replay(name: str) -> str:
    return (
        f'case "$*" in *-l) cat {RECORDED}/{name}_list.stdout; exit 0;; esac\n'
        f'case "$*" in *getuid*) n={name}_pass;; *) n={name}_fail;; esac\n'
        f"cat {RECORDED}/$n.stdout; cat {RECORDED}/$n.stderr >&2; exit $(cat {RECORDED}/$n.exit)"
    )


@pytest.mark.parametrize("name", ["check", "prevail"])
def test_the_adapter_with_recorded_output_of_both_generations(bpfverify, tmp_path, name):
    (prevail,) = find_prevails([f"mine={stand_in(tmp_path, name, replay(name))}"])
    assert (prevail.name, prevail.generation) == ("mine", name)
    runner = Runner(bpfverify, ResourceLimits(wall_s=20))
    programs = runner.programs(prevail, tmp_path / "a.o")
    assert len(programs) == 8
    passed, failed = (runner.verify(prevail, tmp_path / "a.o", *programs[i]) for i in (0, 1))
    assert (passed.verdict, failed.verdict) == ("accepted", "rejected")
    assert 0 < passed.wall_s < 20
    assert 100_000 < passed.peak_bytes < 20_000_000  # a shell's, not the controller's
    assert (passed.analysis_s is None) == (name == "prevail")


def test_the_generation_of_its_paper_knows_sections_alone(bpfverify, tmp_path):
    """The version of 2019: `-l` prints the sections on one line; a run has no option for a function."""
    body = r'case "$*" in *-l) echo "xdp classifier ";; *xdp\ --domain=zoneCrab) echo 1,0.25,9000;; *) exit 3;; esac'
    (prevail,) = find_prevails([f"pldi={stand_in(tmp_path, 'section', body)}"])
    assert prevail.generation == "section"
    runner = Runner(bpfverify, ResourceLimits(wall_s=20))
    assert runner.programs(prevail, tmp_path / "a.o") == (("xdp", ""), ("classifier", ""))
    run = runner.verify(prevail, tmp_path / "a.o", "xdp", "")
    assert (run.verdict, run.analysis_s, run.resident_bytes) == ("accepted", 0.25, 9000 * 1024)


def test_two_prevails_of_one_name_are_refused(tmp_path):
    paths = [stand_in(tmp_path, name, "exit 0") for name in ("check", "prevail")]
    with pytest.raises(PlanError, match="mine is named twice"):
        find_prevails([f"mine={path}" for path in paths])


def test_prevail_is_held_to_its_limits(bpfverify, tmp_path):
    (endless,) = find_prevails([stand_in(tmp_path, "check", "while :; do :; done")])
    run = Runner(bpfverify, ResourceLimits(wall_s=1)).verify(endless, tmp_path / "a.o", "xdp", "f")
    assert (run.verdict, run.cause) == ("complexity", "still at it after 1 s")
    assert 0.9 < run.wall_s < 3
    (crashing,) = find_prevails([stand_in(tmp_path, "prevail", "kill -ABRT $$")])
    run = Runner(bpfverify, ResourceLimits(wall_s=5)).verify(crashing, tmp_path / "a.o", "xdp", "f")
    assert run.verdict == "loader"


def test_another_tool_called_check_is_no_prevail(tmp_path, monkeypatch):
    other = tmp_path / "check"
    other.write_text("#!/bin/sh\necho unit tests for C\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert [p.path for p in find_prevails() if p.path == str(other)] == []
    with pytest.raises(PlanError, match="not a PREVAIL"):
        find_prevails([str(other)])
