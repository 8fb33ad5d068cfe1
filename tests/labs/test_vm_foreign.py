"""Guests of another architecture, without booting one: names, the cache, missing tools, and the console's protocol."""

import base64
import contextlib
import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdplab.errors import HostError, LabError, MissingToolError
from xdplab.labs import cache
from xdplab.labs.vm import architectures, console, initramfs, kernels

_LOOP = console.INIT.read_text().partition("cd /tmp\n")[2].replace("poweroff -f", "exit")
"""The guest's first script, after the root file system is there."""


@contextlib.contextmanager
def booted(*words: str) -> Iterator[console.ConsoleGuest]:
    """A guest whose console is a shell's that runs these words."""
    made = console.ConsoleGuest("vm:test", ["sh", "-c", *words], ())
    try:
        made.await_up()
        yield made
    finally:
        made.close()


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[console.ConsoleGuest]:
    with booted(f"cd '{tmp_path}'\n{_LOOP}") as made:
        yield made


def test_a_command_returns_its_output_and_its_exit_code(guest: console.ConsoleGuest) -> None:
    done = guest.run(["sh", "-c", "cat; echo 'two  words' >&2; exit 3"], stdin=b"'a'\n\0b\xff", check=False)
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"'a'\n\0b\xff", b"two  words\n")
    assert guest.run(["printf", "%s|", "it's", "$HOME", "a  b"]).text == "it's|$HOME|a  b|"
    with pytest.raises(HostError, match=r"vm:test: `false` exited with 1"):
        guest.run(["false"])


def test_what_is_long_comes_whole_both_ways(guest: console.ConsoleGuest) -> None:
    content = bytes(range(256)) * 300
    assert guest.run(["cat"], stdin=content).stdout == content


def test_a_file_is_put_and_got(guest: console.ConsoleGuest, tmp_path: Path) -> None:
    path = tmp_path / "below" / "file"
    guest.put(b"content", str(path), mode=0o750)
    assert path.stat().st_mode & 0o777 == 0o750
    assert guest.get(str(path)) == b"content"


def test_a_command_that_hangs_ends_the_guest_and_says_so(guest: console.ConsoleGuest) -> None:
    with pytest.raises(HostError, match="has not answered in time") as lost:
        guest.run(["sleep", "60"], deadline_s=0.3)
    assert "--resume" in str(lost.value.remedy)
    with pytest.raises(HostError, match="has ended"):
        guest.run(["true"])


def test_a_guest_that_has_fallen_asleep_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "NUDGE_S", 0.1)
    empty = "printf '' | gzip -c | base64"
    says = "echo xdplab:up; read a; echo xdplab:more 1; read a; read again; echo 'xdplab:exit 0'; "
    says += f"{empty}; echo xdplab:err; {empty}; echo xdplab:end; cat >/dev/null"
    with booted(says) as guest:
        assert guest.run(["true"], deadline_s=5.0).ok


@pytest.mark.parametrize("damaged", ["", "\n", "5 {}\n", "+0 9 {}\n"])
def test_a_line_that_did_not_come_whole_comes_again(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first line the guest gets something else, or nothing."""
    monkeypatch.setattr(console, "NUDGE_S", 0.2)
    cut = f"cd '{tmp_path}'; echo xdplab:up; (read -r line; printf '{damaged}'; cat) | sh -c \"$1\""
    with booted(cut, "sh", _LOOP) as guest:
        assert guest.run(["echo", "whole"], deadline_s=20.0).text == "whole\n"


def test_the_line_that_wakes_a_guest_changes_nothing(
    guest: console.ConsoleGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "NUDGE_S", 0.1)
    assert guest.run(["sh", "-c", "sleep 0.5; cat; echo done"], stdin=b"in\n").text == "in\ndone\n"
    assert guest.run(["echo", "next"]).text == "next\n"


def test_an_orphan_that_ends_cuts_no_line_that_comes(tmp_path: Path) -> None:
    """The first process of a guest inherits the orphans, as a subreaper does."""
    reaper = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); os.execvp('busybox', sys.argv[1:])"
    loop = f"cd '{tmp_path}'\n{_LOOP}"
    script = base64.b64encode(b"(sleep 0.3 &)").decode()
    with subprocess.Popen(
        [sys.executable, "-c", reaper, "busybox", "sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        shell.stdin.write(f"+0 {len(script)} {script}\n!\n+0 8 half".encode())
        shell.stdin.flush()
        time.sleep(1)
        shell.stdin.write(b"half\n")
        shell.stdin.close()
        assert shell.stdout.read().count(b"xdplab:more 1") == 2


def test_a_guest_that_does_not_boot_shows_its_last_line() -> None:
    ended = pytest.raises(LabError, match=r"the guest has ended; its console's last line: Kernel panic: no init")
    with ended, booted("echo one; printf 'Kernel panic: no init'"):
        pass


def test_damage_on_the_console_is_no_result() -> None:
    says = "echo xdplab:up; read a; echo xdplab:more 1; read a; echo 'xdplab:exit 0'; echo AAAA; echo xdplab:err"
    with booted(says) as guest, pytest.raises(HostError, match="what came over the console is damaged"):
        guest.run(["true"])


@pytest.mark.parametrize("architecture", architectures.KNOWN.values(), ids=lambda one: one.name)
def test_a_missing_qemu_names_the_package(architecture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match=architecture.qemu) as missing:
        architecture.tool()
    assert missing.value.remedy == f"apt install {' '.join(architecture.packages)}"


def test_an_architecture_that_no_guest_has_names_those_there_are() -> None:
    assert architectures.parted("6.1") == ("6.1", None)
    assert architectures.parted("6.1@arm64") == ("6.1", architectures.KNOWN["arm64"])
    with pytest.raises(LabError, match="no guest has the architecture 'vax'") as refused:
        kernels.kernel("6.1@vax")
    assert refused.value.remedy == "write 6.1@arm64, 6.1@riscv64, 6.1@ppc64el"


def test_an_architecture_without_a_jit_is_refused_with_the_reason() -> None:
    with pytest.raises(LabError, match=r"6\.1@s390x: Debian builds its kernels for z10, .* z196 and later") as refused:
        kernels.kernel("6.1@s390x")
    assert refused.value.remedy == "there are arm64, riscv64, ppc64el"


def test_a_guest_boots_with_its_programs_and_every_folder_lies_before_what_is_in_it(tmp_path: Path) -> None:
    """Over the console a program of 800 kB took longer than a trial may."""
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"shell")
    archived = initramfs.console(busybox, b"init", {"lib/modules/6.1/a.ko": b"module"}, {"tools/jitbench": b"program"})
    at = archived.index(b"tools/jitbench\0")
    assert int(archived[at - 96 : at - 88], 16) == stat.S_IFREG | 0o755
    names = (b"lib", b"lib/modules", b"lib/modules/6.1", b"lib/modules/6.1/a.ko")
    order = [archived.index(name + b"\0") for name in names]
    assert order == sorted(order)


def test_a_kernel_of_one_architecture_is_not_taken_for_anothers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, release in (("6.1", "6.1.0-50-amd64"), ("6.1@arm64", "6.1.0-56-arm64")):
        folder = cache.cache_dir() / "kernels" / release
        folder.mkdir(parents=True)
        said = {"name": name, "release": release, "version": "1", "packages": [], "sha256": {}}
        (folder / "kernel.json").write_text(json.dumps(said))
    assert kernels.kernel("6.1").release == "6.1.0-50-amd64"
    assert kernels.kernel("6.1@arm64").release == "6.1.0-56-arm64"
    assert kernels.kernel("6.1.0-56@arm64").release == "6.1.0-56-arm64"
