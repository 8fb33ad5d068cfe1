"""The doctor: its report on a host that has everything, and on one that lacks things."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from xdplab import labs
from xdplab.doctor import checks as doctor
from xdplab.doctor import versions
from xdplab.doctor.checks import CheckedHost, Row, examine, examine_here, examine_interface, examine_machine
from xdplab.doctor.versions import tried
from xdplab.errors import HostError
from xdplab.formats.procstat import FAST_CLOCKS
from xdplab.hosts import Host, LocalHost, Result
from xdplab.labs.vm import archive

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a lab")
Answer = str | None


class PlayedHost:
    """A host with a few prepared answers: commands by their arguments after ``env LC_ALL PATH``, and files."""

    name = "played"

    def __init__(self, answers: dict[str, Answer] | None = None, files: dict[str, str] | None = None) -> None:
        self.answers, self.files = answers or {}, files or {}

    def run(self, argv: Sequence[str], **_more: Any) -> Result:
        words = " ".join(argv[3:])
        answer = next((text for start, text in self.answers.items() if words.startswith(start)), None)
        code = 127 if answer is None else 0
        return Result(self.name, tuple(argv), code, (answer or "").encode(), b"", 0.0)

    def get(self, remote: str) -> bytes:
        if remote not in self.files:
            raise HostError(f"{remote} is not there")
        return self.files[remote].encode()


def played(answers: dict[str, Answer] | None = None, files: dict[str, str] | None = None, **more: Any) -> CheckedHost:
    return CheckedHost(cast("Host", PlayedHost(answers, files)), "played", **more)


def probes(**outcomes: bool) -> dict[str, Answer]:
    lines = [json.dumps({"probe": name, "ok": ok, "found": "tried"}) for name, ok in outcomes.items()]
    return {"python3 -I -": "\n".join(lines)}


LOCKED: dict[str, Answer] = {
    "python3 -I -": json.dumps({"probe": "lockdown", "ok": True, "found": "none [integrity] confidentiality"})
}


def test_a_lockdown_that_cannot_be_read_is_unknown_with_the_reason() -> None:
    refused = json.dumps({"probe": "lockdown", "ok": False, "found": "mount: permission denied"})
    row = doctor.lockdown(played({"python3 -I -": refused}))
    assert (row.found, row.verdict) == ("unknown: mount: permission denied", "warn")
    assert doctor.lockdown(played(LOCKED)).found == "integrity"


@pytest.mark.root
@root
def test_lockdown_is_what_the_kernel_says_where_securityfs_is_not_mounted_too() -> None:
    read = "mount -t securityfs none /sys/kernel/security && cat /sys/kernel/security/lockdown"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", read], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"securityfs cannot be mounted here: {done.stderr.strip()}")
    found = doctor.lockdown(CheckedHost(LocalHost(), "here")).found
    assert f"[{found}]" in done.stdout


CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
HYBRID = "".join(
    f"{value};;{pmu}/{event}/;100;100.00;;\n"
    for event in ("cycles", "instructions")
    for pmu, value in (("cpu_core", "7000"), ("cpu_atom", "<not supported>"))
)


@pytest.mark.parametrize(
    ("check", "answers", "files", "verdict"),
    [
        (doctor.kernel, {"uname": "6.12.9-amd64"}, {}, "ok"),
        (doctor.kernel, {"uname": "5.10.0-28-amd64"}, {}, "warn"),
        (doctor.kernel, {"uname": "4.19.0"}, {}, "missing"),
        (doctor.btf, {"test -r": ""}, {}, "ok"),
        (doctor.btf, {}, {}, "warn"),
        (doctor.lockdown, {}, {}, "warn"),  # unknown is not the same as none
        (doctor.lockdown, LOCKED, {}, "ok"),
        (doctor.lockdown, {}, {"/sys/kernel/security/lockdown": "[none] integrity confidentiality"}, "ok"),
        (doctor.lockdown, {}, {"/sys/kernel/security/lockdown": "none integrity [confidentiality]"}, "warn"),
        (doctor.lockdown, {}, {"/sys/kernel/security/lockdown": "none [integrity] confidentiality"}, "ok"),
        (doctor.compiler, {"clang": "Debian clang version 14.0.6\nTarget: x86_64"}, {}, "ok"),
        (doctor.compiler, {"clang": "clang version 11.1.0"}, {}, "missing"),
        (doctor.compiler, {}, {}, "missing"),
        (doctor.compiler, {"clang": "clang version 99.0.1"}, {}, "warn"),
        (doctor.perf_events, {"perf": "12345;;cycles;100;100.00;;\n99;;instructions"}, {}, "ok"),
        (doctor.perf_events, {"perf": "<not supported>;;cycles;0;100.00;;"}, {}, "warn"),
        (doctor.perf_events, {"perf": HYBRID}, {}, "ok"),
        (doctor.perf_events, {}, {}, "warn"),
        *((doctor.clock_source, {}, {CLOCK_SOURCE: f"{source}\n"}, "ok") for source in FAST_CLOCKS),
        *(
            (doctor.clock_source, {}, {CLOCK_SOURCE: f"{source}\n"}, "warn")
            for source in ("hpet", "acpi_pm", "jiffies")
        ),
        (doctor.disk_space, {"df": "what?"}, {}, "warn"),
        (doctor.cpus, {"nproc": "what?"}, {}, "warn"),
        (doctor.cpus, {"nproc": "8"}, {}, "ok"),
        (doctor.cpus, {"nproc": "2"}, {}, "warn"),
        (doctor.governor, {}, {}, "ok"),
        (doctor.governor, {"sh -c cat /sys": "performance\nperformance\n"}, {}, "ok"),
        (doctor.governor, {"sh -c cat /sys": "performance\npowersave\n"}, {}, "warn"),
        (doctor.disk_space, {"df": "Filesystem 1024-blocks Used Available\n/dev/x 9 9 99999999 1% /tmp"}, {}, "ok"),
        (doctor.disk_space, {"df": "Filesystem 1024-blocks Used Available\n/dev/x 9 9 1000 99% /tmp"}, {}, "warn"),
    ],
)
def test_each_check(
    check: Callable[[CheckedHost], Row], answers: dict[str, Answer], files: dict[str, str], verdict: str
) -> None:
    row = check(played(answers, files))
    assert row.verdict == verdict
    assert row.found
    assert (row.remedy is None) == (verdict == "ok")


def test_what_a_check_does_not_understand_costs_its_row_alone() -> None:
    files = {"/proc/sys/kernel/sched_rt_runtime_us": "much\n", "/proc/sys/kernel/sched_rt_period_us": "1000000\n"}
    rows = {row.check: row for row in examine_machine(played({"nproc": "8"}, files))}
    assert "not understood" in rows["real time share"].found
    assert rows["CPUs"].verdict == "ok"


def test_a_version_is_compared_with_those_that_were_tried() -> None:
    newest = tried("QEMU")[-1].version
    answers: dict[str, Answer] = {
        "qemu-system-x86_64": "QEMU emulator version 99.1.0 (Debian 1:99.1.0+ds-1)\nCopyright (c) …",
        "sar": "sysstat version 12.6.1\n(C) Sebastien Godard (sysstat <at> orange.fr)",
        "python3 --version": "Python 3.2.5",
        "sh -c": "Version: 1.6.0\nVersion: 1.4.2",
    }
    host = played(answers, {})
    rows = {row.check: row for row in (*doctor.libraries(host), *doctor.versions(host))}
    assert rows["QEMU version"].found == f"99.1.0, newer than any tried (7.2 to {newest})"
    assert rows["QEMU version"].remedy == f"`make test` tries it; if something fails with it, use QEMU {newest}"
    assert (rows["sysstat version"].found, rows["sysstat version"].verdict) == ("12.6.1", "ok")
    assert rows["Python version"].found.startswith("3.2.5, older than any tried (3.11 to ")
    assert rows["libbpf version"].found == "1.6.0, between 1.5 and 1.7, which were tried"
    assert rows["libraries"].found == "libbpf 1.6.0, libxdp 1.4.2"
    assert "perf version" not in rows, "it is not installed: its row is another"


def test_the_table_of_versions_is_in_order_and_its_suites_are_known() -> None:
    lines = [line for line in versions.TABLE.read_text().splitlines() if not line.startswith("#")]
    tools = list(dict.fromkeys(line.split("\t")[0] for line in lines))
    assert lines == ["\t".join((t.tool, t.version, " ".join(t.suites))) for tool in tools for t in tried(tool)]
    assert {suite for tool in tools for one in tried(tool) for suite in one.suites} <= set(archive.SUITES)
    assert tried("clang")[0].number == (doctor.OLDEST_CLANG,)
    with pytest.raises(ValueError, match="no line of it"):
        versions.untried("tcc", "0.9")


def test_a_missing_tool_comes_with_the_distributions_package() -> None:
    host = played({}, {"/etc/os-release": "ID=fedora\n"})
    (row,) = [row for row in doctor.tools(host) if row.check == "xdp/xsk.h"]
    assert (row.verdict, row.remedy) == ("missing", "dnf install libxdp-devel (AF_XDP sockets)")


def test_a_probe_that_fails_has_the_verdict_of_its_line() -> None:
    rows = {
        row.check: row
        for row in examine_interface(played(probes(native=False, generic=False, af_xdp=True), interface="x0"))
    }
    assert rows["XDP native on x0"].verdict == "warn"
    assert rows["XDP generic on x0"].verdict == "missing"
    assert rows["AF_XDP copy on x0"].verdict == "ok"
    assert (rows["XDP offload on x0"].found, rows["XDP offload on x0"].verdict) == ("not tried", "warn")


def test_a_host_without_anything_gets_rows_and_no_traceback() -> None:
    rows = examine_machine(played())
    assert {row.verdict for row in rows} == {"ok", "warn", "missing"}
    assert all(row.remedy for row in rows if row.verdict != "ok")


@pytest.mark.root
@root
def test_a_netns_lab_can_do_what_veth_can() -> None:
    with labs.use_lab(f"netns:doctor-{os.getpid()}") as lab:
        rows = {(row.host, row.check): row for row in examine(lab)}
        for host, interface in (("dut", lab.dut_interface), ("tg", lab.tg_interface)):
            assert rows[host, f"XDP native on {interface}"].verdict == "ok"
            assert rows[host, f"XDP generic on {interface}"].verdict == "ok"
            assert rows[host, f"AF_XDP copy on {interface}"].verdict == "ok"
            assert rows[host, f"XDP offload on {interface}"].verdict == "warn"
            assert rows[host, f"AF_XDP zero-copy on {interface}"].verdict == "warn"
        for end, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
            (link,) = json.loads(end.run(["ip", "-j", "-d", "link", "show", interface]).stdout)
            assert "xdp" not in link
            assert json.loads(end.run(["bpftool", "-j", "net"]).stdout)[0]["xdp"] == []


@pytest.mark.root
@root
def test_a_run_is_not_disturbed() -> None:
    with labs.use_lab(f"netns:busy-{os.getpid()}") as lab, lab.lock("results/long"):
        rows = examine(lab)
    (told,) = [row for row in rows if row.check == "XDP modes"]
    assert (told.verdict, told.found) == ("warn", "not tried")
    assert "results/long" in str(told.remedy)
    assert not [row for row in rows if row.check.startswith("XDP native")]


def test_where_no_lab_can_be_had_the_reason_is_the_first_row() -> None:
    first = examine_here("because")[0]
    assert (first.check, first.verdict, first.remedy) == ("a lab", "missing", "because")


RT = "/proc/sys/kernel/sched_rt_{}_us"


def test_what_makes_a_real_time_sender_stand_still_is_named() -> None:
    files = {RT.format("runtime"): "950000\n", RT.format("period"): "1000000\n"}
    row = doctor.real_time_share(played(files=files))
    assert (row.verdict, row.found) == ("warn", "a real-time task stands still for 50 of 1000 ms")
    assert "sched_rt_runtime_us=-1" in (row.remedy or "")
    assert "5% too low" in (row.remedy or "")
    server = {f"/sys/kernel/debug/sched/fair_server/cpu0/{n}": f"{v}\n" for n, v in (("runtime", 5e7), ("period", 1e9))}
    shown = {name: str(int(float(value))) for name, value in server.items()}
    assert "(fair server: 50 of 1000 ms)" in doctor.real_time_share(played(files=files | shown)).found


def test_without_throttling_there_is_nothing_to_do() -> None:
    off = played(files={RT.format("runtime"): "-1\n", RT.format("period"): "1000000\n"})
    assert (doctor.real_time_share(off).verdict, doctor.real_time_share(off).found) == ("ok", "off")
    assert doctor.real_time_share(played()).found == "not told by this kernel"


@pytest.mark.parametrize(("source", "verdict"), [("tsc", "ok"), ("kvm-clock", "ok"), ("hpet", "warn"), (None, "ok")])
def test_a_clock_that_is_slow_to_read_is_said(source: str | None, verdict: str) -> None:
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    assert doctor.clock_source(played(files={path: f"{source}\n"} if source else {})).verdict == verdict
