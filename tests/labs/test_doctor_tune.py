"""What `doctor --tune` changes, and that the old settings return."""

import os
from pathlib import Path
from typing import Any

import pytest

from xdplab.doctor.tune import UNDO, tune, undo
from xdplab.errors import HostError
from xdplab.hosts import Result
from xdplab.hosts.local import LocalHost


class Machine(LocalHost):
    """This machine, on which no service may be stopped."""

    def __init__(self) -> None:
        super().__init__("dut")
        self.services = {"irqbalance"}

    def run(self, argv: Any, **more: Any) -> Result:
        if argv[0] != "systemctl":
            return super().run(argv, **more)
        if argv[1] == "stop":
            self.services.discard(argv[2])
        return Result("dut", tuple(argv), 0 if argv[-1] in self.services or argv[1] == "stop" else 3, b"", b"", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name in ("cpu0", "cpu1"):
        found[name] = tmp_path / f"root/sys/devices/system/cpu/{name}/cpufreq/scaling_governor"
    found["jit"] = tmp_path / "root/proc/sys/net/core/bpf_jit_enable"
    for path in found.values():
        path.parent.mkdir(parents=True)
        path.write_text("1\n" if path.name == "bpf_jit_enable" else "powersave\n")
    return found


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl whose argument is its exit code: the way back is a script of plain commands."""
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tool


def test_what_does_not_come_back_is_said_and_can_be_tried_again(
    files: dict[str, Path], tmp_path: Path, systemctl: Path
) -> None:
    host, state = Machine(), str(tmp_path / "state")
    tune(host, state, root=str(tmp_path / "root"))
    systemctl.write_text("#!/bin/sh\necho no irqbalance here >&2\nexit 5\n")
    for _ in range(2):
        with pytest.raises(HostError, match="not all that --tune changed is back: no irqbalance here"):
            undo(host, state)
    systemctl.write_text("#!/bin/sh\nexit 0\n")
    assert undo(host, state)
    assert files["cpu0"].read_text() == "powersave"
    assert not undo(host, state)


def test_what_is_tuned_comes_back_as_it_was_first(files: dict[str, Path], tmp_path: Path, systemctl: Path) -> None:
    host, state = Machine(), str(tmp_path / "state")
    changes = tune(host, state, root=str(tmp_path / "root"))
    assert [(c.before, c.now, c.refused) for c in changes] == [
        ("powersave", "performance", None),
        ("powersave", "performance", None),
        ("runs", "stopped", None),
    ]
    assert host.services == set()
    files["cpu1"].write_text("ondemand\n")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 1
    assert undo(host, state)
    assert files["cpu0"].read_text() == files["cpu1"].read_text() == "powersave"
    assert files["jit"].read_text() == "1\n"
    assert not undo(host, state)


def test_what_only_a_second_call_changes_comes_back_too(
    files: dict[str, Path], tmp_path: Path, systemctl: Path
) -> None:
    host, state = Machine(), str(tmp_path / "state")
    host.services.clear()
    files["cpu1"].write_text("performance\n")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 1
    files["cpu0"].write_text("ondemand\n")
    files["cpu1"].write_text("schedutil\n")
    host.services.add("irqbalance")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 3
    systemctl.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\n')
    assert undo(host, state)
    assert (files["cpu0"].read_text(), files["cpu1"].read_text()) == ("powersave", "schedutil")
    assert (tmp_path / "asked").read_text() == "start irqbalance\n"


def test_a_kernel_that_refuses_is_quoted(files: dict[str, Path], tmp_path: Path) -> None:
    class Refusing(Machine):
        def run(self, argv: Any, **more: Any) -> Result:
            if argv[0] == "tee":
                return Result("dut", tuple(argv), 1, b"", b"tee: Invalid argument", 0.0)
            return super().run(argv, **more)

    changes = tune(Refusing(), str(tmp_path / "state"), root=str(tmp_path / "root"))
    assert [c.refused for c in changes if c.what.startswith("CPU")] == ["tee: Invalid argument"] * 2
    assert UNDO in {path.name for path in (tmp_path / "state").iterdir()}
