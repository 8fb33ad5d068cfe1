"""The doctor: its report on a host that has everything, on one that lacks things, and on servers and their NICs."""

import json
import os
import re
import subprocess

import pytest
from tests.doubles.hosts import Played

from xdplab import labs
from xdplab.doctor import checks, hardware, machine
from xdplab.doctor.checks import CheckedHost, Row, Subject, rows_of, tried
from xdplab.doctor.machine import examine, examine_here
from xdplab.formats.proc import FAST_CLOCKS
from xdplab.hosts.local import LocalHost
from xdplab.labs.vm import archive

Texts = dict[str, str]


def played(commands: Texts | None = None, files: Texts | None = None, interface: str = "eth9") -> CheckedHost:
    return CheckedHost(Played(commands, files), "dut", interface)  # type: ignore[arg-type]


def rows(name: str, host: CheckedHost) -> list[Row]:
    return [row for check in (*machine.CHECKS, *hardware.CHECKS) if check.name == name for row in check.rows(host)]


def row(name: str, host: CheckedHost) -> Row:
    (only,) = rows(name, host)
    return only


def probes(found: str = "tried", **outcomes: bool) -> Texts:
    lines = [json.dumps({"probe": name, "ok": ok, "found": found}) for name, ok in outcomes.items()]
    return {"python3 -I -*": "\n".join(lines)}


HYBRID = "".join(
    f"{value};;{pmu}/{event}/;100;100.00;;\n"
    for event in ("cycles", "instructions")
    for pmu, value in (("cpu_core", "7000"), ("cpu_atom", "<not supported>"))
)
DISK = "Filesystem 1024-blocks Used Available\n/dev/x 9 9 {} 1% /tmp"
LOCKDOWN = "/sys/kernel/security/lockdown"
CLOCK = f"{machine.CLOCK}/current_clocksource"
RUNTIME, PERIOD = (f"/proc/sys/kernel/sched_rt_{name}_us" for name in ("runtime", "period"))
THROTTLED = {RUNTIME: "950000\n", PERIOD: "1000000\n"}
FAIR = {f"{machine.FAIR_SERVER}/runtime": "50000000\n", f"{machine.FAIR_SERVER}/period": "1000000000\n"}


MACHINES = [
    ("kernel", {"uname*": "6.12.9-amd64"}, {}, "6.12.9-amd64", "ok"),
    ("kernel", {"uname*": "5.10.0-28-amd64"}, {}, "", "warn"),
    ("kernel", {"uname*": "4.19.0"}, {}, "", "missing"),
    ("BTF", {"test -r*": ""}, {}, "yes", "ok"),
    ("BTF", {}, {}, "no", "warn"),
    ("lockdown", {}, {}, "unknown", "warn"),  # unknown is not the same as none
    ("lockdown", probes("mount: permission denied", lockdown=False), {}, "unknown: mount: perm", "warn"),
    ("lockdown", probes("none [integrity] confidentiality", lockdown=True), {}, "integrity", "ok"),
    ("lockdown", {}, {LOCKDOWN: "[none] integrity confidentiality"}, "none", "ok"),
    ("lockdown", {}, {LOCKDOWN: "none integrity [confidentiality]"}, "confidentiality", "warn"),
    ("lockdown", {}, {LOCKDOWN: "none [integrity] confidentiality"}, "integrity", "ok"),
    ("clang version", {"clang*": "Debian clang version 14.0.6\nTarget: x86_64"}, {}, "14.0.6", "ok"),
    ("clang version", {"clang*": "clang version 11.1.0"}, {}, "11.1.0", "missing"),
    ("clang version", {}, {}, "none", "missing"),
    ("clang version", {"clang*": "clang version 99.0.1"}, {}, "99.0.1", "warn"),
    ("perf hardware events", {"perf*": "12345;;cycles;100;100.00;;\n99;;instructions"}, {}, "counted", "ok"),
    ("perf hardware events", {"perf*": "1;;cycles\n<not supported>;;instructions"}, {}, "not supported", "warn"),
    ("perf hardware events", {"perf*": HYBRID}, {}, "counted", "ok"),
    ("perf hardware events", {}, {}, "fails", "warn"),
    *(("clock source", {}, {CLOCK: f"{source}\n"}, source, "ok") for source in sorted(FAST_CLOCKS)),
    *(("clock source", {}, {CLOCK: f"{source}\n"}, source, "warn") for source in ("hpet", "acpi_pm", "jiffies")),
    ("clock source", {}, {}, "not told", "ok"),
    ("real-time throttling", {}, {}, "not told", "ok"),
    ("real-time throttling", {}, THROTTLED | {RUNTIME: "-1\n"}, "off", "ok"),
    ("real-time throttling", {}, THROTTLED, "50 of 1000 ms", "warn"),
    ("real-time throttling", {}, THROTTLED | FAIR, "(fair server: 50 of 1000 ms)", "warn"),
    ("disk space in /tmp", {"df*": "what?"}, {}, "0.0 GiB", "warn"),
    ("disk space in /tmp", {"df*": DISK.format("99999999")}, {}, "95.4 GiB", "ok"),
    ("disk space in /tmp", {"df*": DISK.format("1000")}, {}, "0.0 GiB", "warn"),
    ("libraries", {"sh -c*": "Version: 1.6.0\nVersion: 1.4.2"}, {}, "libbpf 1.6.0, libxdp 1.4.2", "ok"),
    ("CPUs", {"nproc": "what?"}, {}, "1 CPUs", "warn"),
    ("CPUs", {"nproc": "8"}, {}, "8 CPUs", "ok"),
    ("CPUs", {"nproc": "2"}, {}, "2 CPUs", "warn"),
    ("CPU governor", {}, {}, "not available", "ok"),
    ("CPU governor", {"sh -c cat /sys*": "performance\nperformance\n"}, {}, "performance", "ok"),
    ("CPU governor", {"sh -c cat /sys*": "performance\npowersave\n"}, {}, "performance, powersave", "warn"),
]
CPU = "/sys/devices/system/cpu"
CHANNELS = "Channel parameters for e:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t8\n"
CHANNELS += "Current hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t4\n"
SLOT = "/sys/class/net/eth9/device"
PCIE = {
    **{f"{SLOT}/{which}_link_width": "16\n" for which in ("current", "max")},
    **{f"{SLOT}/{which}_link_speed": "8.0 GT/s PCIe\n" for which in ("current", "max")},
}
RINGS = "Ring parameters for e:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\n"
RINGS += "Current hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t256\n"
VIRTUAL_FUNCTION = {f"{SLOT}/current_link_width": "0\n", f"{SLOT}/current_link_speed": "Unknown\n"}
RSS_TITLE = "RX flow hash indirection table for eth0 with 1 RX ring(s):\n"
FLAGS = "Private flags for eth9:\nrx_cqe_compress   : off\nrx_striding_rq    : on\nskb_tx_mpwqe      : on\n"
GROUPS = "sh -c ls /sys/kernel/iommu_groups*"


def ethtool(option: str, text: str) -> Texts:
    return {f"ethtool {option} eth9": text}


SERVERS = [
    ("turbo", {}, {f"{CPU}/intel_pstate/no_turbo": "0\n"}, "on", "warn"),
    ("turbo", {}, {f"{CPU}/intel_pstate/no_turbo": "1\n"}, "off", "ok"),
    ("turbo", {}, {f"{CPU}/cpufreq/boost": "1\n"}, "on", "warn"),
    ("turbo", {}, {}, hardware.ABSENT, "ok"),
    ("C-states", {"sh -c cd*": "0 2\n0 133\n1 800\n"}, {}, "wake-up ≤ 133 µs", "warn"),
    ("C-states", {"sh -c cd*": "0 2\n1 133\n"}, {}, "wake-up ≤ 2 µs", "ok"),
    ("SMT", {}, {f"{CPU}/smt/active": "1\n"}, "on", "warn"),
    ("isolated CPUs", {}, {f"{CPU}/isolated": "2-7\n"}, "2-7", "ok"),
    ("isolated CPUs", {}, {f"{CPU}/isolated": "\n"}, "none", "warn"),
    ("XDP counters", ethtool("-i", "driver: ixgbe\n"), {}, "received by the driver, sent back by the link", "ok"),
    ("XDP counters", ethtool("-i", "driver: ice\n"), {}, "(from source, untried)", "ok"),
    ("XDP counters", ethtool("-i", "driver: igb\n"), {}, "(tried on 6.1, 6.12, 7.2, QEMU's igb)", "ok"),
    ("XDP counters", ethtool("-i", "driver: qede\n"), {}, "no row for qede", "warn"),
    ("PCIe link", {}, PCIE | {f"{SLOT}/current_link_width": "8\n"}, "x8 of x16 at 8.0 GT/s PCIe of 8.0", "warn"),
    ("PCIe link", {}, PCIE, "x16 of x16", "ok"),
    ("PCIe link", {}, {}, "not told", "ok"),
    ("PCIe link", {}, PCIE | VIRTUAL_FUNCTION, "not told", "ok"),
    ("PCIe link", {}, PCIE | {f"{SLOT}/current_link_width": "0\n"}, "not told", "ok"),
    ("PCIe link", {}, PCIE | {f"{SLOT}/current_link_speed": "\n"}, "not told", "ok"),
    ("private flags", ethtool("--show-priv-flags", FLAGS), {}, "on: rx_striding_rq, skb_tx_mpwqe", "ok"),
    ("private flags", {}, {}, "none", "ok"),
    ("IOMMU", {GROUPS: "41\n"}, {}, "41 groups", "ok"),
    ("IOMMU", {GROUPS: "0\n"}, {}, "off", "warn"),
    ("irqbalance", {"pgrep -x irqbalance": "812\n"}, {}, "runs", "warn"),
    ("irqbalance", {}, {}, "does not run", "ok"),
    ("pause frames", ethtool("-a", "RX:\t\ton\nTX:\t\toff\n"), {}, "RX on", "warn"),
    ("pause frames", ethtool("-a", "RX:\t\toff\nTX:\t\toff\n"), {}, "off", "ok"),
    ("pause frames", ethtool("-a", "Pause parameters for eth1:\n"), {}, "not told", "ok"),
    ("pause frames", {}, {}, "not told", "ok"),
    ("queues", ethtool("-l", CHANNELS), {}, "up to 8", "ok"),
    ("queues", ethtool("-l", CHANNELS.replace("8", "0")), {}, "up to 4", "ok"),
    ("queues", {}, {}, "1, not to be changed", "warn"),
    ("queues", ethtool("-l", "what?"), {}, "what?", "warn"),
    ("rings", ethtool("-g", RINGS), {}, "rx 512 of 4096, tx 256 of 4096", "ok"),
    ("rings", ethtool("-g", RINGS.replace("4096", "0").replace("256", "0")), {}, "rx 512 of not told", "ok"),
    ("rings", ethtool("-g", re.sub(r"\d+", "0", RINGS)), {}, "not told by this driver", "ok"),
    ("RSS", ethtool("-x", "    0:      0     1     0     1\n"), {}, "4 entries over 2 queues", "ok"),
    ("RSS", ethtool("-x", "    0:      0     0     0     1\n"), {}, "4 entries over 2 queues", "ok"),
    ("RSS", ethtool("-x", "    0:      1     0     0     1\n"), {}, "in an order of its own", "warn"),
    ("RSS", {}, {}, "none", "warn"),
    ("RSS", ethtool("-x", f"{RSS_TITLE}Operation not supported\n"), {}, "none", "warn"),
    ("driver", ethtool("-i", "driver: nfp\nversion: 5\nfirmware-version: 0.0.5\n"), {}, "nfp 5, firm", "ok"),
    ("hugepages", {}, {}, "0 of 2 MiB", "warn"),
    ("NIC's NUMA node", {"sh -c ls*": "2"}, {f"{SLOT}/numa_node": "1"}, "1", "ok"),
    ("NIC's NUMA node", {"sh -c ls*": "2"}, {f"{SLOT}/numa_node": "-1"}, "-1", "warn"),
    ("NIC's NUMA node", {"sh -c ls*": "1"}, {f"{SLOT}/numa_node": "0"}, "one node only", "ok"),
]


@pytest.mark.parametrize(("check", "commands", "files", "found", "verdict"), MACHINES + SERVERS)
def test_what_a_host_says_is_a_row_with_a_verdict(
    check: str, commands: Texts, files: Texts, found: str, verdict: str
) -> None:
    judged = row(check, played(commands, files))
    assert found in judged.found
    assert (judged.verdict, judged.remedy is None) == (verdict, verdict == "ok")


def test_a_port_in_dpdks_hands_says_no_more_than_that() -> None:
    found = hardware.examine_hardware(played(interface="0000:3b:00.0"))
    assert found[-1].found == "0000:3b:00.0: in DPDK's hands"
    assert "rings" not in {row.check for row in found}


@pytest.mark.parametrize(
    ("commands", "verdict"),
    [({"modinfo*": "x", "readlink*": "../ixgbe"}, "ok"), ({"readlink*": "../vfio-pci"}, "ok"), ({}, "missing")],
)
def test_a_driver_for_dpdk_is_looked_for(commands: Texts, verdict: str) -> None:
    (found,) = hardware.dpdk_driver(played(commands), "0000:3b:00.0", "vfio-pci")
    assert found.verdict == verdict


@pytest.mark.root
def test_lockdown_is_what_the_kernel_says_where_securityfs_is_not_mounted_too() -> None:
    read = "mount -t securityfs none /sys/kernel/security && cat /sys/kernel/security/lockdown"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", read], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"securityfs cannot be mounted here: {done.stderr.strip()}")
    found = row("lockdown", CheckedHost(LocalHost(), "here")).found
    assert f"[{found}]" in done.stdout


def test_what_a_check_does_not_understand_costs_its_row_alone() -> None:
    host = played({"nproc": "8"}, THROTTLED | {RUNTIME: "much\n"})
    found = {row.check: row for row in rows_of(machine.CHECKS, host, Subject.MACHINE)}
    assert found["real-time throttling"].verdict == "warn"
    assert "'much'" in found["real-time throttling"].found
    assert found["CPUs"].verdict == "ok"


def test_a_remedy_names_the_interface_and_the_share_of_time() -> None:
    assert "ethtool -A eth9 " in str(row("pause frames", played(ethtool("-a", "RX:\ton\n"))).remedy)
    remedy = str(row("real-time throttling", played(files=THROTTLED)).remedy)
    assert ("sched_rt_runtime_us=-1" in remedy, "5%" in remedy) == (True, True)


@pytest.mark.parametrize(
    ("tool", "commands", "found", "verdict"),
    [
        ("QEMU", {"qemu-system-x86_64*": "QEMU emulator version 99.1.0 (Debian)\n"}, "99.1.0, newer", "warn"),
        ("sysstat", {"sar*": "sysstat version 12.6.1\n(C) Sebastien Godard"}, "12.6.1", "ok"),
        ("Python", {"python3 --version": "Python 3.2.5"}, "3.2.5, older", "warn"),
        ("libbpf", {"sh -c*": "Version: 1.6.0\nVersion: 1.4.2"}, "1.6.0, between 1.5 and 1.7", "warn"),
    ],
)
def test_a_version_is_compared_with_those_that_were_tried(tool: str, commands: Texts, found: str, verdict: str) -> None:
    judged = row(f"{tool} version", played(commands))
    assert (judged.found.startswith(found), judged.verdict) == (True, verdict)
    assert verdict == "ok" or f"{tool} {tried(tool)[-1]}" in str(judged.remedy)
    assert rows(f"{tool} version", played()) == [], "it is not installed: its row is another"


def test_the_table_of_versions_is_in_order_and_its_suites_are_known() -> None:
    lines = [line.split("\t") for line in checks.VERSIONS.read_text().splitlines() if not line.startswith("#")]
    tools = dict.fromkeys(tool for tool, *_ in lines)
    assert [line[:2] for line in lines] == [[tool, version] for tool in tools for version in tried(tool)]
    assert {suite for *_, suites in lines for suite in suites.split(" ")} <= set(archive.SUITES)
    assert checks.number(tried("clang")[0]) == (machine.OLDEST_CLANG,)
    with pytest.raises(ValueError, match="tcc"):
        checks.untried("tcc", "0.9")


def test_a_missing_tool_comes_with_the_distributions_package() -> None:
    missing = row("xdp/xsk.h", played(files={"/etc/os-release": "ID=fedora\n"}))
    assert (missing.verdict, missing.remedy) == ("missing", "dnf install libxdp-devel (AF_XDP sockets)")


def test_a_probe_that_fails_has_the_verdict_of_its_line() -> None:
    host = played(probes(native=False, generic=False, af_xdp=True))
    found = {row.check: row.verdict for row in rows_of(machine.CHECKS, host, Subject.LINK_END, named=True)}
    assert found == {
        "XDP native on eth9": "warn",
        "XDP generic on eth9": "missing",
        "XDP offload on eth9": "warn",  # not tried
        "AF_XDP copy on eth9": "ok",
        "AF_XDP zero-copy on eth9": "warn",
    }


def test_a_host_without_anything_gets_rows_and_no_traceback() -> None:
    found = [row for table in (machine.CHECKS, hardware.CHECKS) for row in rows_of(table, played(), ~Subject.HERE)]
    assert {row.verdict for row in found} == {"ok", "warn", "missing"}
    assert all(row.remedy for row in found if row.verdict != "ok")


@pytest.mark.root
def test_a_netns_lab_can_do_what_veth_can() -> None:
    with labs.use_lab(f"netns:doctor-{os.getpid()}") as lab:
        found = {(row.host, row.check): row.verdict for row in examine(lab)}
        able = {"XDP native": "ok", "XDP generic": "ok", "AF_XDP copy": "ok"}
        able |= {"XDP offload": "warn", "AF_XDP zero-copy": "warn"}
        for host, interface in (("dut", lab.dut_interface), ("tg", lab.tg_interface)):
            assert {check: found[host, f"{check} on {interface}"] for check in able} == able
        for end, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
            (link,) = json.loads(end.run(["ip", "-j", "-d", "link", "show", interface]).stdout)
            assert "xdp" not in link
            assert json.loads(end.run(["bpftool", "-j", "net"]).stdout)[0]["xdp"] == []


@pytest.mark.root
def test_a_run_is_not_disturbed() -> None:
    with labs.use_lab(f"netns:busy-{os.getpid()}") as lab, lab.lock("results/long"):
        found = examine(lab)
    (told,) = [row for row in found if row.check == "XDP modes"]
    assert (told.verdict, told.found) == ("warn", "not tried")
    assert "results/long" in str(told.remedy)
    assert not [row for row in found if row.check.startswith("XDP native")]


def test_where_no_lab_can_be_had_the_reason_is_the_first_row() -> None:
    first = examine_here("because")[0]
    assert (first.check, first.verdict, first.remedy) == ("a lab", "missing", "because")


def test_the_answer_comes_first_hosts_share_a_line_and_what_is_right_is_folded() -> None:
    checked = [
        Row("dut", "BTF", "yes", "ok"),
        Row("dut", "AF_XDP on vd0", "refused", "warn", "another driver"),
        Row("tg", "AF_XDP on vg0", "refused", "warn", "another driver"),
        Row("tg", "ethtool", "not found", "missing", "apt install ethtool"),
    ]
    first, missing, to_do, both, _, right = checks.listed(checked, "--all").splitlines()
    assert first.endswith("; 1 warning"), "as many as are listed: both hosts' is one"
    assert ("1 needed thing missing" in first, "ethtool" in missing, "apt install" in to_do) == (True, True, True)
    assert ("dut: AF_XDP on vd0, tg: AF_XDP on vg0" in both, right.startswith("1 ok")) == (True, True)
    assert "BTF" in checks.listed(checked, None)
    assert "warning" not in checks.headline(checked[:1])
