"""What names code is only run where it is one's own: a plan's commands, an inventory's proxy, another's run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xdplab.cli.run import own_plan
from xdplab.labs.inventory import load_inventory
from xdplab.own import StrangersFileError, require_own

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


@pytest.mark.root
@needs_root
def test_who_calls_sudo_owns_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    os.chown(file, 54321, 54321)
    monkeypatch.setenv("SUDO_UID", "54321")
    assert own_plan(file).metrics
