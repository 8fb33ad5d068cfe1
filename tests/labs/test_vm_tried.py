"""The CPU model of a guest: the first candidate that boots with this QEMU, tried once and remembered; its refusals."""

import importlib
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs.guests.keepers import GuestKeepers
from xdplab.labs.vm import kernels, lab, qemu

MODELS = qemu.WAYS["functional"].models


class FakeQemu:
    """A fake QEMU, whose CPU models boot, hang at a line, or end at once with an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "qemu"
        self.version = "7.2.22"
        self.does = dict.fromkeys(MODELS, "boots")

    def write(self) -> None:
        does = {
            "boots": f"echo '{qemu._MARK.decode()}'",
            "hangs": "echo 'LSM: Security Framework initializing'; exec sleep 60",
            "ends": "echo 'unable to find CPU model' >&2; exit 1",
        }
        cases = "".join(f"'{model}') {does[what]} ;;\n" for model, what in self.does.items())
        self.path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "QEMU emulator version {self.version}"; exit; }}\n'
            f'while [ "$1" != -cpu ]; do shift; done\necho "$2" >>{self.folder}/asked\ncase $2 in {cases} esac\n'
        )
        self.path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """Return the CPU models with which guests were booted, in order."""
        asked = self.folder / "asked"
        return asked.read_text().split() if asked.exists() else []

    def choose(self) -> qemu.Choice:
        self.write()
        busybox = self.folder / "busybox"
        busybox.write_bytes(b"a shell")
        kernel = kernels.Kernel("6.1", "6.1.0-9-amd64", "6.1.9-1", (), {"vmlinux": "00"}, self.folder)
        return qemu.choose("functional", kernel, {qemu.QEMU: str(self.path), "busybox": str(busybox)})


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeQemu:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(qemu.WAYS, "functional", replace(qemu.WAYS["functional"], first_process_s=2.0))
    return FakeQemu(tmp_path)


def test_the_first_cpu_that_boots_is_taken_and_remembered(fake: FakeQemu) -> None:
    assert fake.choose().cpu == MODELS[0]
    assert fake.choose().cpu == MODELS[0]
    assert fake.asked == [MODELS[0]]


def test_a_cpu_that_hangs_is_followed_by_the_next_one(fake: FakeQemu) -> None:
    fake.does[MODELS[0]] = "hangs"
    assert fake.choose().cpu == MODELS[1]
    assert fake.choose().cpu == MODELS[1]
    assert fake.asked == list(MODELS)


def test_another_qemu_is_tried_anew(fake: FakeQemu) -> None:
    fake.choose()
    fake.version, fake.does[MODELS[0]] = "10.0.2", "ends"
    assert fake.choose().cpu == MODELS[1]
    assert fake.asked == [MODELS[0], *MODELS]


def test_if_no_cpu_boots_the_last_line_of_each_is_shown_and_remembered(fake: FakeQemu) -> None:
    fake.does = {MODELS[0]: "hangs", MODELS[1]: "ends"}
    for _ in range(2):
        with pytest.raises(LabError) as told:
            fake.choose()
        said = str(told.value)
        assert "no guest of kernel 6.1 boots with QEMU emulator version 7.2.22" in said
        assert f"-cpu {MODELS[0]}: a guest had not started after 2 s; its console's last line: LSM: Security" in said
        assert f"-cpu {MODELS[1]}: unable to find CPU model" in said
    assert fake.asked == list(MODELS)


def test_a_machine_that_was_too_busy_to_boot_any_is_asked_again_later(
    fake: FakeQemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.does = dict.fromkeys(MODELS, "ends")
    with pytest.raises(LabError):
        fake.choose()
    fake.does = dict.fromkeys(MODELS, "boots")
    with pytest.raises(LabError):
        fake.choose()
    monkeypatch.setattr(qemu, "RETRY_S", 0.0)
    assert fake.choose().cpu == MODELS[0]


def test_a_torn_memory_is_made_anew(fake: FakeQemu) -> None:
    fake.choose()
    (memory,) = (fake.folder / "cache/xdplab/vm/tried").iterdir()
    assert json.loads(memory.read_text())["cpu"] == MODELS[0]
    memory.write_text('{"boot_id": "')
    assert fake.choose().cpu == MODELS[0]
    assert len(fake.asked) == 2


@pytest.mark.parametrize("way", ["functional", "count"])
def test_no_cpu_of_an_emulated_way_has_fsrm_alone(way: str) -> None:
    """Kernel 6.1 hangs with it in QEMU 10; `max` has both."""
    assert all(("-erms" in model) <= ("-fsrm" in model) for model in qemu.WAYS[way].models)


@pytest.mark.parametrize(("name", "word"), [("6.1", "mitigations=off"), ("6.1+mitigations", "mitigations=auto")])
def test_a_guest_boots_with_mitigations_where_its_name_says_so(
    name: str, word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mitigations are a factor: one kernel with and without them is two places."""
    kernel = kernels.Kernel("6.1", "6.1.0", "6.1.1-1", (), {}, tmp_path)
    started: dict[str, Any] = {}
    monkeypatch.setattr(kernels, "cached", lambda: [kernel])
    monkeypatch.setattr(qemu, "require_tools", lambda: {qemu.QEMU: "qemu", "busybox": "busybox"})
    monkeypatch.setattr(qemu, "choose", lambda *_: qemu.Choice(qemu.WAYS["count"], "max", "asked for"))
    monkeypatch.setattr(qemu, "first_root", lambda *_: b"")
    monkeypatch.setattr(qemu, "files", lambda *_: b"")
    monkeypatch.setattr(
        GuestKeepers, "start", lambda _, script, *__, facts, **___: started.update(script.configuration, facts=facts)
    )
    lab.boot(0, f"{name}:count", lab.Guest.chosen(name, "count"), lease=True)
    assert word in started["argv"][started["argv"].index("-append") + 1].split()
    assert lab.label({"kernel": started["facts"]["kernel"], "way": "count"}).startswith(f"virtual lab, vm {name},")


def test_what_qemu_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(labs.__file__).parent))  # where the keeper's script is found
    keeper = importlib.import_module("vm.keeper")
    here, qemus = socket.socketpair()
    with here, qemus:
        qemus.sendall(b'{"return": {}}\n{"error": {"desc": "no such descriptor"}}\n')
        monitor = keeper.Monitor(here)
        with pytest.raises(keeper.MonitorError, match="QEMU, migrate: no such descriptor"):
            monitor.execute("migrate")
