"""A user who is not root needs one drop-in for sudo: generated, exact, and enough for a run over SSH."""

import ast
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from accounts import SUDO, USER, account
from rack import rack, written
from tests import forked

from xdplab import labs
from xdplab.generators import GeneratorSettings
from xdplab.generators.moongen import moongen
from xdplab.generators.testpmd import testpmd as adapter_of_testpmd
from xdplab.hosts.process import KILL_AFTER_S
from xdplab.hosts.ssh import TELL_GROUP
from xdplab.labs import Lab
from xdplab.labs.servers.host import COMMANDS, sudoers
from xdplab.labs.servers.inventory import Inventory

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "src" / "xdplab"
# The modules that start commands on an inventory's servers.
FOLDERS = ("hosts", "deploy", "generators", "counters", "programs", "labs", "studies/traffic", "studies/search")
OWN_LABS = {"vm", "uml"}
STARTS = {"run", "start", "tool", "text", "_read", "_answer"}

needs_sudo = pytest.mark.skipif(not SUDO.exists(), reason="needs the real sudo: apt install sudo")


def test_whatever_is_started_on_a_host_is_in_the_table() -> None:
    names = {command.name for command in COMMANDS} | {"kill"}
    files = [path for folder in FOLDERS for path in (CODE / folder).rglob("*.py") if not OWN_LABS & {*path.parts}]
    missing = {f"{path.name}: {word}" for path in files for word in _started(path) if word not in names}
    assert missing == set()


def _started(path: Path) -> Iterator[str]:
    """Yield the first word of each command that a call of this file starts on a host."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if name in STARTS and not owner.endswith(("subprocess", "LocalHost()", "probe")):
                for argument in node.args:
                    if isinstance(argument, ast.List | ast.Tuple) and argument.elts:
                        first = argument.elts[0]
                        if isinstance(first, ast.Constant) and isinstance(first.value, str):
                            yield first.value


@pytest.mark.parametrize("generator", [{"kind": "moongen", "path": "/opt/MoonGen"}, {"kind": "testpmd"}])
def test_a_user_with_the_drop_in_can_start_the_generator(generator: dict[str, str]) -> None:
    """MoonGen is started by a script in the work directory, which the rules did not name: sudo refused it."""
    end = {"host": "h", "user": "u", "sudo": True, "key": "k", "host_key": "ssh-ed25519 AAAA"}
    link = {"pci": "0000:3b:00.0", "mac": "00:15:4d:00:00:01"}
    ends = {"dut": end | {"interface": link}, "tg": end | {"host": "g", "interface": link, "generator": generator}}
    inventory = Inventory.model_validate(ends)
    settings, folder = GeneratorSettings("moongen", "0"), f"{inventory.work_dir}/rack/{generator['kind']}"
    if generator["kind"] == "moongen":
        argv = moongen(generator["path"]).argv(settings, folder)
    else:
        argv = adapter_of_testpmd("/usr/bin/dpdk-testpmd", port=0, cores=(0, 1), eal=()).argv(
            settings, f"{folder}/t.py"
        )
    rules = re.findall(r"sh \^(.*)\$$", sudoers(inventory)["g"], re.MULTILINE)
    started = f"-c {TELL_GROUP} xdplab timeout --kill-after={KILL_AFTER_S:g} 3600.0 {' '.join(argv)}"
    assert any(re.fullmatch(rule, started) for rule in rules), started
    assert not any(re.fullmatch(rule, started.replace(argv[0], "id", 1)) for rule in rules)


@contextlib.contextmanager
def reached_as_user(servers: Lab, content: dict[str, Any], *, without: str = "") -> Iterator[None]:
    """Reach both servers as a user whose rights are those of the generated drop-in, and no others.

    ``without``: lines that the drop-in lacks, as one that somebody edited does.
    """
    config = ["-o", f"AllowUsers={USER}", "-o", "SetEnv=PATH=/usr/local/bin:/usr/bin:/bin"]
    for role in ("dut", "tg"):
        argv = [sys.executable, "-m", "xdplab", "lab", "run", "--lab", servers.name, "--deadline", "500", role, "--"]
        sshd = ["/usr/sbin/sshd", "-i", "-f", "/run/sshd/sshd_config", *config]
        content[role] |= {"proxy": [*argv, *sshd], "user": USER, "sudo": True}
    rules = {host: text.replace(without, "") for host, text in sudoers(Inventory.model_validate(content)).items()}
    with account(servers.dut, rules["dut"]), account(servers.tg, rules["tg"]):
        yield


def command(*argv: str, cwd: Path) -> str:
    done = forked.xdplab(*argv, cwd=cwd)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.lab
@needs_sudo
def test_a_smoke_run_over_ssh_needs_the_drop_in_and_no_more(tmp_path: Path) -> None:
    with labs.use_lab(f"netns:sudoers-{os.getpid()}") as servers:
        content = rack(servers, tmp_path)
        with reached_as_user(servers, content):
            inventory = written(content, tmp_path)
            assert command("lab", "sudoers", inventory, cwd=tmp_path).count("NOPASSWD") == 4
            command("--lab", inventory, "run", "smoke", "--out", "out", "--no-figures", cwd=tmp_path)
            (run,) = (tmp_path / "out").iterdir()
            table = pd.read_parquet(run / "trials.parquet")
            assert set(table["verdict"]) == {"valid"}, table["reason"]
            assert "nothing to restore" in command("--lab", inventory, "restore", cwd=tmp_path)
            refused = servers.dut.run(["su", USER, "-c", "sudo -n -- id; sudo -n -- sh -c id"], check=False)
            assert refused.error_text.count("a password is required") == 2, refused.error_text


@pytest.mark.thorough
@pytest.mark.root
@needs_sudo
@pytest.mark.parametrize(
    ("without", "words", "said"),
    [
        ("read -r line ", ("restore",), "sudo refuses"),
        ("|reader", ("run", "smoke", "--no-figures", "--out", "out"), "a password is required"),
    ],
)
def test_a_drop_in_of_an_earlier_version_is_told_with_the_command_that_prints_it(
    without: str, words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """It has a version's exact scripts and tools: its starter once told no start time, and it once had no reader."""
    with labs.use_lab(f"netns:sudoers-{os.getpid()}") as servers:
        content = rack(servers, tmp_path)
        with reached_as_user(servers, content, without=without):
            done = forked.xdplab("--lab", written(content, tmp_path), *words, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert "`xdplab lab sudoers INVENTORY` prints" in done.stderr
    assert "Traceback" not in done.stderr
