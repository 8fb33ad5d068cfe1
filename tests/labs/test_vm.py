"""The virtual lab: one guest of kernel 6.1 for most tests; what it is, what it can, and that nothing of it is left."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdplab import labs
from xdplab.deploy.native import build_room
from xdplab.errors import LabError
from xdplab.hosts import LocalHost
from xdplab.labs import Lab, control
from xdplab.labs.vm import VmLab, kernels, qemu
from xdplab.labs.vm.lab import PREFIX, console

NAME = "vm:6.1:functional"
TX = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int reflect(struct xdp_md *context) { return XDP_TX; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""


@pytest.fixture(scope="module")
def kernel() -> kernels.Kernel:
    try:
        qemu.require_tools()
        return kernels.kernel("6.1")
    except LabError as error:
        pytest.skip(f"no guest can be had here: {error}")


@pytest.fixture(scope="module")
def lab(kernel: kernels.Kernel) -> Iterator[VmLab]:
    if any(row["lab"] == NAME for row in labs.status()):
        pytest.skip(f"somebody uses {NAME}: the tests would end it")
    with labs.use_lab(NAME) as lab:
        assert isinstance(lab, VmLab)
        yield lab


def qemu_of(lab: Lab) -> int:
    """Return the process id of the lab's QEMU."""
    (row,) = [row for row in labs.status() if row["lab"] == lab.name]
    children = Path(f"/proc/{row['pid']}/task/{row['pid']}/children").read_text().split()
    (found,) = [int(pid) for pid in children if "qemu" in Path(f"/proc/{pid}/comm").read_text()]
    return found


def gone(pid: int, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def test_a_command_runs_on_the_guests_kernel_and_its_exit_code_comes_back(lab: VmLab, kernel: kernels.Kernel) -> None:
    result = lab.dut.run(["sh", "-c", "uname -r; echo to stderr >&2; exit 7"], check=False)
    assert (result.text.strip(), result.error_text, result.exit_code) == (kernel.release, "to stderr", 7)


def test_label_names_kernel_and_way(lab: VmLab) -> None:
    assert lab.label == "virtual lab, vm 6.1, functional: no times"
    assert (lab.kind, lab.virtual, lab.arrangement, lab.queues) == ("vm", True, "shared", 8)


def test_the_hosts_are_namespaces_with_the_links_two_ends(lab: VmLab) -> None:
    spaces = {host.run(["readlink", "/proc/self/ns/net"]).text for host in (lab.dut, lab.tg, lab.guest)}
    assert len(spaces) == 3
    ends = ((lab.dut, lab.dut_interface, lab.dut_mac), (lab.tg, lab.tg_interface, lab.tg_mac))
    for host, interface, mac in ends:
        assert host.run(["cat", f"/sys/class/net/{interface}/address"]).text.strip() == mac
        assert host.run(["cat", f"/sys/class/net/{interface}/operstate"]).text.strip() == "up"


def test_what_the_guest_writes_stays_in_it(lab: VmLab) -> None:
    target = Path.home() / f".xdplab-test-{os.getpid()}"
    lab.guest.run(["touch", str(target)])  # into the memory over the root, which the guest may do
    assert not target.exists()


def test_only_what_is_forwarded_can_be_reached_and_the_guest_reaches_nothing(lab: VmLab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        script = "import socket,sys; socket.create_connection(('10.0.2.2', int(sys.argv[1])), 2)"
        assert not lab.guest.run(["python3", "-S", "-c", script, str(port)], check=False).ok


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_program_is_attached_by_a_tool_compiled_outside(lab: VmLab, tmp_path: Path, mode: str) -> None:
    source, program = tmp_path / "tx.bpf.c", tmp_path / "tx.bpf.o"
    source.write_text(TX)
    clang = ["clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu"]
    subprocess.run([*clang, "-c", str(source), "-o", str(program)], check=True)
    build_room(LocalHost(), "xdpload", str(lab.native_dir))
    xdpload = build_room(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
    lab.dut.put(program, f"{lab.work_dir(lab.dut)}/tx.bpf.o")
    argv = [xdpload, "--object", f"{lab.work_dir(lab.dut)}/tx.bpf.o", "--interface", lab.dut_interface, "--mode", mode]
    process = lab.dut.start(argv, deadline_s=30.0)
    loaded, attached = process.read_line(20.0), process.read_line(20.0)
    process.close_stdin()
    assert process.wait(10.0).ok
    assert loaded is not None
    assert '"jit":true' in loaded
    assert attached is not None
    assert f'"mode_obtained":"{mode}"' in attached


def test_one_run_at_a_time_holds_the_lab(lab: VmLab) -> None:
    with lab.lock("the first"), pytest.raises(LabError, match=r"the first.*vm:KERNEL"), lab.lock("the second"):
        pass


def test_up_again_changes_nothing(lab: VmLab) -> None:
    assert labs.up(NAME) is False


def test_a_panic_is_told_with_the_kernels_words(kernel: kernels.Kernel, lab: VmLab) -> None:
    guest = qemu_of(lab)
    lab.guest.start(["sh", "-c", "echo c >/proc/sysrq-trigger"], deadline_s=5.0)
    assert gone(guest, within_s=20.0)
    time.sleep(0.2)
    with pytest.raises(LabError, match=r"ended by itself: Kernel panic - not syncing: sysrq"):
        labs.open_lab(NAME)
    assert "Kernel panic" in console("6.1:functional").read_text(errors="replace")


USE = f"""
import sys, time
from xdplab import labs
with labs.use_lab({NAME!r}):
    print("up", flush=True)
    time.sleep(60)
"""


def test_a_killed_owner_leaves_nothing(kernel: kernels.Kernel, lab: VmLab) -> None:
    """After the panic the name is free: a process that uses the lab is killed, then nothing of it runs."""
    with subprocess.Popen([sys.executable, "-c", USE], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        (row,) = [row for row in labs.status() if row["lab"] == NAME]
        guest = qemu_of(labs.open_lab(NAME))
        owner.send_signal(signal.SIGKILL)
    assert gone(guest, within_s=5.0)
    assert gone(row["pid"], within_s=5.0)
    assert "6.1:functional" not in control.instances(control.owner(), PREFIX)


# Without a guest


@pytest.mark.parametrize("name", ["vm:warp-9", "vm:6", "vm:../6.1"])
def test_a_name_that_is_no_kernels_is_refused(name: str) -> None:
    if shutil.which(qemu.QEMU) is None:
        pytest.skip("no QEMU here")
    with pytest.raises(LabError, match="not a kernel's name"):
        labs.up(name)


def test_a_way_that_does_not_exist_is_refused(kernel: kernels.Kernel) -> None:
    with pytest.raises(LabError, match=r"'warp'.*kvm, count, functional"):
        labs.up("vm:6.1:warp")


def test_a_changed_kernel_is_not_booted(
    kernel: kernels.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "xdplab" / "kernels" / kernel.folder.name
    copy.mkdir(parents=True)
    for name in (*kernels.CHECKED, "kernel.json"):
        shutil.copyfile(kernel.file(name), copy / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.kernel("6.1")
    with (copy / "vmlinux").open("r+b") as file:
        file.seek(4096)
        file.write(b"changed")
    with pytest.raises(LabError, match=r"vmlinux is not what was fetched.*--again"):
        kernels.kernel("6.1")


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qemu.shutil, "which", lambda *_args, **_more: None)
    with pytest.raises(LabError, match=r"qemu-system-x86.*apt install"):
        qemu.require_tools()
