"""What costs time on a host and can change: the table of its files, and what the reader says of them, by name.

The reader adds what no file says (`native/reader/settings.h`).

A file's name is its path without its folder: ``net.core.bpf_jit_harden``, ``port.mtu``, ``cpu.online``. Equal values of
all queues or CPUs are one value: ``port.queues/rx-*/rps_cpus``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdplab.formats.reading import lines_of, refuse

TOOL = "settings"
SYSCTL_FILES = (
    *(f"/proc/sys/net/core/{name}" for name in (
        "bpf_jit_enable", "bpf_jit_harden", "netdev_budget", "netdev_budget_usecs", "netdev_max_backlog", "dev_weight",
        "dev_weight_rx_bias", "dev_weight_tx_bias", "gro_normal_batch", "rps_sock_flow_entries",
        "flow_limit_cpu_bitmap", "busy_poll", "busy_read", "netdev_tstamp_prequeue", "skb_defer_max",
        "high_order_alloc_disable",
    )),
    *(f"/proc/sys/kernel/{name}" for name in (
        "bpf_stats_enabled", "sched_rt_runtime_us", "sched_rt_period_us", "sched_autogroup_enabled",
        "sched_energy_aware", "sched_schedstats", "numa_balancing", "timer_migration", "nmi_watchdog", "watchdog",
        "ftrace_enabled", "stack_tracer_enabled", "task_delayacct",
    )),
)  # fmt: skip
MACHINE_FILES = (
    *SYSCTL_FILES,
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/cpuidle/current_governor",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_m??_freq",
    "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/tracing/current_tracer",
)
"""What costs time on any machine and can change."""
PROBES, PROBE_NOTE = "/run/xdplab/probes", "port.probe"
"""Where a probe notes, by interface, what of the table of drivers its port does not do; how the note is named here."""
PORT_FILES = (
    *(f"/sys/class/net/{{device}}/{name}" for name in (
        "mtu", "flags", "tx_queue_len", "gro_flush_timeout", "napi_defer_hard_irqs", "threaded", "operstate",
        "carrier_changes", "master/ifindex", "queues/[rt]x-*/[rx]ps_*",
    )),
    f"{PROBES}/{{device}}",
    "/proc/net/ptype",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
)  # fmt: skip
"""The same of the port; the reader adds what `settings.h` says."""
OF_PORT = ("port.", "net.ipv")
"""Names that a run's own points may set; all others are the machine's, and equal in all trials of a lab."""
_FOLDERS = (
    (re.compile(r"/sys/class/net/[^/]+/"), "port."),
    (re.compile(r"/sys/devices/system/cpu/"), "cpu."),
    (re.compile(r"/sys/devices/system/clocksource/clocksource0/"), "cpu."),
    (re.compile(r"/sys/kernel/"), "kernel."),
    (re.compile(rf"{PROBES}/.+"), PROBE_NOTE),
)
_SYSCTL = "/proc/sys/"
_SNIFFERS, _DEVICE, _FLAGS = "/proc/net/ptype", "port.device", "port.flags"
_RUNNING = "bpf.tracing"
_OWN = frozenset(
    f"{kind}:{name}"
    for kind, names in {
        "tracing": ("count_taken",),
        "raw_tracepoint": ("redirect", "redirect_err", "devmap_xmit", "cpumap_enqueue", "cpumap_kthread"),
    }.items()
    for name in names
)
"""The programs of xdpgen and xdpload, of this lab or of another one on the machine."""
_NUMBER = re.compile(r"(?<=[rt]x-)\d+|(?<=policy)\d+")
_FLAG_NAMES = {0x1: "up", 0x100: "promisc", 0x200: "allmulti"}
LINES = " | "


def parse_settings(data: bytes | str) -> dict[str, str]:
    """Return each setting's value, in words. Raises FormatError if a line has no value."""
    shown: dict[str, str] = {}
    for number, line in enumerate(lines_of(data, TOOL), start=1):
        path, tab, value = line.partition("\t")
        if not tab:
            refuse(TOOL, "no value", line=number, text=line)
        shown[path] = value.strip()
    device = shown.pop(_DEVICE, "")
    if _SNIFFERS in shown:
        shown["port.sniffers"] = _sniffers(shown.pop(_SNIFFERS), device)
    if _RUNNING in shown:
        shown[_RUNNING] = " ".join(sorted(word for word in shown[_RUNNING].split() if word not in _OWN))
    named = {_name(path): value for path, value in shown.items()}
    if re.fullmatch("0x[0-9a-f]+", named.get(_FLAGS, "")):
        bits = int(named[_FLAGS], 16)
        named[_FLAGS] = " ".join(word for bit, word in _FLAG_NAMES.items() if bits & bit)
    return _joined(named)


def _name(path: str) -> str:
    if path.startswith(_SYSCTL):
        return path.removeprefix(_SYSCTL).replace("/", ".")
    for folder, name in _FOLDERS:
        path = folder.sub(name, path, count=1)
    return path


def _sniffers(ptype: str, device: str) -> str:
    """Return the handlers that see every frame of the port: tcpdump has one, `packet_rcv`."""
    rows = [line.split() for line in ptype.split(LINES)]
    return " ".join(row[-1] for row in rows if row[:1] == ["ALL"] and row[1:-1] in ([], [device]))


def _joined(named: dict[str, str]) -> dict[str, str]:
    groups: dict[str, set[str]] = {}
    for name, value in named.items():
        groups.setdefault(_NUMBER.sub("*", name), set()).add(value)
    one = {group for group, values in groups.items() if len(values) == 1}
    pairs: Iterable[tuple[str, str]] = ((_NUMBER.sub("*", name), value) for name, value in named.items())
    return {(group if group in one else name): value for (group, value), name in zip(pairs, named, strict=True)}
