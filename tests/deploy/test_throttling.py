"""A machine-wide setting is restored by the last run that switched it off, however that run ends."""

import os
import signal
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import pytest

from xdplab.deploy.kernel_settings import put_back, unthrottled
from xdplab.errors import HostError
from xdplab.hosts.local import LocalHost

HOST = LocalHost()


class Machine:
    """Files instead of the kernel's, and a folder instead of /run."""

    def __init__(self, root: Path) -> None:
        self.folder = str(root / "run")
        self.files = [root / "rt_runtime", root / "cpu0" / "runtime", root / "cpu1" / "runtime"]
        for file, was in zip(self.files, ("950000", "50000000", "40000000"), strict=True):
            file.parent.mkdir(exist_ok=True)
            file.write_text(was + "\n")
        absent = {str(root / "none" / "cpu*"): "0"}
        self.switches = {str(root / "rt_runtime"): "-1", str(root / "cpu*" / "runtime"): "0", **absent}

    @property
    def now(self) -> list[str]:
        return [file.read_text().strip() for file in self.files]

    def off(self) -> AbstractContextManager[dict[str, str]]:
        return unthrottled(HOST, folder=self.folder, switches=self.switches)


BEFORE, OFF = ["950000", "50000000", "40000000"], ["-1", "0", "0"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_is_off_in_the_block_and_back_after_it(machine: Machine) -> None:
    with machine.off() as now:
        assert machine.now == OFF
        assert list(now.values()) == OFF
    assert machine.now == BEFORE
    assert not put_back(HOST, folder=machine.folder)


def test_the_last_of_two_runs_puts_it_back(machine: Machine) -> None:
    with ExitStack() as first:
        first.enter_context(machine.off())
        with machine.off():
            first.close()
            assert machine.now == OFF
            assert not put_back(HOST, folder=machine.folder)  # no effect while the setting is held
            assert machine.now == OFF
    assert machine.now == BEFORE


def holders(folder: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end during the look
            if folder.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("again", [False, True])
def test_after_a_kill_the_next_run_or_restore_puts_it_back(machine: Machine, again: bool) -> None:
    with pytest.raises(HostError, match="is not put back"), machine.off():
        os.killpg(os.getpgid(holders(machine.folder)[0]), signal.SIGKILL)
    assert machine.now == OFF
    if again:
        with machine.off():
            assert machine.now == OFF
    else:
        assert put_back(HOST, folder=machine.folder)
    assert machine.now == BEFORE


def test_what_another_boot_left_is_not_put_back(machine: Machine) -> None:
    before = Path(machine.folder) / "before"
    before.parent.mkdir()
    before.write_text(f"another-boot\n{machine.files[0]} 123\n")
    with machine.off():
        assert machine.now == OFF
    assert machine.now == BEFORE


def test_what_a_locked_down_kernel_hides_is_told_and_left(machine: Machine) -> None:
    machine.files[1].write_text("")
    with machine.off() as now:
        assert list(now.values()) == ["locked", "-1", "0"]
        assert machine.now == ["-1", "", "0"]


@pytest.mark.root
def test_on_a_full_disk_nothing_is_switched_off(machine: Machine) -> None:
    folder = Path(machine.folder)
    folder.mkdir()
    HOST.run(["mount", "-t", "tmpfs", "-o", "size=4k", "small", str(folder)])
    try:
        (folder / "full").write_bytes(bytes(4096))
        with pytest.raises(HostError, match=r"cannot be held: .*No space left on device"), machine.off():
            pass
        assert machine.now == BEFORE
        (folder / "full").unlink()
        with machine.off():
            assert machine.now == OFF
        assert machine.now == BEFORE
    finally:
        HOST.run(["umount", str(folder)])


def test_throttling_that_stays_on_is_an_error(machine: Machine) -> None:
    stubborn = {"/proc/sys/kernel/random/boot_id": "-1"}
    with (
        pytest.raises(HostError, match=r"boot_id stays .* cannot be switched off"),
        unthrottled(HOST, folder=machine.folder, switches=machine.switches | stubborn),
    ):
        pass
    assert machine.now == BEFORE
