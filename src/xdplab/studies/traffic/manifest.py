"""What a number depends on besides the plan: both hosts' kernels, CPUs, devices and tools, as they describe
themselves."""

from __future__ import annotations

from typing import Any

from xdplab.hosts import Host
from xdplab.labs import Lab
from xdplab.studies.provenance import MACHINE, MOMENT, TOOLS, answers, own_version

# `{interface}` is the host's end of the link.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    **MACHINE,
    **MOMENT,
    **TOOLS,
    "memory": ("grep", "-E", "MemTotal|HugePages_Total", "/proc/meminfo"),
    "driver": ("ethtool", "-i", "{interface}"),
    "channels": ("ethtool", "-l", "{interface}"),
    "rings": ("ethtool", "-g", "{interface}"),
    "features": ("ethtool", "-k", "{interface}"),
    "link": ("ip", "-j", "-d", "link", "show", "dev", "{interface}"),
    "perf": ("perf", "--version"),
    "sysstat": ("sar", "-V"),
    "ethtool": ("ethtool", "--version"),
}


def host_states(lab: Lab) -> dict[str, Any]:
    """Return both hosts' answers and xdplab's own version, for the manifest."""
    return {
        "lab": lab.name,
        "label": lab.label,
        "virtual": lab.virtual,
        "arrangement": lab.arrangement,
        "xdplab": own_version(),
        "dut": _state(lab.dut, lab.dut_interface),
        "tg": _state(lab.tg, lab.tg_interface),
    }


def _state(host: Host, interface: str) -> dict[str, Any]:
    asked = {name: tuple(word.format(interface=interface) for word in argv) for name, argv in _QUESTIONS.items()}
    return dict(answers(host, asked))
