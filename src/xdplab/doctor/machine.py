"""What a lab's hosts can do and what is missing: the table of checks, and which of them a lab needs."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from xdplab.doctor.checks import (
    CheckedHost,
    HostCheck,
    Judgement,
    Need,
    Row,
    Subject,
    Verdict,
    command,
    file,
    itself,
    needs,
    number_in,
    rows_of,
    shell,
    tried,
    untried,
    warned,
)
from xdplab.errors import LabError
from xdplab.formats.proc import FAST_CLOCKS
from xdplab.hosts.local import LocalHost
from xdplab.labs import cache
from xdplab.labs.base import Lab, arrangement_for

OLDEST_CLANG = 14
KERNELS = {(5, 9): "bpf_link for XDP", (5, 18): "BPF live frames"}
DISK_GIB = 1.0
"""Free space a run of the default plan needs, with a margin."""
CLOCK = "/sys/devices/system/clocksource/clocksource0"
FAIR_SERVER = "/sys/kernel/debug/sched/fair_server/cpu0"
MACHINE, ROOT, GUEST, LINK_END = Subject.MACHINE, Subject.ROOT, Subject.GUEST, Subject.LINK_END


def _kernel(release: str | None) -> Judgement:
    match = re.match(r"(\d+)\.(\d+)", release or "")
    version = tuple(map(int, match.groups())) if match else (0, 0)
    lacking = [f"{what} needs {'.'.join(map(str, since))}" for since, what in KERNELS.items() if version < since]
    verdict: Verdict = "ok" if not lacking else "missing" if version < min(KERNELS) else "warn"
    return Judgement(release or "?", verdict, f"a newer kernel: {', '.join(lacking)}")


def _lockdown(host: CheckedHost) -> Judgement:
    """The kernel's lockdown, which restricts even root; unknown does not mean none."""
    state, probed = host.read("/sys/kernel/security/lockdown"), host.probes.get("lockdown")
    if state is None and probed and probed["ok"]:
        state = str(probed["found"])
    if state is None:
        why = "python3 is missing here" if probed is None else probed["found"]
        remedy = "as root: `mount -t securityfs none /sys/kernel/security`, then ask again"
        return Judgement(f"unknown: {why}", "warn", remedy)
    mode = (re.findall(r"\[(\w+)\]", state) or ["none"])[0]
    return warned(mode, mode == "confidentiality")


def _clang(host: CheckedHost) -> Judgement:
    match = re.search(r"version (\d+)(\.[\d.]+)?", host.output("clang", "--version") or "")
    if not match:
        (need,) = [need for need in needs() if need.name == "clang"]
        return Judgement("none", "missing", need.remedy(host.distribution))
    version = match[0].removeprefix("version ")
    if int(match[1]) < OLDEST_CLANG:
        return Judgement(version, "missing", f"clang {OLDEST_CLANG} or newer")
    return _compared("clang", version)


def _compared(tool: str, version: str) -> Judgement:
    """Compare a version with those that were tried."""
    remark = untried(tool, version)
    remedy = f"`make test` tries it; if something fails with it, use {tool} {tried(tool)[-1]}"
    return Judgement(f"{version}, {remark}", "warn", remedy) if remark else Judgement(version)


def _version(tool: str, *argv: str) -> HostCheck[str | None]:
    """A tool whose versions have made a difference, if installed; another row says that it is missing."""

    def judge(text: str | None) -> Judgement | None:
        match = re.search(r"(?:version|Python) (\d[\d.]*)", text or "")
        return _compared(tool, match[1]) if match else None

    return HostCheck(f"{tool} version", MACHINE, command(*argv), judge)


def _libraries(host: CheckedHost) -> list[str]:
    """The versions of libbpf and libxdp, from pkg-config's files; none if one of them is not told."""
    folders = "/usr/lib/*/pkgconfig /usr/lib64/pkgconfig /usr/lib/pkgconfig /usr/local/lib/pkgconfig"
    script = f"for name; do grep -hs ^Version: $(ls -d {folders} 2>/dev/null | sed s,$,/$name.pc,); done; true"
    text = host.output("sh", "-c", script, "sh", "libbpf", "libxdp") or ""
    versions = text.replace("Version: ", "").split()
    return versions if len(versions) == 2 else []


def _perf_events(text: str | None) -> Judgement:
    """An event is counted if one kind of CPU counts it: kinds of cores have counters of their own."""
    lines = [line.split(";") for line in (text or "").splitlines()]
    counts = {name for value, _, name, *_ in (line for line in lines if len(line) > 2) if value[:1].isdigit()}
    counted = all(any(event in name for name in counts) for event in ("cycles", "instructions"))
    return warned("counted" if counted else "perf stat -a fails" if text is None else "not supported", not counted)


def _cpus(text: str | None) -> Judgement:
    count = max(number_in(text), 1)
    return warned(f"{count} CPUs, arrangement {arrangement_for(count)}", count < 4)


def _governor(text: str) -> Judgement:
    modes = set(text.split())
    return warned(", ".join(sorted(modes)) or "not available (a VM)", not modes <= {"performance"})


def _throttling(host: CheckedHost) -> Judgement:
    """The cause of pauses of a real-time sender: the kernel reserves a part of each period for other tasks.

    Since 6.12 a server of the deadline class does the same, if the kernel shows it.
    """
    runtime, period = (host.read(f"/proc/sys/kernel/sched_rt_{name}_us") for name in ("runtime", "period"))
    if not runtime or not period or int(runtime) < 0:
        return Judgement("off" if runtime else "not told by this kernel")
    rest_ms = (int(period) - int(runtime)) / 1e3
    text = f"a real-time task stands still for {rest_ms:g} of {int(period) / 1e3:g} ms"
    fair_runtime, fair_period = (host.read(f"{FAIR_SERVER}/{name}") for name in ("runtime", "period"))
    if fair_runtime and fair_period:
        text += f" (fair server: {int(fair_runtime) / 1e6:g} of {int(fair_period) / 1e6:g} ms)"
    remedy = (
        "`trial: {throttling: off}` in the plan (on servers `sysctl kernel.sched_rt_runtime_us=-1`): windows of a "
        f"second and more show pauses of {rest_ms:g} ms and rates up to {int(period) / int(runtime) - 1:.0%} too low"
    )
    return Judgement(text, "warn", remedy)


def _memory_lock(host: CheckedHost) -> Judgement:
    match = re.search(r"Max locked memory\s+(\S+)", host.read("/proc/self/limits") or "")
    free = "unlimited" if match is None or match[1] == "unlimited" else f"{int(match[1]) >> 20} MiB"
    return Judgement(f"{free}, root exempt" if host.output("id", "-u") == "0" else free)


def disk_space(path: str) -> HostCheck[str | None]:
    def judge(text: str | None) -> Judgement:
        lines = map(str.split, (text or "").splitlines()[1:])
        gib = next((number_in(line[3]) / (1 << 20) for line in lines if len(line) > 3), 0.0)
        return warned(f"{gib:.1f} GiB free", gib < DISK_GIB)

    name, remedy = f"disk space in {path}", f"a run may need {DISK_GIB:g} GiB"
    return HostCheck(name, MACHINE, command("df", "-Pk", path), judge, remedy)


def _cache(_: CheckedHost) -> Judgement:
    """The disk space of guests' kernels, headers and modules."""
    taken, limit = sum(entry.size for entry in cache.entries()), cache.limit_bytes()
    text = f"{taken / 1e6:,.0f} MB of guests' kernels and modules in {cache.cache_dir()}, limit {limit / 1e6:,.0f} MB"
    return warned(text, taken > limit)


def _tool(need: Need) -> HostCheck[CheckedHost]:
    look = {
        "command": ("sh", "-c", 'command -v -- "$1"', "sh", need.name),
        "header": ("find", f"/usr/include/{need.name}"),
        "file": ("find", need.name),
        "python": ("python3", "-c", f"import ensurepip, {need.name}; print({need.name}.__file__)"),
    }

    def judge(host: CheckedHost) -> Judgement:
        path, remedy = host.output(*look[need.look]), f"{need.remedy(host.distribution)} ({need.why})"
        lack: Verdict = "warn" if need.use == "study" else "missing"
        return Judgement("no", lack, remedy) if path is None else Judgement(path)

    return HostCheck(need.name, MACHINE, itself, judge)


def _probe(name: str, where: Subject, probe: str, failure: Verdict, remedy: str) -> HostCheck[CheckedHost]:
    """A feature that probe.py tries on the host; ``failure`` is what its lack means."""

    def judge(host: CheckedHost) -> Judgement:
        answer = (host.kernel_probes if where is GUEST else host.probes).get(probe)
        if answer is None:
            return Judgement("not tried", "warn", "install python3 on this host: it tries it")
        return Judgement(answer["found"], "ok" if answer["ok"] else failure)

    return HostCheck(name, where, itself, judge, remedy)


CHECKS: tuple[HostCheck[Any], ...] = (
    HostCheck("kernel", MACHINE | GUEST, command("uname", "-r"), _kernel),
    HostCheck("BTF", MACHINE | GUEST, command("test", "-r", "/sys/kernel/btf/vmlinux"),
          lambda text: warned("no" if text is None else "yes", text is None),
          "a kernel with CONFIG_DEBUG_INFO_BTF (only programs that read kernel structures need it)"),
    HostCheck("lockdown", MACHINE, itself, _lockdown,
          "boot with lockdown=integrity or none: confidentiality forbids what BPF and perf read"),
    HostCheck("clang version", MACHINE, itself, _clang),
    HostCheck("perf hardware events", MACHINE,
          command("perf", "stat", "--log-fd", "1", "-a", "-x;", "-e", "cycles,instructions", "--", "true"),
          _perf_events,
          "cycles and caches will be null: a VM needs its hypervisor's virtual PMU, or measure on bare metal"),
    HostCheck("CPUs", MACHINE, command("nproc"), _cpus,
          "TG and DUT share cores: loss and latency under load need 4 CPUs or two machines"),
    HostCheck("CPU governor", MACHINE, shell("cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"), _governor,
          "`cpupower frequency-set -g performance`, or numbers move with the clock"),
    HostCheck("real-time throttling", MACHINE, itself, _throttling),
    HostCheck("clock source", MACHINE, file(f"{CLOCK}/current_clocksource"),  # each frame has one or two time stamps
          lambda source: warned(source or "not told by this kernel", source is not None and source not in FAST_CLOCKS),
          f"each time stamp takes long to read: write a faster one of {CLOCK}/available_clocksource into "
          "current_clocksource (x86: tsc; a guest's hypervisor must provide a stable one)"),
    HostCheck("memory lock", MACHINE, itself, _memory_lock),
    disk_space("/tmp"),
    HostCheck("cache", Subject.HERE, itself, _cache,
          f"`xdplab kernels clean`, or another limit: {cache.LIMIT_NAME}"),
    _probe("BPF JIT", ROOT, "jit", "missing",
           "`sysctl net.core.bpf_jit_enable=1`: interpreted programs are not worth measuring"),
    _probe("live frames (xdpgen's engine live)", ROOT, "live_frames", "warn",
           "kernel 5.18 or newer; until then use engine afxdp"),
    _probe("tracing programs (fentry, fexit)", ROOT, "tracing", "warn",
           "no measurement needs them; lockdown or a security module may forbid them"),
    _probe("real-time scheduling", ROOT, "real_time", "warn",
           "measure as root with CAP_SYS_NICE: without it ksoftirqd takes over"),
    HostCheck("libraries", MACHINE, _libraries,
          lambda told: Judgement("libbpf {}, libxdp {}".format(*told) if told else "versions not told")),
    HostCheck("libbpf version", MACHINE, _libraries, lambda told: _compared("libbpf", told[0]) if told else None),
    _version("QEMU", "qemu-system-x86_64", "--version"),
    _version("sysstat", "sar", "-V"),
    _version("perf", "perf", "--version"),
    _version("Python", "python3", "--version"),
    *(_tool(need) for need in (*needs("run"), *needs("study"))),
    _probe("XDP native", LINK_END, "native", "warn", "a driver with XDP; native points will be `unsupported`"),
    _probe("XDP generic", LINK_END, "generic", "missing",
           "a kernel with CONFIG_BPF_SYSCALL and generic XDP (4.12)"),
    _probe("XDP offload", LINK_END, "offload", "warn",
           "a NIC that offloads XDP; offload points will be `unsupported`"),
    _probe("AF_XDP copy", LINK_END, "af_xdp", "warn",
           "a kernel with CONFIG_XDP_SOCKETS; af_xdp points will be `unsupported`"),
    _probe("AF_XDP zero-copy", LINK_END, "zerocopy", "warn",
           "a driver with zero-copy; such points will be `unsupported`"),
    _probe("interpreter or JIT", GUEST, "jit_switch", "warn", "studies of both need a guest vm:KERNEL of Debian's"),
    _probe("function_graph", GUEST, "function_graph", "warn",
           "the parts of loading are not timed here: use a guest vm:KERNEL"),
    _probe("kprobes", GUEST, "kprobe", "warn", "a kernel with CONFIG_KPROBE_EVENTS"),
    _probe("module test_bpf", GUEST, "test_bpf", "warn",
           "study jit's table of the kernel's own tests needs a guest vm:KERNEL"),
    _probe("module pktgen", GUEST, "pktgen", "warn", "not used by xdplab's own generators"),
)  # fmt: skip


def examine(lab: Lab) -> list[Row]:
    """Return the rows of a lab that is up: of each machine, of each end of its links, and of the results' folder.

    During a run in the lab its interfaces are not touched, and a row says so.
    """
    here = CheckedHost(LocalHost(), "here")
    rows = disk_space(str(Path.cwd())).rows(here) + rows_of(CHECKS, here, Subject.HERE)
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
            rows += rows_of(CHECKS, host, MACHINE | ROOT) if host in machines else []
            rows += rows_of(CHECKS, host, LINK_END, named=True) if host.interface else []
        rows += [row for host in second for row in rows_of(CHECKS, host, LINK_END, named=True)]
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
    lab = Row("here", "a lab", "none", "missing", why_no_lab)
    where = MACHINE | ROOT if os.geteuid() == 0 else MACHINE
    return [lab, *rows_of(CHECKS, host, Subject.HERE), *rows_of(CHECKS, host, where)]
