"""How a guest runs: the three ways, and QEMU's argument vector for each.

How a guest runs, and with which CPU model: found by a test boot with the installed QEMU.

The test is a guest that boots to its first process. It is done once per boot of this machine, version of QEMU and
kernel, and stored: KVM may exist and not work, and a CPU model that works in one QEMU may hang a kernel in the next.
That no model boots is stored for `RETRY_S` only: the machine may have been too busy.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import LabError, MissingToolError
from xdplab.labs import tools
from xdplab.labs.base import Clock
from xdplab.labs.cache import cache_dir
from xdplab.labs.netns import host as netns_host
from xdplab.labs.vm import initramfs, link, saved
from xdplab.labs.vm.kernels import Kernel
from xdplab.lazy import lazily

with lazily():
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats, on no disk: ``private`` as a file's text, ``public`` as one line."""

    private: str
    public: str


def key_pair() -> KeyPair:
    key, encoding = ed25519.Ed25519PrivateKey.generate(), serialization.Encoding
    private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())


QEMU = "qemu-system-x86_64"
MEMORY_MB = 2048  # allocated on demand; the guest's /tmp may grow to half of it
MOST_CPUS = 4
PORTS = {"guest": 2200, "dut": 2201, "tg": 2202}
"""The hosts of a guest, and the port inside at which each answers."""

NO_MITIGATIONS, MITIGATIONS = "mitigations=off", "mitigations=auto"
COMMAND_LINE = (
    f"console=ttyS0 panic=-1 oops=panic quiet {NO_MITIGATIONS} nokaslr no_timer_check tsc=reliable "
    "random.trust_cpu=on rcupdate.rcu_expedited=1 cryptomgr.notests nohpet noreplace-smp"
)
_SHARE = "trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144"
_BUILT_SHARE = "trans=virtio,version=9p2000.L,ro,cache=none,msize=262144"
_HERE = Path(__file__).parent
_ACCOUNT_MODES = {"/etc/passwd": "644", "/etc/shadow": "640"}
_SSHD_LISTENS = f"""\
Port {PORTS["guest"]}
ListenAddress {link.ADDRESS}
PidFile {netns_host.RUN}/pid
MaxStartups 256
"""


@dataclass(frozen=True)
class Acceleration:
    """One way to run a guest; ``says`` describes its numbers in every label."""

    name: str
    says: str
    clock: Clock | None
    accelerator: tuple[str, ...]
    models: tuple[str, ...]
    """Its possible CPU models, the preferred one first: QEMU's versions differ in which of them boots a kernel."""
    first_process_s: float
    """Seconds that a guest may take to its first process when a CPU model is tried; usually one, emulated two."""
    cpus: float
    """The share of this machine's CPUs the guest gets, up to `MOST_CPUS`; 0: one."""
    ping_s: float
    """Seconds between two beats; 0 if a beat would be counted as the guest's work."""
    restored: bool = False
    """Whether it may resume from a saved state. Not if anything is measured: repetitions that begin in one state would
    share the random outcomes of one boot, such as memory addresses."""
    clock_options: tuple[str, ...] = ()
    """QEMU's options that change the guest's clock."""
    clock_words: str = ""
    """Words of the kernel's command line that choose its clock."""


WAYS: dict[str, Acceleration] = {
    way.name: way
    for way in (
        Acceleration("kvm", "times under KVM", "time", ("-accel", "kvm"), ("host",), 6.0, 1.0, 5.0),
        Acceleration(
            "count",
            "times are instructions",
            "instructions",
            ("-accel", "tcg,thread=single"),
            ("max", "max,-erms,-fsrm"),
            60.0,
            0.0,
            0.0,
            # sleep=on: an idle guest waits in real time; otherwise its deadlines would pass while it waits for the
            # outside.
            clock_options=("-icount", "shift=0,sleep=on"),
            # Without its APIC's timer a kernel need not calibrate it: 109 million instructions of the boot, which took
            # this machine as long as all others. Ticks come from the PIT; counts of calls and loads are the same (the
            # medians of 87 benchmarks, to the instruction).
            clock_words="noapictimer",
        ),
        # erms: emulated `rep stosb` works byte by byte, and a kernel that sees the flag clears all its pages with it.
        # fsrm: QEMU 10 has it, and kernel 6.1 hangs silently on a CPU that has fsrm without erms.
        Acceleration(
            "functional",
            "no times",
            None,
            ("-accel", "tcg,thread=multi"),
            ("max,-erms,-fsrm", "max"),
            60.0,
            0.5,
            5.0,
            restored=True,
            # At boot the kernel compares the TSC, which is this machine's own, with an emulated timer. On a busy
            # machine it measured 312 MHz for 2592; each later guest, restored from that boot, then ran 7.3 times too
            # fast, and its deadlines passed early. QEMU emulates the PM timer from this machine's time.
            clock_words="clocksource=acpi_pm",
        ),
    )
}

# The keeper fills these in: it makes the files that they name.
CONTROL, MONITOR, INITRD = "{control}", "{monitor}", "{initrd}"


def require_tools() -> dict[str, str]:
    """Return the paths of QEMU and of a static busybox. Raises LabError naming the packages that are missing."""
    here = {QEMU: "qemu-system-x86", "busybox": "busybox-static", "setpriv": "util-linux"}
    paths = tools.require_tools("a guest", here | _INSIDE)
    if b"/ld-linux" in Path(paths["busybox"]).read_bytes():
        raise MissingToolError("a guest needs a static busybox", remedy="apt install busybox-static")
    return paths


_INSIDE = {"modprobe": "kmod", "ip": "iproute2", "ethtool": "ethtool", "sshd": "openssh-server"}
"""The programs that the guest uses from this machine's root, and their packages."""


@dataclass(frozen=True)
class GuestMachine:
    """A guest's machine: ``cpus`` CPUs, of the kind that QEMU calls ``model``.

    ``mitigated``: the kernel uses its default mitigations of CPU faults.
    """

    model: str
    cpus: int
    mitigated: bool = False


def argv(way: Acceleration, kernel: Kernel, tools: dict[str, str], machine: GuestMachine, native: Path) -> list[str]:
    """Return QEMU's argument vector, with `CONTROL`, `MONITOR` and `INITRD` to be filled in.

    ``native`` is the folder of compiled tools. The guest can read it and this machine's root, but write to neither: the
    machine might run what a guest wrote.
    """
    kernel_words = COMMAND_LINE.replace(NO_MITIGATIONS, MITIGATIONS) if machine.mitigated else COMMAND_LINE
    kernel_words = f"{kernel_words} {way.clock_words}".rstrip()
    forwards = ",".join(f"hostfwd=tcp:127.0.0.1:0-:{port}" for port in PORTS.values())
    root = "local,id=host,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    built = f"local,id=native,path={native},mount_tag=native,security_model=none,readonly=on,multidevs=remap"
    return [
        *(tools[QEMU], "-M", "q35", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *(*way.accelerator, *way.clock_options, "-cpu", machine.model, "-smp", str(machine.cpus), "-m", str(MEMORY_MB)),
        *("-kernel", str(kernel.file("vmlinux")), "-initrd", INITRD, "-append", kernel_words),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,fd={MONITOR}", "-mon", "chardev=monitor,mode=control"),
        *("-device", "virtio-serial-pci", "-chardev", f"socket,id=control,fd={CONTROL}"),
        *("-device", "virtserialport,chardev=control,name=xdplab"),
        *("-netdev", f"user,id=door,restrict=on,ipv6=off,{forwards}"),
        *("-device", "virtio-net-pci,netdev=door,romfile="),
        *(("-device", "vmgenid,guid=auto") if way.restored else ()),  # tells a restored guest that it is a new one
        *("-virtfs", root, "-virtfs", built),
    ]


def first_root(kernel: Kernel, tools: dict[str, str]) -> bytes:
    """Return the first root of all guests of that kernel: it runs up to the point where they ask for their identity."""
    init = (_HERE / "init.sh").read_bytes()
    return kernel.file("boot.cpio").read_bytes() + initramfs.shell(Path(tools["busybox"]), init)


def state(way: Acceleration, kernel: Kernel, argv: list[str], first_root: bytes) -> Path | None:
    """Return the file for the saved state of such a guest; None if it must not be saved."""
    if not way.restored:
        return None
    return cache_dir() / "vm" / "states" / saved.name(argv, kernel.sha256["vmlinux"], first_root)


def files(kernel: Kernel, tools: dict[str, str], host_key: KeyPair, client: KeyPair, script: str) -> bytes:
    """Return the script that makes a guest a host with the key ``host_key`` that accepts ``client``.

    ``script`` makes the link in the guest on request.
    """
    settings = {
        "RELEASE": kernel.release,
        "MODULES": str(
            (kernel.file("lib/modules") / kernel.release).resolve()
        ),  # the checkout's symbolic links do not resolve in the guest
        "SHARE": _SHARE,
        "BUILT": netns_host.BUILT,
        "BUILT_SHARE": _BUILT_SHARE,
        "CODE": "\n".join(_code()),
        "MOUNTS": _lines((kind, target, "yes" if needed else "no") for kind, target, needed in netns_host.MOUNTS),
        "QUIET": _lines(netns_host.QUIET.items()),
        "ACCOUNTS": _lines((path, _ACCOUNT_MODES[path], line) for path, line in netns_host.ROOT_ACCOUNT.items()),
        "WORK_DIR": netns_host.WORK_DIR,
        "INTERFACE": link.INTERFACE,
        "ADDRESS": link.ADDRESS,
        "SSHD": tools["sshd"],
        "PYTHON": sys.executable,
        "LINK": str(_HERE / script),
        "PORTS": json.dumps(PORTS),
    }
    return initramfs.secret(
        {
            "root.sh": (_HERE / "root.sh").read_bytes(),
            "answer.sh": (_HERE / "answer.sh").read_bytes(),
            "settings": "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()).encode(),
            "sshd/sshd_config": (netns_host.sshd_config() + _SSHD_LISTENS).encode(),
            "sshd/host_key": host_key.private.encode(),
            "sshd/authorized_keys": client.public.encode(),
        }
    )


def _lines(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(map(" ".join, rows))


def _code() -> list[str]:
    """Return the Python that runs the scripts in a guest, and their folder."""
    return sorted({str(path) for path in (_HERE.parent, Path(sys.executable).parents[1], Path(sys.base_prefix))})


def cpus(way: Acceleration) -> int:
    """Return how many CPUs a guest run this way gets."""
    return max(1, min(int(way.cpus * len(os.sched_getaffinity(0))), MOST_CPUS))


DEVICE = Path("/dev/kvm")
RETRY_S = 600.0

_MARK = b"xdplab: a process runs"
_INIT = b"#!/bin/busybox sh\necho '" + _MARK + b"'\nexec /bin/busybox reboot -f\n"


@dataclass(frozen=True)
class Choice:
    """How a guest will run: the way, QEMU's name of its CPU model, and the reason for the way."""

    way: Acceleration
    cpu: str
    why: str


def choose(way: str, kernel: Kernel, tools: dict[str, str]) -> Choice:
    """Return the requested way (default: KVM if it works, else functional) and the CPU model with which a guest boots.

    Raises MissingToolError if KVM is requested but does not work, LabError for an unknown way, or a kernel that boots
    with no CPU model.
    """
    if way and way not in WAYS:
        raise LabError(f"a guest cannot be run {way!r}", remedy=f"the ways are {', '.join(WAYS)}")
    if way in ("count", "functional"):
        return _emulated(WAYS[way], "asked for", kernel, tools)
    cpu, refused = kvm(kernel, tools)
    if cpu is not None:
        return Choice(WAYS["kvm"], cpu, "asked for" if way else "KVM works here")
    if way:
        raise MissingToolError(
            f"KVM does not work here: {refused}", remedy="leave kvm out of the lab's name, or write functional or count"
        )
    return _emulated(WAYS["functional"], f"KVM does not work here: {refused}", kernel, tools)


def kvm(kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str]:
    """Return the CPU with which a guest of that kernel boots under KVM; None, and why, if it does not."""
    if not DEVICE.exists():
        return None, f"there is no {DEVICE}"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return None, f"{DEVICE} is not accessible to you (group kvm)"
    return _remembered(WAYS["kvm"], kernel, tools)[:2]


def _emulated(way: Acceleration, why: str, kernel: Kernel, tools: dict[str, str]) -> Choice:
    cpu, refused, memory = _remembered(way, kernel, tools)
    if cpu is None:
        raise LabError(
            f"no guest of kernel {kernel.name} boots with {_version(tools)}: {refused}",
            remedy=f"another kernel or QEMU may do; remove {memory} to try this one again",
        )
    return Choice(way, cpu, why)


def _remembered(way: Acceleration, kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str, Path]:
    """Return the CPU model that boots (None: none does), why each one before it does not, and the file that stores
    both."""
    memory = cache_dir() / "vm" / "tried" / f"{kernel.release}-{way.name}.json"
    current = {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "qemu": _version(tools),
        "kernel": kernel.sha256["vmlinux"],
        "models": list(way.models),
    }
    try:
        remembered = json.loads(memory.read_text())
    except (OSError, ValueError):
        remembered = {}
    failed_long_ago = remembered.get("cpu") is None and not 0 <= time.time() - remembered.get("tried_at", 0) < RETRY_S
    if {name: remembered.get(name) for name in current} != current or failed_long_ago:
        cpu, refused = _first_that_boots(way, kernel, tools)
        remembered = current | {"cpu": cpu, "refused": refused, "tried_at": time.time()}
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps(remembered) + "\n")
    return remembered["cpu"], remembered["refused"], memory


def _first_that_boots(way: Acceleration, kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str]:
    refusals: list[str] = []
    for model in way.models:
        refused = _boot(way, model, kernel, tools)
        if refused is None:
            return model, "; ".join(refusals)
        refusals.append(f"-cpu {model}: {refused}")
    return None, "; ".join(refusals)


def _boot(way: Acceleration, model: str, kernel: Kernel, tools: dict[str, str]) -> str | None:
    """Boot to a first process that reports success and ends the guest; return what went wrong."""
    first_root = initramfs.shell(Path(tools["busybox"]), _INIT)
    with os.fdopen(os.memfd_create("xdplab-probe"), "wb") as file:
        file.write(first_root)
        file.flush()
        argv = [
            *(tools[QEMU], "-M", "q35", *way.accelerator, "-cpu", model, "-m", "256", "-nodefaults"),
            *("-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
            *("-kernel", str(kernel.file("vmlinux")), "-initrd", f"/proc/self/fd/{file.fileno()}"),
            *("-append", COMMAND_LINE.replace("quiet ", "")),  # a kernel that hangs should show where
        ]
        try:
            done = subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=way.first_process_s,
                check=False,
                pass_fds=(file.fileno(),),
            )
        except subprocess.TimeoutExpired as error:
            last = _last_line(error.stdout)
            console = f"; its console's last line: {last}" if last else ", and its console said nothing"
            return f"a guest had not started after {way.first_process_s:g} s{console}"
    if _MARK in done.stdout:
        return None
    return _last_line(done.stderr) or _last_line(done.stdout) or "a guest ended without a word"


def _last_line(output: bytes | None) -> str:
    lines = (output or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _version(tools: dict[str, str]) -> str:
    """Return the first line of QEMU's version, which includes its package's version."""
    done = subprocess.run([tools[QEMU], "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{tools[QEMU]} --version`: {done.stderr.strip()[-300:]}", remedy="install it again")
    return done.stdout.splitlines()[0]
