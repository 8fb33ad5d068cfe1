"""What a server and its NIC are set to: all that moves a measurement, read and never changed; a row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xdplab.doctor.checks import CheckedHost, Row, Verdict, number_in, understood
from xdplab.errors import FormatError
from xdplab.formats.ethtool import (
    most_queues,
    parse_channels,
    parse_pause,
    parse_private_flags,
    parse_rings,
    rss_spread,
    rss_table,
)
from xdplab.labs.servers.ports import DPDK_DRIVERS

CPU = "/sys/devices/system/cpu"
ABSENT = "not told (a VM, or another vendor's)"
DEEP_STATE_US = 50
"""A CPU that takes longer to wake shows in the latency of a paced load."""


def driver(host: CheckedHost) -> Row:
    text = host.output("ethtool", "-i", str(host.interface)) or ""
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    name, firmware = f"{fields.get('driver', 'unknown')} {fields.get('version', '')}", fields.get("firmware-version")
    return host.row("driver", f"{name}, firmware {firmware or '–'}")


def queue_limit(host: CheckedHost) -> Row:
    text = host.output("ethtool", "-l", str(host.interface))
    try:
        channels = parse_channels(text + "\n") if text else None
    except FormatError as error:
        return host.row("queues", error.message, "warn", "this ethtool's output is not known: update it")
    if channels is None:
        return host.row("queues", "1, not to be changed", "warn", "points with more queues will be refused")
    return host.row("queues", f"up to {most_queues(channels)}")


def rings(host: CheckedHost) -> Row:
    text = host.output("ethtool", "-g", str(host.interface))
    try:
        rings = parse_rings(text + "\n") if text else None
    except FormatError as error:
        return host.row("rings", error.message, "warn", "this ethtool's output is not known: update it")
    ways = (
        [
            f"{way} {now} of {most or 'not told'}"
            for way, now, most in (
                ("rx", rings.current.rx, rings.maximum.rx),
                ("tx", rings.current.tx, rings.maximum.tx),
            )
            if now
        ]
        if rings
        else []
    )
    return host.row("rings", ", ".join(ways) or "not told by this driver")


def pcie(host: CheckedHost) -> Row:
    """Compare the slot's lanes and speed with what the card could have."""
    folder = f"/sys/class/net/{host.interface}/device"
    names = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
    values = [host.read(f"{folder}/{name}") for name in names]
    width, widest, speed, fastest = (value or "" for value in values)
    if {width, widest} & {"", "0", "255"} or not speed[:1].isdigit() or not fastest[:1].isdigit():
        return host.row("PCIe link", "not told: no PCIe device, a virtual function or a guest's")
    whole = (width, speed.split()[0]) == (widest, fastest.split()[0])
    remedy = (
        "another slot, or the firmware's setting of this one: the bus may be slower than the cable; ask again under "
        "traffic, because an idle link may go slower"
    )
    return host.row("PCIe link", f"x{width} of x{widest} at {speed} of {fastest}", "ok" if whole else "warn", remedy)


def private_flags(host: CheckedHost) -> Row:
    """Name the driver's own switches that are on: some of them change what is measured (rx_striding_rq, legacy-rx)."""
    text = host.output("ethtool", "--show-priv-flags", str(host.interface))
    if text is None:
        return host.row("private flags", "none")
    on = [name for name, is_on in parse_private_flags(text).items() if is_on]
    return host.row("private flags", f"on: {', '.join(on)}" if on else "all off")


def rss(host: CheckedHost) -> Row:
    table = rss_table(host.output("ethtool", "-x", str(host.interface)) or "")
    if not table:
        return host.row("RSS", "none", "warn", "one queue gets everything: spread flows by `ethtool -N` rules")
    value = f"{len(table)} entries over {len(set(table))} queues"
    if not rss_spread(table):
        remedy = (
            "ethtool cannot set such a table: no plan may change it, and a run that changes queues cannot restore it"
        )
        return host.row("RSS", f"{value}, in an order of its own", "warn", remedy)
    return host.row("RSS", value)


def pause(host: CheckedHost) -> Row:
    pause = parse_pause(host.output("ethtool", "-a", str(host.interface)) or "")
    if not pause.keys() & {"rx", "tx"}:
        return host.row("pause frames", "not told by this driver")
    on = [name.upper() for name in ("rx", "tx") if pause.get(name)]
    remedy = f"`ethtool -A {host.interface} rx off tx off`: flow control hides loss from both ends"
    return host.row("pause frames", " and ".join(on) + " on" if on else "off", "warn" if on else "ok", remedy)


def numa(host: CheckedHost) -> Row:
    node = host.read(f"/sys/class/net/{host.interface}/device/numa_node")
    nodes = number_in(host.output("sh", "-c", "ls -d /sys/devices/system/node/node* | wc -l"))
    if node is None or nodes < 2:
        return host.row("NIC's NUMA node", "one node only")
    verdict: Verdict = "warn" if node == "-1" else "ok"
    return host.row("NIC's NUMA node", node, verdict, "the firmware does not say: set `cpus` in the inventory")


def turbo(host: CheckedHost) -> Row:
    no_turbo, boost = host.read(f"{CPU}/intel_pstate/no_turbo"), host.read(f"{CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return host.row("turbo", ABSENT)
    on = no_turbo == "0" or boost == "1"
    return host.row("turbo", "on" if on else "off", "warn" if on else "ok", "`doctor --tune`, or numbers follow heat")


def c_states(host: CheckedHost) -> Row:
    script = (
        f'cd {CPU}/cpu0/cpuidle 2>/dev/null && for s in state*; do echo "$(cat $s/disable) $(cat $s/latency)"; done'
    )
    lines = [line.split() for line in (host.output("sh", "-c", script) or "").splitlines()]
    if not lines:
        return host.row("C-states", ABSENT)
    deepest = max((int(latency) for disabled, latency in lines if disabled == "0"), default=0)
    remedy = "boot with intel_idle.max_cstate=1, or `cpupower idle-set -D 1`: waking up is in the latency"
    return host.row("C-states", f"wake-up ≤ {deepest} µs", "ok" if deepest <= DEEP_STATE_US else "warn", remedy)


def smt(host: CheckedHost) -> Row:
    active = host.read(f"{CPU}/smt/active")
    remedy = f"`echo off > {CPU}/smt/control`, or leave siblings out of `cpus`: they share a core's caches and units"
    return host.row("SMT", {"1": "on", "0": "off"}.get(active or "", ABSENT), "warn" if active == "1" else "ok", remedy)


def isolation(host: CheckedHost) -> Row:
    cpus = host.read(f"{CPU}/isolated")
    remedy = "boot with isolcpus= and nohz_full= for the CPUs that measure, or the scheduler puts others there"
    return host.row("isolated CPUs", cpus or "none", "ok" if cpus else "warn", remedy)


def irqbalance(host: CheckedHost) -> Row:
    runs = host.output("pgrep", "-x", "irqbalance") is not None
    remedy = "`doctor --tune` stops it: it moves interrupts while a trial runs"
    return host.row("irqbalance", "runs" if runs else "does not run", "warn" if runs else "ok", remedy)


def mitigations(host: CheckedHost) -> Row:
    text = host.output("grep", "-r", ".", f"{CPU}/vulnerabilities") or ""
    on = sum("Mitigation" in line for line in text.splitlines())
    return host.row("mitigations", f"{on} active: they are part of the result, and in the manifest")


def iommu(host: CheckedHost) -> Row:
    """vfio-pci binds a card only where an IOMMU keeps it within its own memory."""
    groups = number_in(host.output("sh", "-c", "ls /sys/kernel/iommu_groups | wc -l"))
    unsafe = host.read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
    remedy = "boot with intel_iommu=on (or amd_iommu=on) iommu=pt: vfio-pci needs it"
    if groups:
        return host.row("IOMMU", f"{groups} groups")
    return host.row("IOMMU", "off, vfio without it allowed" if unsafe else "off", "warn", remedy)


def hugepages(host: CheckedHost) -> Row:
    pages = number_in(host.read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"))
    remedy = "`run` takes what the inventory's `generator.hugepages` says; boot with hugepages=1024 where it cannot"
    return host.row("hugepages", f"{pages} of 2 MiB", "ok" if pages else "warn", remedy)


MACHINE: tuple[Callable[[CheckedHost], Row], ...] = (
    turbo,
    c_states,
    smt,
    isolation,
    irqbalance,
    mitigations,
)
PORT: tuple[Callable[[CheckedHost], Row], ...] = (
    driver,
    pcie,
    queue_limit,
    rings,
    rss,
    pause,
    private_flags,
    numa,
)


def examine_hardware(host: CheckedHost) -> list[Row]:
    """Return the rows of one server and its port. A port that DPDK has can say nothing of itself."""
    rows = [understood(check, host) for check in MACHINE]
    if host.interface is None or ":" in host.interface:
        return [*rows, hugepages(host), iommu(host), host.row("port", f"{host.interface}: in DPDK's hands")]
    return rows + [understood(check, host) for check in PORT]


def examine_port(host: CheckedHost) -> list[Row]:
    """Return the rows of a further port of a server; each names the port."""
    return [
        replace(row, check=f"{row.check} on {host.interface}") for row in (understood(check, host) for check in PORT)
    ]


def dpdk_driver(host: CheckedHost, pci: str, wanted: str) -> Row:
    """Say whether the driver that takes the port for DPDK is there, and whether it has it already."""
    link = (host.output("readlink", f"/sys/bus/pci/devices/{pci}/driver") or "none").rpartition("/")[2]
    available = link in DPDK_DRIVERS or host.output("modinfo", wanted) is not None
    value = f"{pci} has {link}; {wanted} is {'there' if available else 'not there'}"
    return host.row("DPDK driver", value, "ok" if available else "missing", f"a kernel with {wanted}")
