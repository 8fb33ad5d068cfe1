"""What a server and its NIC are set to: a table of all that moves a measurement, read and never changed."""

from __future__ import annotations

from typing import Any

from xdplab.counters import drivers
from xdplab.doctor.checks import (
    PORT,
    CheckedHost,
    HostCheck,
    Judgement,
    Row,
    Subject,
    command,
    file,
    files,
    itself,
    number_in,
    rows_of,
    shell,
    warned,
)
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
SLOT = f"/sys/class/net/{PORT}/device"
ABSENT = "not told (a VM, or another vendor's)"
UNKNOWN_OUTPUT = "this ethtool's output is not known: update it"
DEEP_STATE_US = 50
"""A CPU that takes longer to wake shows in the latency of a paced load."""


def _turbo(answers: list[str | None]) -> Judgement:
    no_turbo, boost = answers
    if no_turbo is None and boost is None:
        return Judgement(ABSENT)
    on = no_turbo == "0" or boost == "1"
    return warned("on" if on else "off", on)


def _c_states(text: str) -> Judgement:
    lines = [line.split() for line in text.splitlines()]
    if not lines:
        return Judgement(ABSENT)
    deepest = max((int(latency) for disabled, latency in lines if disabled == "0"), default=0)
    return warned(f"wake-up ≤ {deepest} µs", deepest > DEEP_STATE_US)


def _mitigations(text: str | None) -> Judgement:
    on = sum("Mitigation" in line for line in (text or "").splitlines())
    return Judgement(f"{on} active: they are part of the result, and in the manifest")


def _iommu(host: CheckedHost) -> Judgement:
    """vfio-pci binds a card only where an IOMMU keeps it within its own memory."""
    groups = number_in(host.output("sh", "-c", "ls /sys/kernel/iommu_groups | wc -l"))
    if groups:
        return Judgement(f"{groups} groups")
    unsafe = host.read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
    return Judgement("off, vfio without it allowed" if unsafe else "off", "warn")


def _fields(text: str | None) -> dict[str, str]:
    """The lines of `ethtool -i`, by name."""
    return dict(line.partition(": ")[::2] for line in (text or "").splitlines())


def _driver(text: str | None) -> Judgement:
    fields = _fields(text)
    name, firmware = f"{fields.get('driver', 'unknown')} {fields.get('version', '')}", fields.get("firmware-version")
    return Judgement(f"{name}, firmware {firmware or '–'}")


def _pcie(answers: list[str | None]) -> Judgement:
    """Compare the slot's lanes and speed with what the card could have."""
    width, widest, speed, fastest = (value or "" for value in answers)
    if {width, widest} & {"", "0", "255"} or not speed[:1].isdigit() or not fastest[:1].isdigit():
        return Judgement("not told: no PCIe device, a virtual function or a guest's")
    whole = (width, speed.split()[0]) == (widest, fastest.split()[0])
    return warned(f"x{width} of x{widest} at {speed} of {fastest}", not whole)


def _queues(text: str | None) -> Judgement:
    try:
        channels = parse_channels(text + "\n") if text else None
    except FormatError as error:
        return Judgement(error.message, "warn", UNKNOWN_OUTPUT)
    if channels is None:
        return Judgement("1, not to be changed", "warn", "points with more queues will be refused")
    return Judgement(f"up to {most_queues(channels)}")


def _rings(text: str | None) -> Judgement:
    try:
        rings = parse_rings(text + "\n") if text else None
    except FormatError as error:
        return Judgement(error.message, "warn", UNKNOWN_OUTPUT)
    if rings is None:
        return Judgement("not told by this driver")
    now, most = rings.current, rings.maximum
    ways = [
        f"{way} {size} of {limit or 'not told'}"
        for way, size, limit in (("rx", now.rx, most.rx), ("tx", now.tx, most.tx))
        if size
    ]
    return Judgement(", ".join(ways) or "not told by this driver")


def _rss(text: str | None) -> Judgement:
    table = rss_table(text or "")
    if not table:
        return Judgement("none", "warn", "one queue gets everything: spread flows by `ethtool -N` rules")
    size = f"{len(table)} entries over {len(set(table))} queues"
    if rss_spread(table):
        return Judgement(size)
    remedy = "ethtool cannot set such a table: no plan may change it, and a run that changes queues cannot restore it"
    return Judgement(f"{size}, in an order of its own", "warn", remedy)


def _pause(text: str | None) -> Judgement:
    pause = parse_pause(text or "")
    if not pause.keys() & {"rx", "tx"}:
        return Judgement("not told by this driver")
    on = [name.upper() for name in ("rx", "tx") if pause.get(name)]
    return warned(" and ".join(on) + " on" if on else "off", bool(on))


def _private_flags(text: str | None) -> Judgement:
    """The driver's own switches that are on: some of them change what is measured (rx_striding_rq, legacy-rx)."""
    if text is None:
        return Judgement("none")
    on = [name for name, is_on in parse_private_flags(text).items() if is_on]
    return Judgement(f"on: {', '.join(on)}" if on else "all off")


def _numa(host: CheckedHost) -> Judgement:
    node = host.read(f"{SLOT}/numa_node")
    nodes = number_in(host.output("sh", "-c", "ls -d /sys/devices/system/node/node* | wc -l"))
    return Judgement("one node only") if node is None or nodes < 2 else warned(node, node == "-1")


def _xdp_counters(text: str | None) -> Judgement:
    """How the port's driver counts XDP's actions, and whether these counters were ever tested."""
    name = _fields(text).get("driver", "unknown")
    row = next((row for row in drivers.DRIVERS if row.name == name), None)
    if row is None:
        return Judgement(f"no row for {name}: counted by the link's statistics, if these count XDP's frames", "warn")
    tried = f"tried on {row.tried}" if row.tried else "from source, untried"
    return Judgement(f"{name}: received by the driver, sent back by the {'driver' if row.sent else 'link'} ({tried})")


SERVER, DPDK, NIC = Subject.SERVER, Subject.DPDK, Subject.NIC
CHECKS: tuple[HostCheck[Any], ...] = (
    HostCheck("turbo", SERVER, files(CPU, "intel_pstate/no_turbo", "cpufreq/boost"), _turbo,
          "`doctor --tune`, or numbers follow heat"),
    HostCheck("C-states", SERVER,
          shell(f'cd {CPU}/cpu0/cpuidle 2>/dev/null && '
                'for s in state*; do echo "$(cat $s/disable) $(cat $s/latency)"; done'), _c_states,
          "boot with intel_idle.max_cstate=1, or `cpupower idle-set -D 1`: waking up is in the latency"),
    HostCheck("SMT", SERVER, file(f"{CPU}/smt/active"),
          lambda active: warned({"1": "on", "0": "off"}.get(active or "", ABSENT), active == "1"),
          f"`echo off > {CPU}/smt/control`, or leave siblings out of `cpus`: they share a core's caches and units"),
    HostCheck("isolated CPUs", SERVER, file(f"{CPU}/isolated"), lambda cpus: warned(cpus or "none", not cpus),
          "boot with isolcpus= and nohz_full= for the CPUs that measure, or the scheduler puts others there"),
    HostCheck("irqbalance", SERVER, command("pgrep", "-x", "irqbalance"),
          lambda text: warned("does not run" if text is None else "runs", text is not None),
          "`doctor --tune` stops it: it moves interrupts while a trial runs"),
    HostCheck("mitigations", SERVER, command("grep", "-r", ".", f"{CPU}/vulnerabilities"), _mitigations),
    HostCheck("hugepages", DPDK, file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
          lambda pages: warned(f"{number_in(pages)} of 2 MiB", not number_in(pages)),
          "`run` takes what the inventory's `generator.hugepages` says; boot with hugepages=1024 where it cannot"),
    HostCheck("IOMMU", DPDK, itself, _iommu,
          "boot with intel_iommu=on (or amd_iommu=on) iommu=pt: vfio-pci needs it"),
    HostCheck("port", DPDK, lambda host: host.interface, lambda port: Judgement(f"{port}: in DPDK's hands")),
    HostCheck("driver", NIC, command("ethtool", "-i", PORT), _driver),
    HostCheck("PCIe link", NIC,
          files(SLOT, "current_link_width", "max_link_width", "current_link_speed", "max_link_speed"), _pcie,
          "another slot, or the firmware's setting of this one: the bus may be slower than the cable; ask again under "
          "traffic, because an idle link may go slower"),
    HostCheck("queues", NIC, command("ethtool", "-l", PORT), _queues),
    HostCheck("rings", NIC, command("ethtool", "-g", PORT), _rings),
    HostCheck("RSS", NIC, command("ethtool", "-x", PORT), _rss),
    HostCheck("pause frames", NIC, command("ethtool", "-a", PORT), _pause,
          f"`ethtool -A {PORT} rx off tx off`: flow control hides loss from both ends"),
    HostCheck("private flags", NIC, command("ethtool", "--show-priv-flags", PORT), _private_flags),
    HostCheck("NIC's NUMA node", NIC, itself, _numa, "the firmware does not say: set `cpus` in the inventory"),
    HostCheck("XDP counters", NIC, command("ethtool", "-i", PORT), _xdp_counters,
          "docs/reference/nic-counters.md explains the verdicts in this case"),
)  # fmt: skip


def examine_hardware(host: CheckedHost) -> list[Row]:
    """Return the rows of one server and its port. A port that DPDK has can say nothing of itself."""
    by_dpdk = host.interface is None or ":" in host.interface
    return rows_of(CHECKS, host, SERVER | (DPDK if by_dpdk else NIC))


def examine_port(host: CheckedHost) -> list[Row]:
    """Return the rows of a further port of a server; each names the port."""
    return rows_of(CHECKS, host, NIC, named=True)


def dpdk_driver(host: CheckedHost, pci: str, wanted: str) -> list[Row]:
    """Say whether the driver that takes the port for DPDK is there, and whether it has it already."""

    def judge(_: CheckedHost) -> Judgement:
        link = (host.output("readlink", f"/sys/bus/pci/devices/{pci}/driver") or "none").rpartition("/")[2]
        available = link in DPDK_DRIVERS or host.output("modinfo", wanted) is not None
        text = f"{pci} has {link}; {wanted} is {'there' if available else 'not there'}"
        return Judgement(text, "ok" if available else "missing")

    return HostCheck("DPDK driver", DPDK, itself, judge, f"a kernel with {wanted}").rows(host)
