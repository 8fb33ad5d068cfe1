"""The lab `uml`: one host, reached over one line; its modules, what it lacks, and how it ends."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.available import or_skip
from tests.waiting import children, until

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs.guests import modules
from xdplab.labs.uml import lab as uml_lab
from xdplab.labs.uml import xstate
from xdplab.labs.uml.lab import KEEPERS, UmlLab
from xdplab.labs.uml.package import package, tree

pytestmark = pytest.mark.machine
INSTANCE = f"test-{os.getpid()}"
NAME = f"uml:{INSTANCE}"
MODULE = b"""
#include <linux/module.h>
static int __init enter(void) { pr_info("xdplab: a module runs\\n"); return 0; }
static void __exit leave(void) { }
module_init(enter);
module_exit(leave);
MODULE_LICENSE("Dual MIT/GPL");
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[UmlLab]:
    with or_skip("user-mode Linux"):
        uml_lab.require_namespaces()
        package()
    with labs.use_lab(NAME) as lab:
        yield lab


def test_a_command_runs_in_it_and_its_exit_code_comes_back(lab: UmlLab) -> None:
    result = lab.guest.run(["sh", "-c", "cat; uname -r; echo words >&2; exit 7"], stdin=b"in\n", check=False)
    assert (result.text, result.error_text, result.exit_code) == (f"in\n{package().release}\n", "words", 7)


def test_what_it_is(lab: UmlLab) -> None:
    assert lab.label.startswith("virtual lab, uml 6.1, ")
    assert (lab.kind, lab.clock, lab.virtual) == ("uml", "time", True)
    (row,) = [row for row in labs.status() if row["lab"] == NAME]
    assert (row["way"], list(row["hosts"]), "client_key" in row["hosts"]["guest"]) == ("uml", ["guest"], False)


def test_the_kernel_needs_no_modprobe_of_its_own_for_a_link(lab: UmlLab) -> None:
    """The process that it starts dies on CPUs with AMX; there, each load of the loading study was `unsupported`."""
    setting = "kernel.modprobe"
    before = lab.guest.run(["sysctl", "-n", setting]).text.strip()
    lab.guest.run(["sysctl", "-q", "-w", f"{setting}=/bin/false"])
    try:
        lab.guest.run(["ip", "link", "add", "one", "type", "veth", "peer", "other"])
        lab.guest.run(["ip", "link", "del", "one"])
    finally:
        lab.guest.run(["sysctl", "-q", "-w", f"{setting}={before}"])


def test_its_memory_holds_what_empties_this_machines_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver walks through a server's L3 of 480 MiB twice, and was killed in a guest of 1024 MB."""
    monkeypatch.setattr(uml_lab, "evicted_bytes", lambda: 960 << 20)
    assert uml_lab.memory_mb() == 1024 + 960


def test_where_there_is_amx_there_is_no_avx_inside(lab: UmlLab) -> None:
    told = {name: lab.guest.run(["printenv", name], check=False).text.strip() for name in xstate.ENVIRONMENT}
    expected = xstate.ENVIRONMENT if xstate.is_too_long() else dict.fromkeys(xstate.ENVIRONMENT, "")
    assert told == expected


def test_files_longer_than_the_lines_buffer_come_back_as_they_went(lab: UmlLab) -> None:
    content = os.urandom(300_000)
    lab.guest.put(content, "/tmp/there/content")
    assert lab.guest.get("/tmp/there/content") == content


def test_two_commands_at_once_and_lines_both_ways(lab: UmlLab) -> None:
    one, other = (lab.guest.start(["sh", "-c", "read x; echo got $x"], deadline_s=20.0) for _ in range(2))
    other.write_line("2")
    assert other.read_line(10.0) == "got 2"
    one.write_line("1")
    assert one.read_line(10.0) == "got 1"
    assert one.wait(10.0).ok
    assert other.wait(10.0).ok


def test_what_it_writes_stays_in_it(lab: UmlLab) -> None:
    """Also what is compiled: this machine runs the files of that folder, which look the same inside and outside."""
    target = Path.home() / f".xdplab-test-{os.getpid()}"
    lab.guest.run(["touch", str(target)])
    assert not target.exists()
    assert not lab.guest.run(["touch", f"/mnt/before{target}"], check=False).ok
    inside, built = f"{lab.work_dir(lab.guest)}/native", lab.native_dir / INSTANCE
    lab.guest.run(["touch", f"{inside}/{INSTANCE}"])
    assert not built.exists()
    built = built.with_name(f"{INSTANCE}-later")
    built.touch()
    try:
        assert lab.guest.run(["test", "-e", f"{inside}/{built.name}"], check=False).ok
        assert not lab.guest.run(["rm", f"/mnt/before/lower{built}"], check=False).ok
        assert built.exists()
    finally:
        built.unlink()


def test_root_inside_cannot_mount_its_way_out(lab: UmlLab) -> None:
    """hostfs, mounted again and writable, still shows this machine's files, which uml's process may not write."""
    target = Path.home() / f".xdplab-test-{os.getpid()}"
    script = (
        f"mkdir /mnt/out && mount -t hostfs -o / none /mnt/out && ls -d /mnt/out{Path.home()} && touch /mnt/out{target}"
    )
    done = lab.guest.run(["sh", "-c", script], check=False)
    assert done.text == f"/mnt/out{Path.home()}\n", done.error_text
    assert "Read-only file system" in done.error_text
    assert not target.exists()


def test_the_process_that_it_is_has_no_right_outside(lab: UmlLab) -> None:
    (row,) = [row for row in labs.status() if row["lab"] == NAME]
    (space,) = children(row["pid"])
    (shell,) = children(space)
    (kernel, *_) = children(shell)
    said = dict(line.split(":\t", 1) for line in Path(f"/proc/{kernel}/status").read_text().splitlines())
    assert {int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert said["NoNewPrivs"] == "1"


def test_a_module_built_outside_is_loaded(lab: UmlLab) -> None:
    module = modules.build(tree(), "xdplab_test", {"xdplab_test.c": MODULE})
    lab.guest.put(module, "/tmp/xdplab_test.ko")
    lab.guest.run(["insmod", "/tmp/xdplab_test.ko"])
    assert "xdplab: a module runs" in lab.guest.run(["dmesg"]).text
    lab.guest.run(["rmmod", "xdplab_test"])
    lab.guest.run(["modprobe", "veth"])


def test_what_needs_a_link_is_told_that_there_is_none(lab: UmlLab) -> None:
    with pytest.raises(LabError, match=r"has no host 'dut': it has one host, guest \(for XDP use netns or vm"):
        lab.host("dut")
    with pytest.raises(LabError, match="has no link"):
        _ = lab.tg_interface
    run = [Path(sys.executable).with_name("xdplab"), "--lab", NAME, "run", "smoke"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "it has one host, guest" in done.stderr


def processes() -> list[int]:
    """Return the processes of this lab's kernel: its helpers and hosted processes have its name too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"linux.uml" in words and f"/{INSTANCE}/".encode() in words:
            found.append(int(path.parent.name))
    return found


def test_a_panic_has_the_kernels_message_and_a_killed_keeper_leaves_nothing(lab: UmlLab) -> None:
    """The last test of this lab, which takes it down twice."""
    assert processes()
    (row,) = [row for row in labs.status() if row["lab"] == NAME]
    lab.guest.start(["sh", "-c", "echo c >/proc/sysrq-trigger"], deadline_s=5.0)
    assert until(lambda: not processes() and not Path(f"/proc/{row['pid']}").exists(), 20.0)
    with pytest.raises(LabError, match=r"ended by itself: Kernel panic - not syncing: sysrq"):
        labs.open_lab(NAME)
    labs.up(NAME)
    (row,) = [row for row in labs.status() if row["lab"] == NAME]
    os.kill(row["pid"], signal.SIGKILL)
    assert until(lambda: not processes(), 5.0)
    KEEPERS.console(INSTANCE).unlink()


def test_a_name_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(LabError, match="cannot be used"):
        labs.up("uml:../x")


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml_lab.shutil, "which", lambda *_args, **_more: None)
    with pytest.raises(
        LabError, match=r"needs busybox, .*insmod, sshd \(apt install busybox-static kmod openssh-server util-linux\)"
    ):
        labs.up("uml:never")


# Refused as on a CPU without XSAVE: no such state (ENODEV); of another state: no such process (ESRCH).
ASKS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import xstate
xstate.hide()
libc = ctypes.CDLL(None, use_errno=True)
for kind in (xstate.NT_X86_XSTATE, 1):
    libc.ptrace(ctypes.c_long(xstate.PTRACE_GETREGSET), ctypes.c_long(0), ctypes.c_long(kind), None)
    print(ctypes.get_errno())
"""


def test_only_the_state_that_is_too_long_is_hidden() -> None:
    argv = [sys.executable, "-I", "-c", ASKS, str(Path(uml_lab.__file__).parent)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(errno.ENODEV), str(errno.ESRCH)]
