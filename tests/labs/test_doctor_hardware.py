"""The doctor's report on servers, from their tools' output; what it tunes, and that the old settings return."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from xdplab.cli import doctor
from xdplab.doctor import hardware
from xdplab.doctor import tune as doctor_tune
from xdplab.doctor.checks import CheckedHost
from xdplab.doctor.tune import tune, undo
from xdplab.errors import HostError
from xdplab.hosts import LocalHost, Result

CPU = "/sys/devices/system/cpu"


class Server:
    """A host with prepared files, and commands by their last arguments."""

    name = "dut"

    def __init__(self, files: dict[str, str] | None = None, commands: dict[str, str] | None = None) -> None:
        self.files, self.commands = files or {}, commands or {}

    def run(self, argv: Any, **_: Any) -> Result:
        line = " ".join(argv[3:] if argv[0] == "env" else argv)
        text = next((said for key, said in self.commands.items() if line.startswith(key)), None)
        return Result("dut", tuple(argv), 0 if text is not None else 1, (text or "").encode(), b"", 0.0)

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise HostError(f"no {path}")
        return self.files[path].encode()


def host(files: dict[str, str] | None = None, commands: dict[str, str] | None = None) -> CheckedHost:
    return CheckedHost(Server(files, commands), "dut", "ens2np0")  # type: ignore[arg-type]


CHANNELS = "Channel parameters for e:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t8\n"
CHANNELS += "Current hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t4\n"


SLOT = "/sys/class/net/ens2np0/device"
PCIE = {
    **{f"{SLOT}/{which}_link_width": "16\n" for which in ("current", "max")},
    **{f"{SLOT}/{which}_link_speed": "8.0 GT/s PCIe\n" for which in ("current", "max")},
}
RINGS = "Ring parameters for e:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\n"
RINGS += "Current hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t256\n"
VIRTUAL_FUNCTION = {f"{SLOT}/current_link_width": "0\n", f"{SLOT}/current_link_speed": "Unknown\n"}
RSS_TITLE = "RX flow hash indirection table for eth0 with 1 RX ring(s):\n"
FLAGS = "Private flags for ens2np0:\nrx_cqe_compress   : off\nrx_striding_rq    : on\nskb_tx_mpwqe      : on\n"


@pytest.mark.parametrize(
    ("check", "files", "commands", "found", "verdict"),
    [
        (hardware.turbo, {f"{CPU}/intel_pstate/no_turbo": "0\n"}, {}, "on", "warn"),
        (hardware.turbo, {f"{CPU}/intel_pstate/no_turbo": "1\n"}, {}, "off", "ok"),
        (hardware.turbo, {f"{CPU}/cpufreq/boost": "1\n"}, {}, "on", "warn"),
        (hardware.turbo, {}, {}, hardware.ABSENT, "ok"),
        (hardware.c_states, {}, {"sh -c cd": "0 2\n0 133\n1 800\n"}, "wake-up ≤ 133 µs", "warn"),
        (hardware.c_states, {}, {"sh -c cd": "0 2\n1 133\n"}, "wake-up ≤ 2 µs", "ok"),
        (hardware.smt, {f"{CPU}/smt/active": "1\n"}, {}, "on", "warn"),
        (hardware.isolation, {f"{CPU}/isolated": "2-7\n"}, {}, "2-7", "ok"),
        (hardware.isolation, {f"{CPU}/isolated": "\n"}, {}, "none", "warn"),
        (
            doctor.counted,
            {},
            {"ethtool -i": "driver: ixgbe\n"},
            "ixgbe: received by the driver, sent back by the link",
            "ok",
        ),
        (doctor.counted, {}, {"ethtool -i": "driver: ice\n"}, "(from source, untried)", "ok"),
        (doctor.counted, {}, {"ethtool -i": "driver: igb\n"}, "(tried on 6.1, 6.12, 7.2, QEMU's igb)", "ok"),
        (doctor.counted, {}, {"ethtool -i": "driver: qede\n"}, "no row for qede", "warn"),
        (hardware.pcie, PCIE | {f"{SLOT}/current_link_width": "8\n"}, {}, "x8 of x16 at 8.0 GT/s PCIe of 8.0", "warn"),
        (hardware.pcie, PCIE, {}, "x16 of x16", "ok"),
        (hardware.pcie, {}, {}, "not told", "ok"),
        (hardware.pcie, PCIE | VIRTUAL_FUNCTION, {}, "not told", "ok"),
        (hardware.pcie, PCIE | {f"{SLOT}/current_link_speed": "\n"}, {}, "not told", "ok"),
        (hardware.private_flags, {}, {"ethtool --show-priv-flags": FLAGS}, "on: rx_striding_rq, skb_tx_mpwqe", "ok"),
        (hardware.private_flags, {}, {}, "none", "ok"),
        (hardware.iommu, {}, {"sh -c ls /sys/kernel/iommu_groups": "41\n"}, "41 groups", "ok"),
        (hardware.iommu, {}, {"sh -c ls /sys/kernel/iommu_groups": "0\n"}, "off", "warn"),
        (hardware.irqbalance, {}, {"pgrep -x irqbalance": "812\n"}, "runs", "warn"),
        (hardware.irqbalance, {}, {}, "does not run", "ok"),
        (hardware.pause, {}, {"ethtool -a": "RX:\t\ton\nTX:\t\toff\n"}, "RX on", "warn"),
        (hardware.pause, {}, {"ethtool -a": "RX:\t\toff\nTX:\t\toff\n"}, "off", "ok"),
        (hardware.queue_limit, {}, {"ethtool -l": CHANNELS}, "up to 8", "ok"),
        (hardware.pause, {}, {"ethtool -a": "Pause parameters for eth1:\n"}, "not told", "ok"),
        (hardware.pause, {}, {}, "not told", "ok"),
        (hardware.queue_limit, {}, {"ethtool -l": CHANNELS.replace("8", "0")}, "up to 4", "ok"),
        (hardware.queue_limit, {}, {}, "1, not to be changed", "warn"),
        (hardware.queue_limit, {}, {"ethtool -l": "what?"}, "what?", "warn"),
        (hardware.rings, {}, {"ethtool -g": RINGS}, "rx 512 of 4096, tx 256 of 4096", "ok"),
        (
            hardware.rings,
            {},
            {"ethtool -g": RINGS.replace("4096", "0").replace("256", "0")},
            "rx 512 of not told",
            "ok",
        ),
        (hardware.rings, {}, {"ethtool -g": re.sub(r"\d+", "0", RINGS)}, "not told by this driver", "ok"),
        (hardware.rss, {}, {"ethtool -x": "    0:      0     1     0     1\n"}, "4 entries over 2 queues", "ok"),
        (hardware.rss, {}, {"ethtool -x": "    0:      0     0     0     1\n"}, "4 entries over 2 queues", "ok"),
        (hardware.rss, {}, {"ethtool -x": "    0:      1     0     0     1\n"}, "in an order of its own", "warn"),
        (hardware.rss, {}, {}, "none", "warn"),
        (hardware.rss, {}, {"ethtool -x": f"{RSS_TITLE}Operation not supported\n"}, "none", "warn"),
        (
            hardware.driver,
            {},
            {"ethtool -i": "driver: nfp\nversion: 5\nfirmware-version: 0.0.5\n"},
            "nfp 5, firm",
            "ok",
        ),
        (hardware.hugepages, {}, {}, "0 of 2 MiB", "warn"),
    ],
)
def test_a_setting_is_a_row_with_a_verdict(
    check: Any, files: dict[str, str], commands: dict[str, str], found: str, verdict: str
) -> None:
    row = check(host(files, commands))
    assert found in row.found
    assert row.verdict == verdict
    assert (row.remedy is None) == (verdict == "ok")


def test_the_nics_node_matters_where_there_are_several() -> None:
    node = "/sys/class/net/ens2np0/device/numa_node"
    assert hardware.numa(host({node: "1"}, {"sh -c ls": "2"})).found == "1"
    assert hardware.numa(host({node: "-1"}, {"sh -c ls": "2"})).verdict == "warn"
    assert hardware.numa(host({node: "0"}, {"sh -c ls": "1"})).found == "one node only"


def test_a_port_in_dpdks_hands_says_no_more_than_that() -> None:
    rows = hardware.examine_hardware(CheckedHost(Server(), "tg", "0000:3b:00.0"))  # type: ignore[arg-type]
    assert rows[-1].found == "0000:3b:00.0: in DPDK's hands"
    assert "rings" not in {row.check for row in rows}


def test_a_driver_for_dpdk_is_looked_for() -> None:
    assert (
        hardware.dpdk_driver(host(commands={"modinfo": "x", "readlink": "../ixgbe"}), "p", "vfio-pci").verdict == "ok"
    )
    assert hardware.dpdk_driver(host(), "0000:3b:00.0", "vfio-pci").verdict == "missing"


class Machine(LocalHost):
    """This machine, on which no service may be stopped."""

    def __init__(self) -> None:
        super().__init__("dut")
        self.services = {"irqbalance"}

    def run(self, argv: Any, **more: Any) -> Result:
        if argv[0] != "systemctl":
            return super().run(argv, **more)
        if argv[1] == "stop":
            self.services.discard(argv[2])
        return Result("dut", tuple(argv), 0 if argv[-1] in self.services or argv[1] == "stop" else 3, b"", b"", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name in ("cpu0", "cpu1"):
        found[name] = tmp_path / f"root/sys/devices/system/cpu/{name}/cpufreq/scaling_governor"
    found["jit"] = tmp_path / "root/proc/sys/net/core/bpf_jit_enable"
    for path in found.values():
        path.parent.mkdir(parents=True)
        path.write_text("1\n" if path.name == "bpf_jit_enable" else "powersave\n")
    return found


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl whose argument is its exit code: the way back is a script of plain commands."""
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tool


def test_what_does_not_come_back_is_said_and_can_be_tried_again(
    files: dict[str, Path], tmp_path: Path, systemctl: Path
) -> None:
    host, state = Machine(), str(tmp_path / "state")
    tune(host, state, root=str(tmp_path / "root"))
    systemctl.write_text("#!/bin/sh\necho no irqbalance here >&2\nexit 5\n")
    for _ in range(2):
        with pytest.raises(HostError, match="not all that --tune changed is back: no irqbalance here"):
            undo(host, state)
    systemctl.write_text("#!/bin/sh\nexit 0\n")
    assert undo(host, state)
    assert files["cpu0"].read_text() == "powersave"
    assert not undo(host, state)


def test_what_is_tuned_comes_back_as_it_was_first(files: dict[str, Path], tmp_path: Path, systemctl: Path) -> None:
    host, state = Machine(), str(tmp_path / "state")
    changes = tune(host, state, root=str(tmp_path / "root"))
    assert [(c.before, c.now, c.refused) for c in changes] == [
        ("powersave", "performance", None),
        ("powersave", "performance", None),
        ("runs", "stopped", None),
    ]
    assert host.services == set()
    files["cpu1"].write_text("ondemand\n")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 1
    assert undo(host, state)
    assert files["cpu0"].read_text() == files["cpu1"].read_text() == "powersave"
    assert files["jit"].read_text() == "1\n"
    assert not undo(host, state)


def test_what_only_a_second_call_changes_comes_back_too(
    files: dict[str, Path], tmp_path: Path, systemctl: Path
) -> None:
    host, state = Machine(), str(tmp_path / "state")
    host.services.clear()
    files["cpu1"].write_text("performance\n")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 1
    files["cpu0"].write_text("ondemand\n")
    files["cpu1"].write_text("schedutil\n")
    host.services.add("irqbalance")
    assert len(tune(host, state, root=str(tmp_path / "root"))) == 3
    systemctl.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\n')
    assert undo(host, state)
    assert (files["cpu0"].read_text(), files["cpu1"].read_text()) == ("powersave", "schedutil")
    assert (tmp_path / "asked").read_text() == "start irqbalance\n"


def test_a_kernel_that_refuses_is_quoted(files: dict[str, Path], tmp_path: Path) -> None:
    class Refusing(Machine):
        def run(self, argv: Any, **more: Any) -> Result:
            if argv[0] == "tee":
                return Result("dut", tuple(argv), 1, b"", b"tee: Invalid argument", 0.0)
            return super().run(argv, **more)

    changes = tune(Refusing(), str(tmp_path / "state"), root=str(tmp_path / "root"))
    assert [c.refused for c in changes if c.what.startswith("CPU")] == ["tee: Invalid argument"] * 2
    assert doctor_tune.UNDO in {path.name for path in (tmp_path / "state").iterdir()}
