"""What a number depends on besides the plan: both hosts' kernels, CPUs, devices and tools, as they describe
themselves. What can change meanwhile is read around each window (`xdplab.counters.settings`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
    "link": ("ip", "-j", "-d", "link", "show", "dev", "{interface}"),
    "perf": ("perf", "--version"),
    "sysstat": ("sar", "-V"),
    "ethtool": ("ethtool", "--version"),
}


def host_states(lab: Lab) -> dict[str, Any]:
    """Return both hosts' answers, which they give at the same time, and xdplab's own version, for the manifest."""
    with ThreadPoolExecutor(1) as meanwhile:
        tg = meanwhile.submit(_state, lab.tg, lab.tg_interface)
        dut = _state(lab.dut, lab.dut_interface)
        return {
            "lab": lab.name,
            "label": lab.label,
            "virtual": lab.virtual,
            "arrangement": lab.arrangement,
            "xdplab": own_version(),
            "dut": dut,
            "tg": tg.result(),
        }


def _state(host: Host, interface: str) -> dict[str, Any]:
    asked = {name: tuple(word.format(interface=interface) for word in argv) for name, argv in _QUESTIONS.items()}
    return dict(answers(host, asked))
