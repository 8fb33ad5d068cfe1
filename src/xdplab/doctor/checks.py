"""What a lab's hosts can do and what is missing, one row each, with the remedy. Features are tried where possible."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from xdplab.doctor.packages import Need, distribution, needs
from xdplab.doctor.versions import tried, untried
from xdplab.errors import HostError, LabError
from xdplab.formats.procstat import FAST_CLOCKS
from xdplab.hosts import Host, LocalHost
from xdplab.labs import cache
from xdplab.labs.base import Lab, arrangement_for

Verdict = Literal["ok", "warn", "missing"]

OLDEST_CLANG = 14
KERNELS = {(5, 9): "bpf_link for XDP", (5, 18): "BPF live frames"}
DISK_GIB = 1.0
"""Free space a run of the default plan needs, with a margin."""

_PROBE = Path(__file__).with_name("probe.py")
_ENV = ("env", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


@dataclass(frozen=True)
class Row:
    """One check. ``found`` is the result; ``remedy`` is null if nothing needs to be done."""

    host: str
    check: str
    found: str
    verdict: Verdict
    remedy: str | None = None


_ORDER: dict[Verdict, int] = {"missing": 0, "warn": 1, "ok": 2}


def problems_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in the order of their urgency."""
    return sorted(rows, key=lambda row: _ORDER[row.verdict])


class CheckedHost:
    """One host, with facts that several checks need."""

    def __init__(self, host: Host, name: str, interface: str | None = None) -> None:
        self.host, self.name, self.interface = host, name, interface

    def row(self, check: str, found: str, verdict: Verdict = "ok", remedy: str | None = None) -> Row:
        return Row(self.name, check, found, verdict, None if verdict == "ok" else remedy)

    def read(self, path: str) -> str | None:
        try:
            return self.host.get(path).decode(errors="replace").strip()
        except HostError:
            return None

    def output(self, *argv: str) -> str | None:
        """Return the output of a command, or None if it fails."""
        result = self.host.run([*_ENV, *argv], check=False, deadline_s=10)
        return result.text.strip() if result.ok else None

    @cached_property
    def distribution(self) -> str | None:
        return distribution(self.read("/etc/os-release") or "")

    @cached_property
    def cpus(self) -> int:
        return max(number_in(self.output("nproc")), 1)

    @cached_property
    def probes(self) -> dict[str, dict[str, Any]]:
        """The results of probe.py, by probe; empty if the host has no python3."""
        return self._tried(*([self.interface] if self.interface else []), deadline_s=20)

    @cached_property
    def kernel_probes(self) -> dict[str, dict[str, Any]]:
        """The results of probe.py for a guest's kernel. An emulated guest took 64 s on a busy machine."""
        return self._tried("--kernel", deadline_s=180)

    def _tried(self, *text: str, deadline_s: float) -> dict[str, dict[str, Any]]:
        argv = [*_ENV, "python3", "-I", "-", *text]
        result = self.host.run(argv, stdin=_PROBE.read_bytes(), check=False, deadline_s=deadline_s)
        answers = [json.loads(line) for line in result.text.splitlines()]
        return {answer["probe"]: answer for answer in answers}


def number_in(text: str | None) -> int:
    """Return the number that a command or a file told; 0 if it told none."""
    return int(text) if text and text.isdecimal() else 0


def kernel(host: CheckedHost) -> Row:
    release = host.output("uname", "-r") or "?"
    match = re.match(r"(\d+)\.(\d+)", release)
    version = tuple(map(int, match.groups())) if match else (0, 0)
    lacking = [f"{what} needs {'.'.join(map(str, since))}" for since, what in KERNELS.items() if version < since]
    verdict: Verdict = "ok" if not lacking else "missing" if version < min(KERNELS) else "warn"
    return host.row("kernel", release, verdict, f"a newer kernel: {', '.join(lacking)}")


def btf(host: CheckedHost) -> Row:
    readable = host.output("test", "-r", "/sys/kernel/btf/vmlinux") is not None
    remedy = "a kernel with CONFIG_DEBUG_INFO_BTF (only programs that read kernel structures need it)"
    return host.row("BTF", "yes" if readable else "no", "ok" if readable else "warn", remedy)


def lockdown(host: CheckedHost) -> Row:
    """The kernel's lockdown, which restricts even root; unknown does not mean none."""
    state = host.read("/sys/kernel/security/lockdown")
    tried = host.probes.get("lockdown")
    if state is None and tried is not None and tried["ok"]:
        state = str(tried["found"])
    if state is None:
        why = "python3 is missing here" if tried is None else tried["found"]
        remedy = "as root: `mount -t securityfs none /sys/kernel/security`, then ask again"
        return host.row("lockdown", f"unknown: {why}", "warn", remedy)
    mode = (re.findall(r"\[(\w+)\]", state) or ["none"])[0]
    remedy = "boot with lockdown=integrity or none: confidentiality forbids what BPF and perf read"
    return host.row("lockdown", mode, "warn" if mode == "confidentiality" else "ok", remedy)


def compiler(host: CheckedHost) -> Row:
    text = host.output("clang", "--version") or ""
    match = re.search(r"version (\d+)(\.[\d.]+)?", text)
    if not match:
        return host.row("clang version", "none", "missing", _install(host, "clang"))
    if int(match[1]) < OLDEST_CLANG:
        return host.row("clang version", match[0][8:], "missing", f"clang {OLDEST_CLANG} or newer")
    return _version(host, "clang", match[0][8:])


def libraries(host: CheckedHost) -> Iterator[Row]:
    """The libraries' versions, from pkg-config's files; `tools` has a row for whether they are installed."""
    folders = "/usr/lib/*/pkgconfig /usr/lib64/pkgconfig /usr/lib/pkgconfig /usr/local/lib/pkgconfig"
    script = f"for name; do grep -hs ^Version: $(ls -d {folders} 2>/dev/null | sed s,$,/$name.pc,); done; true"
    versions = (host.output("sh", "-c", script, "sh", "libbpf", "libxdp") or "").replace("Version: ", "").split()
    value = "libbpf {}, libxdp {}".format(*versions) if len(versions) == 2 else "versions not told"
    yield host.row("libraries", value)
    if len(versions) == 2:
        yield _version(host, "libbpf", versions[0])


# tool, the command that prints its version, and a pattern for it
_TELL_VERSION = (
    ("QEMU", ("qemu-system-x86_64", "--version"), r"version (\d[\d.]*)"),
    ("sysstat", ("sar", "-V"), r"version (\d[\d.]*)"),
    ("perf", ("perf", "--version"), r"version (\d[\d.]*)"),
    ("Python", ("python3", "--version"), r"Python (\d[\d.]*)"),
)


def versions(host: CheckedHost) -> Iterator[Row]:
    """The tools whose versions have made a difference, if installed; `tools` has a row for a missing one."""
    for tool, argv, pattern in _TELL_VERSION:
        match = re.search(pattern, host.output(*argv) or "")
        if match:
            yield _version(host, tool, match[1])


def _version(host: CheckedHost, tool: str, version: str) -> Row:
    """Compare a version with those that were tried."""
    remark = untried(tool, version)
    value = f"{version}, {remark}" if remark else version
    remedy = f"`make test` tries it; if something fails with it, use {tool} {tried(tool)[-1].version}"
    return host.row(f"{tool} version", value, "warn" if remark else "ok", remedy)


def perf_events(host: CheckedHost) -> Row:
    """An event is counted if one kind of CPU counts it: kinds of cores have counters of their own."""
    text = host.output("perf", "stat", "--log-fd", "1", "-a", "-x;", "-e", "cycles,instructions", "--", "true")
    lines = [line.split(";") for line in (text or "").splitlines()]
    counts = {name for value, _, name, *_ in (line for line in lines if len(line) > 2) if value[:1].isdigit()}
    counted = all(any(event in name for name in counts) for event in ("cycles", "instructions"))
    remedy = "cycles and caches will be null: a VM needs its hypervisor's virtual PMU, or measure on bare metal"
    state = "counted" if counted else "not supported" if text is not None else "perf stat -a fails"
    return host.row("perf hardware events", state, "ok" if counted else "warn", remedy)


def cpus(host: CheckedHost) -> Row:
    value = f"{host.cpus} CPUs, arrangement {arrangement_for(host.cpus)}"
    remedy = "TG and DUT share cores: loss and latency under load need 4 CPUs or two machines"
    return host.row("CPUs", value, "ok" if host.cpus >= 4 else "warn", remedy)


def governor(host: CheckedHost) -> Row:
    modes = (host.output("sh", "-c", "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor") or "").split()
    verdict: Verdict = "ok" if set(modes) <= {"performance"} else "warn"
    remedy = "`cpupower frequency-set -g performance`, or numbers move with the clock"
    return host.row("CPU governor", ", ".join(sorted(set(modes))) or "not available (a VM)", verdict, remedy)


def real_time_share(host: CheckedHost) -> Row:
    """The cause of pauses of a real-time sender: the kernel reserves a part of each period for other tasks."""
    runtime, period = (host.read(f"/proc/sys/kernel/sched_rt_{name}_us") for name in ("runtime", "period"))
    if not runtime or not period or int(runtime) < 0:
        return host.row("real-time throttling", "off" if runtime else "not told by this kernel")
    rest_ms = (int(period) - int(runtime)) / 1e3
    value = f"a real-time task stands still for {rest_ms:g} of {int(period) / 1e3:g} ms{_fair_server(host)}"
    remedy = (
        "`trial: {throttling: off}` in the plan (on servers `sysctl kernel.sched_rt_runtime_us=-1`): windows of a "
        f"second and more show pauses of {rest_ms:g} ms and rates up to {int(period) / int(runtime) - 1:.0%} too low"
    )
    return host.row("real-time throttling", value, "warn", remedy)


def _fair_server(host: CheckedHost) -> str:
    """Since 6.12 a server of the deadline class does the same, if the kernel shows it."""
    folder = "/sys/kernel/debug/sched/fair_server/cpu0"
    runtime, period = (host.read(f"{folder}/{name}") for name in ("runtime", "period"))
    return f" (fair server: {int(runtime) / 1e6:g} of {int(period) / 1e6:g} ms)" if runtime and period else ""


def clock_source(host: CheckedHost) -> Row:
    """Time stamps are read from it, one or two per frame."""
    folder = "/sys/devices/system/clocksource/clocksource0"
    source = host.read(f"{folder}/current_clocksource")
    remedy = (
        f"each time stamp takes long to read: write a faster one of {folder}/available_clocksource into "
        "current_clocksource (x86: tsc; a guest's hypervisor must provide a stable one)"
    )
    good = source is None or source in FAST_CLOCKS
    return host.row("clock source", source or "not told by this kernel", "ok" if good else "warn", remedy)


def memory_lock(host: CheckedHost) -> Row:
    limits = host.read("/proc/self/limits") or ""
    match = re.search(r"Max locked memory\s+(\S+)", limits)
    free = "unlimited" if match is None or match[1] == "unlimited" else f"{int(match[1]) >> 20} MiB"
    capable = host.output("id", "-u") == "0"
    return host.row("memory lock", f"{free}, root exempt" if capable else free)


def disk_space(host: CheckedHost, path: str = "/tmp") -> Row:
    text = (host.output("df", "-Pk", path) or "").splitlines()
    gib = next((number_in(line[3]) / (1 << 20) for line in map(str.split, text[1:]) if len(line) > 3), 0.0)
    verdict: Verdict = "ok" if gib >= DISK_GIB else "warn"
    return host.row(f"disk space in {path}", f"{gib:.1f} GiB free", verdict, f"a run may need {DISK_GIB:g} GiB")


def cache_size() -> Row:
    """The disk space of guests' kernels, headers and modules on this machine."""
    taken, limit = sum(entry.size for entry in cache.entries()), cache.limit_bytes()
    value = f"{taken / 1e6:,.0f} MB of guests' kernels and modules in {cache.cache_dir()}, limit {limit / 1e6:,.0f} MB"
    verdict: Verdict = "ok" if taken <= limit else "warn"
    remedy = f"`xdplab kernels clean`, or another limit: {cache.LIMIT_NAME}"
    return Row("here", "cache", value, verdict, None if verdict == "ok" else remedy)


def tools(host: CheckedHost) -> Iterator[Row]:
    for need in needs("run"):
        path = _path_of(host, need)
        verdict: Verdict = "missing" if path is None else "ok"
        remedy = f"{need.remedy(host.distribution)} ({need.why})"
        yield host.row(need.name, path or "no", verdict, remedy)


def _path_of(host: CheckedHost, need: Need) -> str | None:
    """Return the path that meets a need, or None."""
    look = {
        "command": ("sh", "-c", 'command -v -- "$1"', "sh", need.name),
        "header": ("find", f"/usr/include/{need.name}"),
        "file": ("find", need.name),
        "python": ("python3", "-c", f"import ensurepip, {need.name}; print({need.name}.__file__)"),
    }
    return host.output(*look[need.look])


def _install(host: CheckedHost, name: str) -> str:
    (need,) = [need for need in needs() if need.name == name]
    return need.remedy(host.distribution)


CHECKS: tuple[Callable[[CheckedHost], Row], ...] = (
    kernel,
    btf,
    lockdown,
    compiler,
    perf_events,
    cpus,
    governor,
    real_time_share,
    clock_source,
    memory_lock,
    disk_space,
)

# probe, its title, the meaning of its failure, the remedy
HOST_PROBES: tuple[tuple[str, str, Verdict, str], ...] = (
    ("jit", "BPF JIT", "missing", "`sysctl net.core.bpf_jit_enable=1`: interpreted programs are not worth measuring"),
    ("live_frames", "live frames (xdpgen's engine live)", "warn", "kernel 5.18 or newer; until then use engine afxdp"),
    (
        "tracing",
        "tracing programs (fentry, fexit)",
        "warn",
        "no measurement needs them; lockdown or a security module may forbid them",
    ),
    ("real_time", "real-time scheduling", "warn", "measure as root with CAP_SYS_NICE: without it ksoftirqd takes over"),
)
DEVICE_PROBES: tuple[tuple[str, str, Verdict, str], ...] = (
    ("native", "XDP native", "warn", "a driver with XDP; native points will be `unsupported`"),
    ("generic", "XDP generic", "missing", "a kernel with CONFIG_BPF_SYSCALL and generic XDP (4.12)"),
    ("offload", "XDP offload", "warn", "a NIC that offloads XDP; offload points will be `unsupported`"),
    ("af_xdp", "AF_XDP copy", "warn", "a kernel with CONFIG_XDP_SOCKETS; af_xdp points will be `unsupported`"),
    ("zerocopy", "AF_XDP zero-copy", "warn", "a driver with zero-copy; such points will be `unsupported`"),
)


KERNEL_PROBES: tuple[tuple[str, str, Verdict, str], ...] = (
    ("jit_switch", "interpreter or JIT", "warn", "studies of both need a guest vm:KERNEL of Debian's"),
    ("function_graph", "function_graph", "warn", "the parts of loading are not timed here: use a guest vm:KERNEL"),
    ("kprobe", "kprobes", "warn", "a kernel with CONFIG_KPROBE_EVENTS"),
    ("test_bpf", "module test_bpf", "warn", "study jit's table of the kernel's own tests needs a guest vm:KERNEL"),
    ("pktgen", "module pktgen", "warn", "not used by xdplab's own generators"),
)


def examine_kernel(host: CheckedHost) -> list[Row]:
    """Return the rows of a guest's kernel, as the studies use it; each is tried."""
    return [kernel(host), btf(host), *_probed(host, KERNEL_PROBES, answers=host.kernel_probes)]


def understood(check: Callable[[CheckedHost], Row], host: CheckedHost) -> Row:
    """Return the row of a check; what the host said and the check does not understand costs this row alone."""
    try:
        return check(host)
    except (ValueError, LookupError) as error:
        remedy = "look at what the host's tool prints; another version may print it otherwise"
        return host.row(check.__name__.replace("_", " "), f"not understood: {error}", "warn", remedy)


def examine_machine(host: CheckedHost) -> list[Row]:
    """Return the rows of a machine, without touching a network interface."""
    return [
        *(understood(check, host) for check in CHECKS),
        *_probed(host, HOST_PROBES),
        *libraries(host),
        *versions(host),
        *tools(host),
    ]


def examine_interface(host: CheckedHost) -> list[Row]:
    """Return the rows of the host's interface: each mode is attached for a moment."""
    return _probed(host, DEVICE_PROBES, f" on {host.interface}")


def _probed(
    host: CheckedHost,
    table: tuple[tuple[str, str, Verdict, str], ...],
    where: str = "",
    answers: dict[str, dict[str, Any]] | None = None,
) -> list[Row]:
    rows = []
    for probe, name, failure, remedy in table:
        answer = (host.probes if answers is None else answers).get(probe)
        if answer is None:
            rows.append(host.row(name + where, "not tried", "warn", "install python3 on this host: it tries it"))
        else:
            verdict: Verdict = "ok" if answer["ok"] else failure
            rows.append(host.row(name + where, answer["found"], verdict, remedy))
    return rows


def examine(lab: Lab) -> list[Row]:
    """Return the rows of a lab that is up: of each machine, of each end of its links, and of the results' folder.

    During a run in the lab its interfaces are not touched, and a row says so.
    """
    rows = [disk_space(CheckedHost(LocalHost(), "here"), str(Path.cwd())), cache_size()]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lab.lock("xdplab doctor"))
            ends: tuple[str | None, str | None] = (lab.dut_interface, lab.tg_interface)
            second = second_ends(lab)
        except LabError as error:
            ends, second = (None, None), []
            rows.append(Row("lab", "XDP modes", "not tried", "warn", str(error)))
        hosts = [CheckedHost(lab.dut, "dut", ends[0]), CheckedHost(lab.tg, "tg", ends[1])]
        machines = hosts if lab.arrangement == "hosts" else hosts[:1]
        for host in hosts:
            rows += examine_machine(host) if host in machines else []
            rows += examine_interface(host) if host.interface else []
        rows += [row for host in second for row in examine_interface(host)]
    return rows


def second_ends(lab: Lab) -> list[CheckedHost]:
    """Return the ends of the second link that the lab has now: the DUT's and the TG's, or none."""
    ends = lab.second_link(make=False)
    if ends is None:
        return []
    return [CheckedHost(lab.dut, "dut", ends.dut_interface), CheckedHost(lab.tg, "tg", ends.tg_interface)]


def examine_here(why_no_lab: str) -> list[Row]:
    """Return the rows of this machine if no lab is possible, with the given reason."""
    host = CheckedHost(LocalHost(), "here")
    rows = examine_machine(host)
    if os.geteuid() != 0:
        privileged = {name for _, name, _, _ in HOST_PROBES}
        rows = [row for row in rows if row.check not in privileged]  # they mean nothing for an ordinary user
    sudo = "yes" if shutil.which("sudo") else "no"
    return [Row("here", "a lab", f"none (sudo: {sudo})", "missing", why_no_lab), cache_size(), *rows]
