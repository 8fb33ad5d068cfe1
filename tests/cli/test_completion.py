"""The Tab key: what can follow on a command line, in the shells themselves too, and within 80 ms."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
from tests.oracle.derive import SAMPLE

from xdplab import completion
from xdplab.cli.words import table
from xdplab.labs.vm.kernels import KNOWN

FOLDER = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def words() -> completion.Table:
    return table()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run that has a tag, a plan, a program and a file of another sort."""
    shutil.copytree(SAMPLE, tmp_path / "results" / "sample", ignore=shutil.ignore_patterns("raw", "programs"))
    (tmp_path / "results" / "sample" / "tags.txt").write_text("baseline\n")
    for name in ("own.yaml", "old.bpf.c", "old.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sho", {"show"}),
        ("lab ki", set()),
        ("study jit --pl", {"--place"}),
        ("show ", {"latest", "results/sample"}),
        ("show results/s", {"results/sample"}),
        ("compare latest res", {"results/sample"}),
        ("run --extend la", {"latest"}),
        ("run qu", {"quick"}),
        ("run ow", {"own.yaml"}),
        ("race old", {"old.bpf.c"}),
        ("race old.bpf.c arr", {"array"}),
        ("--lab uml sho", {"show"}),
        ("run quick --labs netns,um", {"netns,uml"}),
        ("figures results/sample --only thr", {"throughput"}),
        ("figures results/sample --style=sl", {"--style=slides"}),
        ("figures results/sample --where load=", {"load=max", "load=20kpps"}),
        ("figures latest --where mode=native,accesses=4", {"mode=native,accesses=400"}),
        ("figures results/sample --where program=", set()),
        ("figures results/sample --width a", {"acm", "a4"}),
        ("figures results/sample --height ", set()),
        ("figures results/sample --format pdf,p", {"pdf,pdf", "pdf,png"}),
        ("cost --kernel 6.1", {"6.1", "6.12"}),
        ("cost --kernel ol", set()),
        ("cost old", {"old.bpf.c"}),
        ("study verifier --kernel 5", {"5.10"}),
        ("run quick --only mode=na", {"mode=native"}),
        ("run quick --only queues=1,mode=gen", {"queues=1,mode=generic"}),
        ("run quick --only queues=1,frame_by", {"queues=1,frame_bytes="}),
        ("runs --tag latest ba", {"baseline"}),
        ("runs --tagged ", {"baseline"}),
        ("export latest --out ", set()),
        ("runs --note latest ", set()),
    ],
)
def test_what_can_follow(words: completion.Table, here: Path, line: str, offered: set[str]) -> None:
    *before, begun = line.split(" ")
    assert set(completion.candidates([*before, begun], words)) == offered


def test_a_study_has_its_own_figures_and_a_lab_its_names(words: completion.Table, here: Path) -> None:
    (here / "load").mkdir()
    (here / "load" / "plan.yaml").write_text("study: loading\n")
    figures = completion.candidates(["figures", "load", "--only", ""], words)
    assert figures
    assert "throughput" not in figures
    assert completion.candidates(["figures", "load", "--where", "mode="], words)
    assert {"netns", *(f"vm:{kernel}" for kernel in KNOWN)} <= set(completion.candidates(["lab", "up", ""], words))


def test_the_words_are_made_again_when_the_code_changes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(here))
    made = completion.table()
    (here / "completion.json").write_text("{}")
    assert completion.table() == made
    monkeypatch.setattr("xdplab.cli.words.table", lambda: {"command": "another"})
    assert completion.table() == made, "it is kept"
    monkeypatch.setattr("xdplab.completion.newest", lambda folder: [folder, time.time()])
    assert completion.table()["command"] == "another"


def test_a_key_loads_no_command_once_the_words_are_kept(here: Path) -> None:
    """How long it takes is measured by bench/startup.py."""
    asked = {completion.ASKED: "fish_complete", completion.LINE: "xdplab show ", "XDPLAB_CACHE": str(here)}
    argv = [sys.executable, "-X", "importtime", "-m", "xdplab"]
    for _ in range(2):
        done = subprocess.run(argv, env=os.environ | asked, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "results/sample" in done.stdout
    assert "xdplab.completion" in loaded
    assert not loaded & {"click", "yaml", "pandas", "xdplab.cli"}


def test_what_is_told_of_the_options_is_what_they_are(words: completion.Table) -> None:
    """A command that was once asked without the settings of its group had another option for help ever after."""
    assert {"-h", "--help"} <= words["command"]["options"].keys() & words["command"]["verbs"]["study"]["options"].keys()


COMPLETED = {
    "show results/s": "show results/sample",
    "run quick --only mode=na": "run quick --only mode=native",
    "--lab vm:5": "--lab vm:5.10",
    "export latest --out old.t": "export latest --out old.txt",
}


@pytest.mark.parametrize(
    ("shell", "argv"), [("bash", ["--norc", "--noprofile"]), ("zsh", ["-f"]), ("fish", ["--no-config"])]
)
def test_each_shell_puts_in_runs_values_labs_and_files(here: Path, shell: str, argv: list[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = f'#!/bin/sh\n[ -z "${completion.ASKED}" ] || exec {sys.executable} -m xdplab\necho "given:$*:"\n'
    (here / "xdplab").write_text(program)
    (here / "xdplab").chmod(0o755)
    (here / "script").write_text(completion.SCRIPTS[shell])
    environment = os.environ | {"PATH": f"{here}:{os.environ['PATH']}", "XDPLAB_CACHE": str(here), "TERM": "dumb"}
    subprocess.run([here / "xdplab"], env=environment | {completion.ASKED: "bash_complete"}, check=True)
    with pexpect.spawn(shell, argv, env=environment, cwd=here, encoding="utf-8", timeout=20) as terminal:
        terminal.setwinsize(24, 200)
        load = "autoload -U compinit; compinit -D; " if shell == "zsh" else ""
        terminal.sendline(f"{load}source ./script; echo rea''dy")
        terminal.expect("ready")
        for typed, whole in COMPLETED.items():
            terminal.send(f"xdplab {typed}\t")
            terminal.expect_exact(whole.rpartition(" ")[2])
            terminal.send("\r")
            terminal.expect_exact(f"given:{whole}:")
