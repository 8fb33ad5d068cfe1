"""Guests that start from a saved state: each is independent, and a damaged state stops no guest."""

import hashlib
import importlib
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.available import guest_kernel

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs import cache
from xdplab.labs.vm import initramfs, kernels, qemu, saved
from xdplab.labs.vm.saved import KEPT, Saved, SavedError

pytestmark = [pytest.mark.thorough, pytest.mark.guest]

STATE = b"what QEMU wrote" * 100_000


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernels.Kernel]:
    """Return the kernel, in a cache without any saved state."""
    folder = guest_kernel().folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        (cache.cache_dir() / "kernels").mkdir(parents=True)
        (cache.cache_dir() / "kernels" / folder.name).symlink_to(folder)
        yield kernels.kernel("6.1")


def states() -> list[Path]:
    return sorted((cache.cache_dir() / "vm" / "states").iterdir())


def started(name: str) -> dict[str, Any]:
    """Bring a lab up and down; return how its guest started, and the values that only this guest may have."""
    with labs.use_lab(name) as lab:
        (row,) = [row for row in labs.status() if row["lab"] == name]
        said = lab.host("guest").run(["sh", "-c", "date +%s; head -c 32 /dev/urandom | od -An -tx8; dmesg"]).text
        second, numbers, log = said.split("\n", 2)
        assert abs(int(second) - time.time()) < 5
        return {**row, "numbers": numbers, "log": log}


def test_two_guests_from_one_state_draw_numbers_and_have_keys_of_their_own(kernel: kernels.Kernel) -> None:
    name = f"vm:{kernel.release}:functional"
    first, second, third = (started(name) for _ in range(3))
    assert [guest["came_up"] for guest in (first, second, third)] == ["booted", "restored", "restored"]
    assert len({guest["numbers"] for guest in (first, second, third)}) == 3
    assert len({guest["hosts"]["guest"]["host_key"] for guest in (first, second, third)}) == 3
    for guest in (second, third):
        assert "crng reseeded due to virtual machine fork" in guest["log"]
    (state,) = states()
    assert state.stat().st_mode & 0o777 == 0o600
    assert b"OPENSSH PRIVATE KEY" not in state.read_bytes()


def test_a_state_that_qemu_does_not_take_is_replaced_and_said(kernel: kernels.Kernel) -> None:
    name = f"vm:{kernel.release}:functional"
    started(name)
    (state,) = states()
    state.write_bytes(STATE + hashlib.sha256(STATE).digest())
    said = started(name)["came_up"]
    assert said.startswith("booted, because the saved state could not be used: qemu-system-x86_64: ")
    assert started(name)["came_up"] == "restored"


def test_a_guest_that_does_not_come_up_takes_its_state_with_it(
    kernel: kernels.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"vm:{kernel.release}:functional"
    started(name)
    monkeypatch.setattr(qemu, "files", lambda *_: initramfs.secret({}))
    with pytest.raises(LabError, match=r"the guest ended while it came up: .*Kernel panic"):
        started(name)
    assert states() == []


@pytest.mark.root
def test_a_disk_without_room_for_the_state_stops_no_guest(kernel: kernels.Kernel) -> None:
    folder = cache.cache_dir() / "vm" / "states"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", folder], check=True)
    try:
        said = started(f"vm:{kernel.release}:functional")["came_up"]
        left = states()
    finally:
        subprocess.run(["umount", folder], check=True)
    assert re.fullmatch(r"booted; no state is kept for the next one: .*No space left on device.*", said)
    assert left == []


# Without a guest


def kept(state: Saved, content: bytes, *, is_whole: Callable[[], bool] = lambda: True) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=lambda: (theirs.sendall(content), theirs.close()))
        sender.start()
        try:
            state.keep(ours, is_whole)
        finally:
            sender.join()


def loaded(state: Saved) -> bytes:
    ours, theirs = socket.socketpair()
    found = bytearray()

    def take() -> None:
        while chunk := theirs.recv(1 << 16):
            found.extend(chunk)

    taker = threading.Thread(target=take)
    taker.start()
    with theirs:
        try:
            with ours:
                state.load(ours)
        finally:
            taker.join()
    return bytes(found)


def test_what_is_kept_is_what_comes_back(tmp_path: Path) -> None:
    state = Saved(tmp_path / "states" / "one")
    kept(state, STATE)
    assert loaded(state) == STATE


@pytest.mark.parametrize("harm", [lambda data: data[:-50_000], lambda data: b"?" + data[1:], lambda _: b""])
def test_a_state_that_is_damaged_is_found(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    state = Saved(tmp_path / "one")
    kept(state, STATE)
    state.path.write_bytes(harm(state.path.read_bytes()))
    with pytest.raises(SavedError, match="not what was saved"):
        loaded(state)


def test_a_state_that_is_not_whole_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SavedError, match="did not save all"):
        kept(Saved(tmp_path / "one"), STATE, is_whole=lambda: False)
    assert not list(tmp_path.iterdir())


def test_only_the_states_used_last_are_kept_and_no_half_written_one(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        kept(Saved(tmp_path / str(number)), STATE[:100])
        os.utime(tmp_path / str(number), (number, number))
    loaded(Saved(tmp_path / "2"))  # the oldest that is left, used again
    (tmp_path / ".half.1").touch()
    os.utime(tmp_path / ".half.1", (0, 0))
    (tmp_path / ".half.2").touch()
    kept(Saved(tmp_path / "new"), STATE[:100])
    assert {path.name for path in tmp_path.iterdir()} == {"2", "4", "5", "new", ".half.2"}


def test_a_kernel_that_would_not_notice_keeps_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(labs.__file__).parent))  # where the keeper's script is found
    keeper = importlib.import_module("vm.keeper")
    guest = keeper.VmKeeper({"socket": "never", "uid": 0, "lease": False})
    guest.came = "booted"
    guest.save(keeper.saved.Saved(tmp_path / "one"), notices_restore=False)
    assert guest.came.startswith("booted; no state is kept for the next one: its kernel would not notice")
    assert not list(tmp_path.iterdir())


def test_another_build_of_qemu_finds_no_state_of_this_one(tmp_path: Path) -> None:
    qemu_file = tmp_path / "qemu"
    qemu_file.write_text("7.2")
    argv = [str(qemu_file), "-M", "q35"]
    before = saved.name(argv, "kernel", b"root")
    assert before == saved.name(argv, "kernel", b"root")
    assert len({before, saved.name([*argv, "-S"], "kernel", b"root"), saved.name(argv, "kernelr", b"oot")}) == 3
    qemu_file.write_text("8.0.1")
    assert saved.name(argv, "kernel", b"root") != before
