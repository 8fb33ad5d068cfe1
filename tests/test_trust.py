"""xdplab runs commands only of the user's own files: a plan's commands, an inventory's proxy, another user's run."""

import contextlib
import ctypes
import json
import os
import pty
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import xdplab as xl
from tests import forked
from xdplab.labs.servers.inventory import load_inventory
from xdplab.plan import load_plan, parse_plan
from xdplab.run.progress import silent
from xdplab.studies.execution.points import ExecutionRequest, smallest
from xdplab.studies.execution.user_pair import load
from xdplab.studies.kind import Where
from xdplab.studies.kinds import kind_named
from xdplab.studies.search.kind import SearchRequest
from xdplab.studies.search.profile import profile
from xdplab.studies.traffic.run_files import create_run
from xdplab.trust import StrangersFileError, ask_by, read_source, require_run

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
RACK = "dut:" + END.format(proxy="proxy: [nc]") + "tg:" + END.format(proxy="port: 22")


def test_a_file_of_ones_own_is_used(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("x")
    read_source(file).require_trust("code")


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("x")
    file.chmod(0o666)
    with pytest.raises(StrangersFileError, match=r"can be written by every user, and it names code") as caught:
        read_source(file).require_trust("code")
    assert "cp -r" in caught.value.remedy


@pytest.mark.root
def test_only_a_plan_that_names_commands_is_asked_about(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(HARMLESS)
    strangers(plan)
    assert load_plan(plan).name == "p"
    plan.write_text(PLAN)
    assert load_plan(plan, to_measure=False).metrics
    with pytest.raises(StrangersFileError, match=r"user 54321, and it names commands that run as root .*seen"):
        load_plan(plan)


def strangers(*paths: Path) -> None:
    for path in paths:
        os.chown(path, 54321, 54321, follow_symlinks=False)


def in_a_strangers_folder(place: Path) -> Path:
    strangers(place.parent)
    return place


def by_a_strangers_link(place: Path) -> Path:
    """A link to what is a stranger's, and might be to one's own a moment later."""
    link = place.parent.with_name("links") / place.name
    link.parent.mkdir()
    link.symlink_to(place)
    strangers(link, link.parent, *([place] if place.is_file() else [place, *place.rglob("*")]))
    return link


def of_a_stranger(place: Path) -> Path:
    strangers(place, *place.rglob("*"))
    return place


def of_a_bundle(place: Path) -> Path:
    (place if place.is_dir() else place.parent).joinpath("bundle.json").write_text("{}")
    return place


def in_a_groups_folder(place: Path) -> Path:
    os.chown(place.parent, 0, 54321)
    place.parent.chmod(0o775)
    return place


def writable_by_a_group(place: Path) -> Path:
    os.chown(place, 0, 54321)
    place.chmod(0o775)
    return place


WHOSE = (of_a_stranger, by_a_strangers_link, of_a_bundle, in_a_groups_folder)
STUDY = "study: execution\n"
VERBS = (
    ("run {}", PLAN), ("search {}", PLAN), ("calibrate {}", PLAN), ("race {} array", PLAN), ("race array {}", PLAN),
    ("run {}", STUDY), ("resume {}", None), ("run quick --extend {}", None), ("run quick --labs a,b --extend {}", None),
    ("search --resume {}", "search"), ("study execution --resume {}", "study"), ("resume {}", "study"),
)  # fmt: skip


def planned(verb: str, text: str | None, folder: Path) -> Path:
    """Return a plan, or a run that owes its trials, with nobody else's hands on it."""
    if text in (PLAN, STUDY):
        (folder / "plan.yaml").write_text(text)
        return folder / "plan.yaml"
    if text == "study":
        return kind_named("execution").start(smallest(ExecutionRequest()), folder).directory.path
    run = create_run(parse_plan(yaml.safe_load(HARMLESS)), folder, lab="netns:none", arrangement="shared").path
    if text == "search":
        (run / "search.json").write_text(json.dumps(SearchRequest(profile("quick")).to_json()))
    return run


@pytest.mark.root
@pytest.mark.parametrize(
    ("verb", "text", "whose"),
    [*((*verb, of_a_stranger) for verb in VERBS), *((*VERBS[0], whose) for whose in WHOSE[1:])],
)
def test_no_verb_runs_what_others_may_have_written(
    tmp_path: Path, verb: str, text: str | None, whose: Callable[[Path], Path]
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    named = whose(planned(verb, text, folder))
    done = forked.xdplab(*verb.format(named).split(), cwd=tmp_path)
    assert done.returncode == 8, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.root
@pytest.mark.parametrize("whose", [*WHOSE, in_a_strangers_folder, writable_by_a_group])
def test_no_verb_of_a_notebook_runs_what_others_may_have_written(tmp_path: Path, whose: Callable[[Path], Path]) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    plan = whose(planned("", PLAN, folder))
    with pytest.raises(StrangersFileError):
        xl.race(str(plan), "array")
    (tmp_path / "other").mkdir()
    shutil.rmtree(tmp_path / "links", ignore_errors=True)
    run = whose(planned("", None, tmp_path / "other"))
    with pytest.raises(StrangersFileError):
        xl.open(run).on_disk.measure(silent(), Where())


@pytest.mark.root
@pytest.mark.parametrize("file", ["plan.yaml", "rack.yaml"])
def test_a_link_that_is_changed_after_the_file_was_read_lets_nothing_run(tmp_path: Path, file: str) -> None:
    evil, named, other = tmp_path / "evil", tmp_path / file, tmp_path / "next"
    evil.write_text({"plan.yaml": PLAN, "rack.yaml": RACK}[file])
    strangers(evil)
    named.symlink_to(evil)
    other.symlink_to("/etc/hostname")
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init()
    libc.inotify_add_watch(watch, bytes(evil), 0x10)  # IN_CLOSE_NOWRITE of linux/inotify.h: it was read

    def change() -> None:
        os.read(watch, 64)
        other.rename(named)

    thread = threading.Thread(target=change)
    thread.start()
    with pytest.raises(StrangersFileError):
        (load_plan if file == "plan.yaml" else load_inventory)(named)
    thread.join()
    os.close(watch)
    assert named.read_text() == Path("/etc/hostname").read_text()


def test_what_a_file_names_lies_in_its_own_folder(tmp_path: Path) -> None:
    """Whoever makes a link chooses the folder it lies in, and could put other programs there."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "plan.yaml").write_text("blocks:")
    (tmp_path / "plan.yaml").symlink_to("own/plan.yaml")
    assert read_source(tmp_path / "plan.yaml").folder == tmp_path / "own"


@pytest.mark.root
def test_a_strangers_proxy_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(RACK)
    os.chown(file, 54321, 54321)
    with pytest.raises(StrangersFileError, match="`proxy`, a command that runs here"):
        load_inventory(file)
    file.write_text(file.read_text().replace("proxy: [nc]", "port: 23"))
    assert load_inventory(file).dut.port == 23
    done = forked.xdplab("lab", "sudoers", str(file))
    assert (done.returncode, done.stdout) == (8, "")


@pytest.fixture
def foreign_run(tmp_path: Path) -> Path:
    """A run that owes its trials and belongs to another user."""
    run = create_run(parse_plan(yaml.safe_load(HARMLESS)), tmp_path, lab="netns:none", arrangement="shared")
    for path in (run.path, *run.path.rglob("*")):
        os.chown(path, 54321, 54321)
    return run.path


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
        file.write_text(file.name)
        file.chmod(0o666)
    for _ in range(2):
        read_source(mine).require_trust("code")
    read_source(mine).require_trust("other code")
    assert len(asked) == 2
    read_source(theirs).require_trust("code")
    mine.write_text("changed since")
    read_source(mine).require_trust("code")
    assert [str(theirs) in question for question in asked] == [False, False, True, False]


def test_of_a_run_directory_one_question_is_asked(tmp_path: Path, asked: list[str]) -> None:
    for name in ("one", "two"):
        run = tmp_path / name
        run.mkdir()
        for part in ("journal.jsonl", "plan.yaml"):
            (run / part).write_text("x")
            (run / part).chmod(0o666)
        for _ in range(2):
            require_run(run)
    assert [question.split(" can be")[0] for question in asked] == [
        str(tmp_path / name / "journal.jsonl") for name in ("one", "two")
    ]
    ask_by(None)  # nobody is there who said yes
    with pytest.raises(StrangersFileError):
        require_run(run)


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
def test_trust_asks_nothing(foreign_run: Path) -> None:
    done = forked.xdplab("--trust", "--lab", "/nowhere.yaml", "resume", str(foreign_run))
    assert done.returncode == 3
    assert "/nowhere.yaml: No such file" in done.stderr


@pytest.mark.root
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
def test_the_user_who_calls_sudo_owns_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    os.chown(file, 54321, 54321)
    monkeypatch.setenv("SUDO_UID", "54321")
    assert load_plan(file).metrics
