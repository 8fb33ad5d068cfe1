"""What a number depends on besides the plan: both hosts' kernels, CPUs, devices and tools, in their own words."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from xdplab.hosts import Host
from xdplab.labs import Lab

# name → command; `{interface}` is the host's end of the link. A command that fails is kept with its last words.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    "kernel": ("uname", "-r"),
    "kernel_build": ("uname", "-v"),
    "machine": ("uname", "-m"),
    "cpus": ("lscpu", "-J"),
    "microcode": ("grep", "-m1", "microcode", "/proc/cpuinfo"),
    "command_line": ("cat", "/proc/cmdline"),
    "mitigations": ("grep", "-r", ".", "/sys/devices/system/cpu/vulnerabilities"),
    "governor": ("cat", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "bpf_jit": ("cat", "/proc/sys/net/core/bpf_jit_enable"),
    "rt_runtime_us": ("cat", "/proc/sys/kernel/sched_rt_runtime_us"),
    "memory": ("grep", "-E", "MemTotal|HugePages_Total", "/proc/meminfo"),
    "driver": ("ethtool", "-i", "{interface}"),
    "channels": ("ethtool", "-l", "{interface}"),
    "rings": ("ethtool", "-g", "{interface}"),
    "features": ("ethtool", "-k", "{interface}"),
    "link": ("ip", "-j", "-d", "link", "show", "dev", "{interface}"),
    "clang": ("clang", "--version"),
    "cc": ("cc", "--version"),
    "bpftool": ("bpftool", "version"),
    "perf": ("perf", "--version"),
    "sysstat": ("sar", "-V"),
    "ethtool": ("ethtool", "--version"),
}


def host_states(lab: Lab) -> dict[str, Any]:
    """Return both hosts' answers and our own version, for the manifest."""
    return {
        "lab": lab.name,
        "label": lab.label,
        "virtual": lab.virtual,
        "arrangement": lab.arrangement,
        "xdplab": _own_version(),
        "dut": _state(lab.dut, lab.dut_interface),
        "tg": _state(lab.tg, lab.tg_interface),
    }


def _state(host: Host, interface: str) -> dict[str, Any]:
    return {name: _answer(host, argv, interface) for name, argv in _QUESTIONS.items()}


def _answer(host: Host, argv: tuple[str, ...], interface: str) -> dict[str, str]:
    result = host.run([word.format(interface=interface) for word in argv], check=False)
    if result.ok:
        return {"value": result.text.strip()}
    return {"absent": result.error_text or f"exit code {result.exit_code}"}


def _own_version() -> dict[str, str]:
    """Our commit where this is a checkout, so that a number leads back to the code that measured it."""
    here = Path(__file__).resolve().parent
    git = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"commit": git.stdout.strip()} if git.returncode == 0 else {"absent": "not a git checkout"}
