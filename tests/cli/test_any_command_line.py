"""Any command line ends in success, or in an error code and one line that says what is wrong; never in a traceback."""

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.entry import ending, ending_with_output
from tests.cli.messages import make_places

from xdplab import cli
from xdplab.bisect.cli import EndsTheSearchError
from xdplab.cli.common import MISUSED, NOTHING_VALID
from xdplab.cli.plan import find_plan
from xdplab.errors import LabError, XdplabError
from xdplab.labs import cache
from xdplab.labs.netns import lab as netns
from xdplab.labs.uml import lab as uml
from xdplab.labs.vm import kernels
from xdplab.labs.vm import kind as vm
from xdplab.resources import shipped

KEYSCAN = """# 192.0.2.7:22 SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3
192.0.2.7 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKYbeuCSMBcqZLd9/cCxGxCxc5sPSsNkyjnLPNbQ1J0Y
192.0.2.7 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI"""
ODD_WORDS = ["", "-", "--", "0", "-1", "1e9", "10**6", "nan", "a=b", "=", "mode=", "mode=native", "x" * 300, "é", "\n"]
ODD_WORDS += [
    "netns",
    "netns:",
    "netns:none",
    "vm:",
    "vm:9.9",
    "vm:6.1:warp",
    "uml:x",
    "host",
    "[/red]",
    "%s",
    "~",
    "*",
]


def _inventory(**changed: object) -> str:
    machine = {"host": "127.0.0.1", "port": 1, "key": "key", "host_key": KEYSCAN}
    machine |= {"interface": {"name": "eth7", "mac": "02:00:00:00:00:01"}}
    return yaml.safe_dump({"dut": machine | changed, "tg": machine})


CONTENTS: dict[str, bytes | str] = {
    "empty.yaml": "",
    "binary.yaml": bytes(range(256)),
    "list.yaml": "[1, 2]",
    "word.yaml": "plan",
    "open.yaml": "a: [",
    "tab.yaml": "a:\n\t- b",
    "plan.yaml": "name: p\nblocks: [{points: {accesses: [0, 10]}}]\n",
    "great.yaml": "name: p\nblocks: [{points: {accesses: 1000000}}]\n",
    "typo.yaml": "name: p\nblocks: [{points: {acceses: 1}}]\n",
    "alias.yaml": "a: &a [*a]\n",
    "numbers.yaml": "name: 7\nblocks: {1: 2}\n",
    "studies.yaml": "kind: verifier\nname: p\n",
    "study.yaml": "study: jit\n",
    "lab.yaml": _inventory(),
    "lab2.yaml": _inventory(host_key="ssh-ed25519 AAAA"),
    "lab3.yaml": _inventory(known_hosts="keyscan.txt", host_key=None),
    "lab4.yaml": KEYSCAN,
    "keyscan.txt": KEYSCAN,
    "key": "no key",
    "x.bpf.c": "int x(",
    "x.bpf.o": b"\x7fELF" + bytes(60),
    "frames.pcap": b"\xd4\xc3\xb2\xa1" + bytes(8),
    "archive.zip": b"PK\x03\x04nothing",
    "marks.csv": "a,b\n1\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with typical files and runs; one run has not begun, and some are damaged."""
    folder = tmp_path_factory.mktemp("any")
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    make_places(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def nothing_is_touched(folder: Path) -> Iterator[None]:
    """Make no lab, measure and fetch nothing: the test is of what happens before that."""
    patch = pytest.MonkeyPatch()

    def refuse(*_: object, **__: object) -> None:
        raise LabError("no lab is made here")

    for module in (netns, vm, uml):
        for name in ("up", "down", "open_lab"):
            patch.setattr(module, name, refuse)
    patch.setattr(kernels, "fetch", refuse)
    patch.setattr(kernels, "_not_offered", lambda _: "the archive is not asked here")
    for module_name in ("conduct", "run", "search"):
        patch.setattr(importlib.import_module(f"xdplab.cli.{module_name}"), "conduct", lambda *_, **__: 0)
    patch.chdir(folder)
    patch.setenv("XDPLAB_CACHE", str(folder / "cache"))
    patch.setattr(cache, "cache_dir", lambda: folder / "kept")  # `kernels clean` is among the command lines
    yield
    patch.undo()


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command of the line with the words that lead to it."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*words, name))


ALL = dict(commands(cli.cli))
PLACES = ["run", "cut", "torn", "foreign", "loop", "directory", "missing/x", "/dev/null", "plan.yaml/x"]
VALUES = st.sampled_from([*ODD_WORDS, *CONTENTS, *PLACES])


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    words, command = draw(st.sampled_from(list(ALL.items())))
    line = [*draw(st.sampled_from([(), ("--lab", draw(VALUES))])), *words]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            count = draw(st.integers(0, 2)) if parameter.nargs != 1 else draw(st.sampled_from([1, 1, 1, 0]))
            line += [draw(VALUES) for _ in range(count)]
        elif draw(st.integers(0, 4)) == 0:
            line += [draw(st.sampled_from(parameter.opts)), *_value(draw, parameter)]
    return line


def _value(draw: st.DrawFn, parameter: click.Parameter) -> list[str]:
    if isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count):
        return []
    if isinstance(parameter.type, click.Choice) and draw(st.booleans()):
        return [str(draw(st.sampled_from(list(parameter.type.choices))))]
    return [draw(VALUES) for _ in range(max(1, parameter.nargs))]


def check(line: list[str]) -> None:
    code, said = ending(line)
    lines = [text for text in said.splitlines() if text.strip()]
    if code and lines:  # some verbs answer by their exit code alone
        assert [text for text in lines if text.startswith("xdplab")] == lines, (line, said)


@settings(
    max_examples=int(os.environ.get("XDPLAB_FUZZ", "150")),
    deadline=None,
    derandomize="XDPLAB_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=command_lines())
def test_any_command_line_ends_in_one_line_or_in_success(line: list[str]) -> None:
    check(line)


WITH_A_LAB = ["run", "resume", "search", "race", "plan", "selftest", "calibrate", "restore", "doctor", "probe"]
WITH_A_LAB += ["lab up", "lab down", "lab status", "lab run"]


@pytest.mark.parametrize("verb", WITH_A_LAB)
def test_the_lab_is_taken_after_a_verb_that_uses_one(verb: str) -> None:
    assert "--lab" in [option for parameter in ALL[tuple(verb.split())].params for option in parameter.opts]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("reproduce plan.yaml --trust", "xdplab --trust reproduce"),
        ("lab down --trust", "xdplab --trust lab down"),
        ("claims results --lab netns", "xdplab --lab NAME claims"),
    ],
)
def test_an_option_that_stands_before_the_verb_is_told_where_it_stands(line: str, remedy: str) -> None:
    code, _, error = ending_with_output(line.split())
    assert code in (2, MISUSED)
    assert remedy in error


def test_the_lab_after_the_verb_is_the_one_that_is_used() -> None:
    after = invoked("plan", "smoke", "--lab", "nosuch")
    assert (
        after
        == invoked("--lab", "nosuch", "plan", "smoke")
        == invoked("--lab", "uml", "plan", "smoke", "--lab", "nosuch")
    )
    assert "lab 'nosuch': no such kind of lab" in after


def invoked(*line: str) -> str:
    return str(CliRunner().invoke(cli.cli, line).exception)


def test_a_file_goes_before_the_shipped_plan_of_its_name_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quick").touch()
    Path("smoke").mkdir()
    assert [find_plan(name) for name in ("quick", "smoke")] == [Path("quick"), shipped("plans") / "smoke.yaml"]


@pytest.mark.parametrize("verb", ["compare", "race", "cost"])
@pytest.mark.parametrize("words", ["", "--nosuch x y", "nosuch.c nosuch.c --metric foo"])
def test_what_answers_by_its_exit_code_has_another_one_for_a_wrong_line(verb: str, words: str) -> None:
    assert ending([verb, *words.split()])[0] not in (0, 1, 2)


def test_the_help_names_every_exit_code() -> None:
    known: set[type[XdplabError]] = {XdplabError, EndsTheSearchError}
    told = re.findall(r"(?<=[:;] )\d+|^\d+", cli.EXIT_CODES.replace("\n", " "))
    while more := {below for error in known for below in error.__subclasses__()} - known:
        known |= more
    ends = {"0", str(NOTHING_VALID), str(MISUSED), str(cli.INTERRUPTED)}
    assert {str(error.exit_code) for error in known} | ends == set(told[: len(set(told))])
