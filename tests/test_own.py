"""xdplab runs commands only of the user's own files: a plan's commands, an inventory's proxy, another user's run."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rich.console import Console

import xdplab as xl
from tests import forked
from xdplab.cli.run import own_plan
from xdplab.labs.inventory import load_inventory
from xdplab.own import StrangersFileError, ask_by, require_own, require_own_run
from xdplab.plan import parse_plan
from xdplab.run.progress import PlainObserver
from xdplab.studies.every import Where
from xdplab.studies.execution.own import load
from xdplab.studies.traffic.planned import create_run

PLAN = """
name: p
metrics: [{name: seen, argv: [cat, /proc/uptime]}]
blocks: [{points: {mode: native, workload: array, accesses: 0}}]
"""
HARMLESS = "name: p\nblocks: [{points: {mode: native, workload: array, accesses: 0}}]\n"
END = """
  host: h
  key: k
  host_key: ssh-ed25519 AAAA
  interface: {{name: eth0, mac: "02:00:00:00:00:01"}}
  {proxy}
"""


def test_a_file_of_ones_own_is_used(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("x")
    require_own(file, "code")


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("x")
    file.chmod(0o666)
    with pytest.raises(StrangersFileError, match=r"can be written by every user, and it names code") as caught:
        require_own(file, "code")
    assert caught.value.remedy is not None
    assert "cp -r" in caught.value.remedy


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives files to another user")


@pytest.mark.root
@needs_root
def test_a_strangers_commands_are_not_run(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    for text, refused in ((PLAN, True), (HARMLESS, False)):
        plan.write_text(text)
        os.chown(plan, 54321, 54321)
        if refused:
            with pytest.raises(StrangersFileError, match=r"user 54321, and it names commands that run as root .*seen"):
                own_plan(plan)
        else:
            assert own_plan(plan).name == "p"
    os.chown(plan, 0, 0)
    plan.write_text(PLAN)
    assert own_plan(plan).metrics


@pytest.mark.root
@needs_root
def test_a_strangers_proxy_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text("dut:" + END.format(proxy="proxy: [nc]") + "tg:" + END.format(proxy="port: 22"))
    os.chown(file, 54321, 54321)
    with pytest.raises(StrangersFileError, match="`proxy`, a command that runs here"):
        load_inventory(file)
    file.write_text(file.read_text().replace("proxy: [nc]", "port: 23"))
    assert load_inventory(file).dut.port == 23


@pytest.fixture
def foreign_run(tmp_path: Path) -> Path:
    """A run that owes its trials and belongs to another user."""
    run = create_run(parse_plan(yaml.safe_load(HARMLESS)), tmp_path, lab="netns:none", arrangement="shared")
    for path in (run.path, *run.path.rglob("*")):
        os.chown(path, 54321, 54321)
    return run.path


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("command", [["resume"], ["search", "--resume"]])
def test_a_strangers_run_is_not_gone_on_with(foreign_run: Path, command: list[str]) -> None:
    if command[0] == "search":
        (foreign_run / "search.json").write_text("{}")
    done = forked.xdplab(*command, str(foreign_run))
    assert done.returncode == 8, done.stderr
    assert "belongs to user 54321, and it names commands, programs and labs that are used" in done.stderr


@pytest.mark.root
@needs_root
def test_the_notebook_does_not_go_on_with_a_strangers_run(foreign_run: Path) -> None:
    kind = xl.open(foreign_run).kind
    with pytest.raises(StrangersFileError, match="belongs to user 54321"):
        kind.measure(PlainObserver(Console(quiet=True)), Where())


def on_a_terminal(argv: list[str], answer: str) -> tuple[int, str]:
    """Run a command on its own terminal, type ``answer``, and return its exit code and its output."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(argv[0], argv)
    os.write(terminal, answer.encode())
    shown = b""
    with contextlib.suppress(OSError):  # how Linux reports that the other end is closed
        while chunk := os.read(terminal, 4096):
            shown += chunk
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(("answer", "runs"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_the_user_is_asked_once(foreign_run: Path, answer: str, runs: bool) -> None:
    argv = [sys.executable, "-m", "xdplab", "--lab", "/nowhere.yaml", "resume", str(foreign_run)]
    code, shown = on_a_terminal(argv, answer)
    assert shown.count("Have you read it, and may it run? [y/N]") == 1
    assert code == (3 if runs else 8), shown
    assert ("/nowhere.yaml: No such file" in shown) == runs


def test_a_yes_is_for_one_file_and_one_run(tmp_path: Path, asked: list[str]) -> None:
    """A yes to one stranger's plan must not let another's run, though both name the same."""
    mine, theirs = tmp_path / "mine.yaml", tmp_path / "theirs.yaml"
    for file in (mine, theirs):
        file.write_text("x")
        file.chmod(0o666)
    for _ in range(2):
        require_own(mine, "code")
    require_own(mine, "other code")
    assert len(asked) == 2
    require_own(theirs, "code")
    assert [str(theirs) in question for question in asked] == [False, False, True]


def test_of_a_run_directory_one_question_is_asked(tmp_path: Path, asked: list[str]) -> None:
    for name in ("one", "two"):
        run = tmp_path / name
        run.mkdir()
        for part in ("journal.jsonl", "plan.yaml"):
            (run / part).write_text("x")
            (run / part).chmod(0o666)
        for _ in range(2):
            require_own_run(run)
    assert [question.split(" can be")[0] for question in asked] == [
        str(tmp_path / name / "journal.jsonl") for name in ("one", "two")
    ]


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """Return the questions that a user who answers yes to each is asked."""
    questions: list[str] = []

    def yes(question: str) -> bool:
        questions.append(question)
        return True

    ask_by(yes)
    yield questions
    ask_by(None)


@pytest.mark.root
@needs_root
def test_trust_asks_nothing(foreign_run: Path) -> None:
    done = forked.xdplab("--trust", "--lab", "/nowhere.yaml", "resume", str(foreign_run))
    assert done.returncode == 3
    assert "/nowhere.yaml: No such file" in done.stderr


@pytest.mark.root
@needs_root
def test_a_strangers_pair_and_study_plan_are_not_built(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("study: execution\n")
    os.chown(plan, 54321, 54321)
    done = forked.xdplab("run", str(plan))
    assert (done.returncode, "it names programs that are compiled and run" in done.stderr) == (8, True), done.stderr
    pair = tmp_path / "pair.yaml"
    part = {"directory": ".", "object": "o", "map": "m"}
    module = {"directory": ".", "name": "n", "file": "f"}
    pair.write_text(yaml.safe_dump({"name": "p", "bpf": part, "module": module, "event": "e"}))
    (tmp_path / "Makefile").write_text("o:\n\ttouch o\n")
    os.chown(tmp_path / "Makefile", 54321, 54321)
    with pytest.raises(StrangersFileError, match=r"Makefile belongs to user 54321, and it names programs"):
        load(pair)


@pytest.mark.root
@needs_root
def test_the_user_who_calls_sudo_owns_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    os.chown(file, 54321, 54321)
    monkeypatch.setenv("SUDO_UID", "54321")
    assert own_plan(file).metrics
