"""The virtual lab: one guest of kernel 6.1 for most tests; what it has and can do, and that nothing of it is left."""

import errno
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.available import guest_kernel, unused
from tests.waiting import child, children, runs, until

from xdplab import labs
from xdplab.deploy.native import build_tool
from xdplab.doctor.checks import CheckedHost, Subject, rows_of
from xdplab.doctor.machine import CHECKS
from xdplab.errors import LabError
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab, cache, control, tools
from xdplab.labs.guests import modules
from xdplab.labs.vm import headers, initramfs, kernels, qemu
from xdplab.labs.vm.lab import KEEPERS, VmLab

pytestmark = pytest.mark.guest

NAME = "vm:6.1:functional"
TX = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int reflect(struct xdp_md *context) { return XDP_TX; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""


@pytest.fixture(scope="module")
def kernel() -> kernels.Kernel:
    return guest_kernel()


@pytest.fixture(scope="module")
def lab(kernel: kernels.Kernel) -> Iterator[VmLab]:
    unused(NAME)  # the tests would end it
    with labs.use_lab(NAME) as lab:
        yield lab


def qemu_of(lab: Lab) -> int:
    """Return the process id of the lab's QEMU."""
    (row,) = [row for row in labs.status() if row["lab"] == lab.name]
    (found,) = [pid for pid in children(row["pid"]) if "qemu" in Path(f"/proc/{pid}/comm").read_text()]
    return found


def test_the_clock_of_a_guest_runs_like_this_machines(lab: VmLab) -> None:
    """Otherwise deadlines inside pass early. A busy machine's guest may measure the TSC's frequency wrong by 8 ×."""
    guest = lab.host("guest")

    def read() -> tuple[float, float, float]:
        before = time.monotonic()
        uptime_s = float(guest.run(["cat", "/proc/uptime"]).text.split()[0])
        return before, uptime_s, time.monotonic()

    first = read()
    time.sleep(2.0)
    last = read()
    passed_s = last[1] - first[1]
    assert 0.95 * (last[0] - first[2]) < passed_s < 1.05 * (last[2] - first[0])
    source = guest.get("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    assert source == b"acpi_pm\n", "the TSC's frequency is the kernel's guess"


def test_the_link_is_made_when_it_is_first_asked_for(lab: VmLab) -> None:
    def row() -> dict[str, Any]:
        return next(row for row in labs.status() if row["lab"] == NAME)

    assert list(row()["hosts"]) == ["guest"]
    assert lab.guest.run(["hostname"]).text == "guest\n"
    assert list(row()["hosts"]) == ["guest"]
    assert lab.tg.run(["hostname"]).text == "tg\n"
    assert list(row()["hosts"]) == ["guest", "dut", "tg"]
    assert (row()["label"], row()["way"], row()["why"]) == (lab.label, "functional", "asked for")


def test_a_command_runs_on_the_guests_kernel_and_its_exit_code_comes_back(lab: VmLab, kernel: kernels.Kernel) -> None:
    result = lab.dut.run(["sh", "-c", "uname -r; echo to stderr >&2; exit 7"], check=False)
    assert (result.text.strip(), result.error_text, result.exit_code) == (kernel.release, "to stderr", 7)


def test_label_names_kernel_and_way(lab: VmLab) -> None:
    assert lab.label == "virtual lab, vm 6.1, functional: no times"
    assert (lab.kind, lab.virtual, lab.arrangement) == ("vm", True, "shared")


def test_the_hosts_are_namespaces_with_the_links_two_ends(lab: VmLab) -> None:
    spaces = {host.run(["readlink", "/proc/self/ns/net"]).text for host in (lab.dut, lab.tg, lab.guest)}
    assert len(spaces) == 3
    ends = ((lab.dut, lab.dut_interface, lab.dut_mac), (lab.tg, lab.tg_interface, lab.tg_mac))
    for host, interface, mac in ends:
        assert host.run(["cat", f"/sys/class/net/{interface}/address"]).text.strip() == mac
        assert host.run(["cat", f"/sys/class/net/{interface}/operstate"]).text.strip() == "up"


def test_only_what_is_forwarded_can_be_reached_and_the_guest_reaches_nothing(lab: VmLab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        script = "import socket,sys; socket.create_connection(('10.0.2.2', int(sys.argv[1])), 2)"
        assert not lab.guest.run(["python3", "-S", "-c", script, str(port)], check=False).ok


def test_what_a_guest_writes_stays_in_it(lab: VmLab) -> None:
    """Also what is compiled: this machine runs the files of that folder, which look the same inside and outside."""
    mine, later = (lab.native_dir / f"test-{os.getpid()}-{name}" for name in ("inside", "outside"))
    inside = f"{lab.work_dir(lab.guest)}/native"
    lab.guest.run(["touch", f"{inside}/{mine.name}"])
    assert not mine.exists()
    later.touch()
    try:
        assert lab.guest.run(["test", "-e", f"{inside}/{later.name}"], check=False).ok
        lab.guest.run(["sh", "-c", f"umount -l {inside}/; mount -o remount,rw /native"], check=False)
        mounted = "mkdir -p /mnt/out && mount -t 9p -o trans=virtio,version=9p2000.L {tag} /mnt/out"
        for tag in ("native", "host"):
            lab.guest.run(["sh", "-c", f"{mounted.format(tag=tag)} && touch /mnt/out/{mine.name}"], check=False)
        assert not mine.exists()
        assert not (Path("/") / mine.name).exists()
    finally:
        later.unlink()


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_program_is_attached_by_a_tool_compiled_outside(lab: VmLab, tmp_path: Path, mode: str) -> None:
    source, program = tmp_path / "tx.bpf.c", tmp_path / "tx.bpf.o"
    source.write_text(TX)
    clang = ["clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu"]
    subprocess.run([*clang, "-c", str(source), "-o", str(program)], check=True)
    build_tool(LocalHost(), "xdpload", str(lab.native_dir))
    xdpload = build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
    lab.dut.put(program, f"{lab.work_dir(lab.dut)}/tx.bpf.o")
    argv = [xdpload, "--object", f"{lab.work_dir(lab.dut)}/tx.bpf.o", "--interface", lab.dut_interface, "--mode", mode]
    process = lab.dut.start(argv, deadline_s=30.0)
    loaded, attached = process.read_line(20.0), process.read_line(20.0)
    process.close_stdin()
    assert process.wait(10.0).ok
    assert '"jit":true' in loaded
    assert f'"mode_obtained":"{mode}"' in attached


MODULE = b"""
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
static int show(struct seq_file *file, void *data) { seq_puts(file, "a module runs\\n"); return 0; }
static int __init enter(void) { return proc_create_single("xdplab_test", 0444, NULL, show) ? 0 : -ENOMEM; }
static void __exit leave(void) { remove_proc_entry("xdplab_test", NULL); }
module_init(enter);
module_exit(leave);
MODULE_LICENSE("Dual MIT/GPL");
"""


def test_a_module_built_outside_is_loaded_and_taken_out(lab: VmLab) -> None:
    tree = headers.tree("6.1")
    module = modules.build(tree, "xdplab_test", {"xdplab_test.c": MODULE})
    assert tree.release == lab.guest.run(["uname", "-r"]).text.strip()
    lab.guest.put(module, "/tmp/xdplab_test.ko")
    lab.guest.run(["insmod", "/tmp/xdplab_test.ko"])
    assert lab.guest.get("/proc/xdplab_test") == b"a module runs\n"
    lab.guest.run(["rmmod", "xdplab_test"])
    assert not lab.guest.run(["test", "-e", "/proc/xdplab_test"], check=False).ok


@pytest.mark.thorough
def test_the_doctor_tries_what_studies_use(lab: VmLab) -> None:
    rows = {row.check: row for row in rows_of(CHECKS, CheckedHost(lab.guest, "guest"), Subject.GUEST)}
    assert [check for check, row in rows.items() if row.verdict != "ok"] == []
    assert {"interpreter or JIT", "function_graph", "kprobes", "module test_bpf", "module pktgen", "BTF"} <= set(rows)
    assert lab.guest.get("/proc/sys/net/core/bpf_jit_enable").strip() == b"1"
    assert lab.guest.get("/sys/kernel/tracing/current_tracer").strip() == b"nop"
    assert lab.guest.get("/sys/kernel/tracing/kprobe_events") == b""


def test_one_run_at_a_time_holds_the_lab(lab: VmLab) -> None:
    with lab.lock("the first"), pytest.raises(LabError, match=r"the first.*vm:KERNEL"), lab.lock("the second"):
        pass


def refusal() -> str:
    try:
        labs.open_lab(NAME)
    except LabError as error:
        return str(error)
    return "none"


def test_a_panic_has_the_kernels_message(kernel: kernels.Kernel, lab: VmLab) -> None:
    guest = qemu_of(lab)
    lab.guest.start(["sh", "-c", "echo c >/proc/sysrq-trigger"], deadline_s=5.0)
    assert until(lambda: not runs(guest), 20.0)
    assert until(lambda: "ended by itself: Kernel panic - not syncing: sysrq" in refusal()), "its keeper notices"
    assert "Kernel panic" in KEEPERS.console("6.1:functional").read_text(errors="replace")


USE = f"""
import sys, time
from xdplab import labs
with labs.use_lab({NAME!r}):
    print("up", flush=True)
    time.sleep(60)
"""


def test_a_killed_owner_leaves_nothing(kernel: kernels.Kernel, lab: VmLab) -> None:
    """After the panic the name is free: a process that uses the lab is killed, and then nothing of the lab runs."""
    with child([sys.executable, "-c", USE], says="up"):
        (row,) = [row for row in labs.status() if row["lab"] == NAME]
        guest = qemu_of(labs.open_lab(NAME))
    assert until(lambda: not runs(guest) and not runs(row["pid"]), 5.0)
    assert not KEEPERS.is_up(control.owner(), "6.1:functional")


# Without a guest


def test_a_boot_module_loses_its_signature_and_nothing_else() -> None:
    module, signature = b"\x7fELF and the rest", b"PKCS#7" * 60
    described = bytes([0, 0, 2, 0, 0, 0, 0, 0]) + len(signature).to_bytes(4, "big")  # struct module_signature
    assert initramfs.unsigned(module + signature + described + b"~Module signature appended~\n") == module
    assert initramfs.unsigned(module) == module


def test_a_full_disk_is_told_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000))
    with pytest.raises(LabError, match=r"kernel 6\.1: .* has 5 MB left, and 1000 are needed \(make room"):
        kernels.fetch("6.1")


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(LabError, match=r"it cannot be made: .*No space left"):
        cache.make(tmp_path / "it", fill, what="it", space_mb=0)
    assert not list(tmp_path.iterdir())


def test_a_guest_that_hangs_is_ended_and_its_console_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(labs.__file__).parent))  # where the keeper's script finds it
    keeper_module = importlib.import_module("guests.keeper")
    monkeypatch.setattr(keeper_module, "SILENT_S", 0.3)
    keeper = keeper_module.GuestKeeper({"socket": "never", "uid": 0, "lease": False, "ping_s": 0.05})
    keeper.pulse, silent = socket.socketpair()
    with silent, subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as process:
        keeper.console = keeper_module.Console(process.stdout.fileno(), tmp_path / "console")
        keeper.watch(types.SimpleNamespace(process=process))
        assert process.wait(2.0) == -signal.SIGKILL
        assert silent.recv(64).startswith(b"?\n?\n")
    assert "the guest hangs: no sign of life" in (tmp_path / "console").read_text()


@pytest.mark.parametrize("name", ["vm:warp-9", "vm:6", "vm:../6.1"])
def test_a_name_that_is_no_kernels_is_refused(name: str) -> None:
    if shutil.which(qemu.QEMU) is None:
        pytest.skip("no QEMU here")
    with pytest.raises(LabError, match="not a kernel's name"):
        labs.up(name)


@pytest.mark.parametrize("name", ["6.1@arm64", "6.1@riscv64", "6.12@vax", "6.1@amd64", "6.1@"])
def test_a_labs_architecture_cannot_be_chosen_and_the_refusal_says_so(name: str) -> None:
    """The error `'6.1@arm64' is not a kernel's name` made users look for another spelling."""
    with pytest.raises(LabError, match=rf"kernel {name}: labs are amd64 only") as refused:
        kernels.require_name(name)
    assert refused.value.remedy == f"write {name.partition('@')[0]}"


def test_a_changed_kernel_is_not_booted(
    kernel: kernels.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "xdplab" / "kernels" / kernel.folder.name
    copy.mkdir(parents=True)
    for name in (*kernel.sha256, "kernel.json"):
        shutil.copyfile(kernel.file(name), copy / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.kernel("6.1")
    with (copy / "vmlinux").open("r+b") as file:
        file.seek(4096)
        file.write(b"changed")
    with pytest.raises(LabError, match=r"vmlinux is not what was fetched.*--again"):
        kernels.kernel("6.1")


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "path_of", lambda tool: None)
    with pytest.raises(LabError, match=r"qemu-system-x86.*apt install"):
        qemu.require_tools()
