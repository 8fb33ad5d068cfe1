"""Settings of real NICs as ethtool prints them, and the commands that set them; the binding of a port to DPDK."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.compiled import tool_first_in_path
from tests.doubles.hosts import Played
from tests.waiting import until

from xdplab.deploy.device import Applied, Snapshot, apply, restore, snapshot
from xdplab.deploy.dpdk import DpdkState, give_back, read_state, set_state, take
from xdplab.deploy.guarded import DpdkPort, GuardedPort
from xdplab.deploy.settings import STEERING, XPS, Values, not_understood, read
from xdplab.deploy.settings_nic import (
    BY_PREFIX,
    SETTINGS,
    Coalescing,
    Governor,
    HashFields,
    IrqAffinity,
    PrivateFlags,
    Rss,
)
from xdplab.deploy.watchdog import restore_lines, restore_script
from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.ethtool import divided, parse_pause, spread
from xdplab.hosts import Result
from xdplab.hosts.local import LocalHost

# ethtool 6.1's layout, values of a 2-port 10-GbE card.
COALESCE = """Coalesce parameters for ens2np0:
Adaptive RX: off  TX: n/a
stats-block-usecs:\tn/a
sample-interval:\tn/a

rx-usecs:\t50
rx-frames:\t64
rx-usecs-irq:\tn/a
tx-usecs:\t50
tx-frames:\t64

CQE mode RX: n/a  TX: n/a
"""
PAUSE = "Pause parameters for ens2np0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\ton\n"
RSS = """RX flow hash indirection table for ens2np0 with 4 RX ring(s):
    0:      0     1     2     3     0     1     2     3
    8:      0     1     2     3     0     1     2     3
RSS hash key:
6d:5a:56:da:25:5b:0e:c2
RSS hash function:
    toeplitz: on
    xor: off
"""


RINGS_SHOWN = (
    "Ring parameters for e:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t4096\n"
    "Current hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t256\n"
)


def test_coalescing() -> None:
    read = Coalescing.parse(COALESCE)
    assert read == {"adaptive-rx": False, "rx-usecs": 50, "rx-frames": 64, "tx-usecs": 50, "tx-frames": 64}
    commands = Coalescing().commands("ens2np0", {"adaptive-rx": True, "rx-usecs": 0, "adaptive-tx": False})
    assert [" ".join(command.argv[3:]) for command in commands] == ["rx-usecs 0 adaptive-tx off", "adaptive-rx on"]


ADAPTIVE = """#!/bin/sh
# A card as i40e or ice: while it adapts its times, no others can be set.
cd "$(dirname "$0")" && read -r adaptive usecs <card
case $1 in
    -c) printf 'Coalesce parameters for %s:\\nAdaptive RX: %s  TX: n/a\\nrx-usecs:\\t%s\\n' "$2" "$adaptive" "$usecs" ;;
    -C)
        was=$usecs
        shift 2
        while [ $# -gt 0 ]; do
            case $1 in adaptive-rx) adaptive=$2 ;; rx-usecs) usecs=$2 ;; esac
            shift 2
        done
        [ "$adaptive" = off ] || [ "$usecs" = "$was" ] || { echo "netlink error: Invalid argument" >&2; exit 1; }
        echo "$adaptive $usecs" >card ;;
esac
"""


@pytest.mark.parametrize("was", [True, False])
def test_a_card_that_adapts_its_times_gets_its_own_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was: bool
) -> None:
    tool_first_in_path(monkeypatch, tmp_path, "ethtool", ADAPTIVE)
    (tmp_path / "card").write_text(f"{'on' if was else 'off'} 50\n")
    before = Snapshot("dut", "e", "", {"coalesce.adaptive-rx": was, "coalesce.rx-usecs": 50}, {})
    apply(LocalHost(), "e", {"coalesce.adaptive-rx": not was}).require()
    apply(LocalHost(), "e", {"coalesce.adaptive-rx": False, "coalesce.rx-usecs": 10}).require()
    restore(LocalHost(), "e", before)
    assert (tmp_path / "card").read_text() == f"{'on' if was else 'off'} 50\n"
    script = restore_script("e", "", before.values, (Coalescing(),)).replace("exit 0\n", ":\n", 1)
    (tmp_path / "card").write_text("off 10\n")
    subprocess.run(["sh", "-c", script], check=True)
    assert (tmp_path / "card").read_text() == f"{'on' if was else 'off'} 50\n"


def test_pause() -> None:
    assert parse_pause(PAUSE) == {"autoneg": False, "rx": True, "tx": True}


KEY = {"hkey": "6d:5a:56:da:25:5b:0e:c2", "hfunc": "toeplitz"}
ROW = "0     1     2     3     0     1     2     3"


@pytest.mark.parametrize(
    ("first", "second", "table"),
    [
        (ROW, ROW, "equal 4"),
        ("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", "equal 1"),
        ("0 0 0 0 0 0 1 1", "1 1 1 2 2 2 2 2", "equal 3"),  # igb's own order: one block per queue
        ("0 2 2 2 2 2 2 2", "2 2 2 2 3 3 3 3", "weight 1 0 11 4"),
        ("0 0 0 0 1 1 1 1", "1 1 1 1 1 1 1 1", "weight 1 3"),
        (ROW, ROW.replace("0", "3"), None),  # ethtool cannot set this
    ],
)
def test_rss_is_what_ethtool_can_write_back(first: str, second: str, table: str | None) -> None:
    shown = RSS.replace(f"0:      {ROW}", f"0:      {first}").replace(f"8:      {ROW}", f"8:      {second}")
    assert Rss.parse(shown) == ({"table": table} if table else {}) | KEY


def test_the_transformation_of_what_rss_hashes_is_a_value_and_no_hash_function() -> None:
    newer = RSS.replace("toeplitz: on", "toeplitz: off") + "RSS input transformation:\n    symmetric-xor: on\n"
    assert Rss.parse(newer).get("hfunc") is None
    assert Rss.parse(newer)["xfrm"] == "symmetric-xor"
    assert Rss.parse(newer.replace("symmetric-xor: on", "symmetric-xor: off"))["xfrm"] == "none"


FIELDS = "UDP over IPV6 flows use these fields for computing Hash flow key:\n"


@pytest.mark.parametrize(
    ("fields", "letters"),
    [
        (
            "IP SA\nIP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\nIPv6 Flow Label\n",
            "sdfnl",
        ),
        ("IP SA\nIP DA\nGTP TEID\n", "sde"),
        ("Discard\n", "r"),
        ("IP SA\nIP DA\nInner protocol\n", None),
    ],
)
def test_a_hash_is_known_with_all_of_its_fields_or_not_at_all(fields: str, letters: str | None) -> None:
    assert HashFields.parse(f"# udp6\n{FIELDS}{fields}\n").get("udp6") == letters


@pytest.mark.parametrize(
    ("row", "said", "strange"),
    [
        ("hash", f"# udp6\n{FIELDS}IP SA\nInner protocol\n\n", "Inner protocol"),
        ("coalesce", COALESCE + "rx-profile:\n{.usec =   1, .pkts = 256}\n", "rx-profile"),
        ("pause", PAUSE + "Priority 3: on\n", "Priority 3"),
        ("rss", RSS + "RSS steering:\n    by-context: on\n", "RSS steering"),
        ("flags", "Private flags for e:\nlegacy-rx: automatic\n", "legacy-rx: automatic"),
        ("napi", "2\n", "2"),
        ("rings", RINGS_SHOWN.replace("TX:\t\t256\n", "TX:\t\tas wide as it goes\n"), "as wide as it goes"),
    ],
)
def test_what_a_row_does_not_understand_it_says(row: str, said: str, strange: str) -> None:
    """It stays as it is: neither known, nor set, nor restored."""
    told = not_understood(BY_PREFIX[row], Result("dut", ("tool",), 0, said.encode(), b"", 0.0))
    assert strange in told
    assert strange not in str(BY_PREFIX[row].values_in(Result("dut", ("tool",), 0, said.encode(), b"", 0.0)))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        *(("coalesce", COALESCE), ("pause", PAUSE + "RX negotiated: on\nTX negotiated: off\n"), ("rss", RSS)),
        ("rss", RSS + "RSS input transformation:\n    symmetric-xor: off\n    symmetric-or-xor: on\n"),
        ("rings", RINGS_SHOWN + "RX Buf Len:\t\t2048\nTX Push:\toff\nTCP data split:\tn/a\n"),
    ],
)
def test_known_outputs_are_understood_whole(row: str, said: str) -> None:
    assert not_understood(BY_PREFIX[row], Result("dut", ("tool",), 0, said.encode(), b"", 0.0)) is None


def test_cqe_mode_is_a_switch_of_coalescing() -> None:
    assert Coalescing.parse(COALESCE.replace("CQE mode RX: n/a", "CQE mode RX: on"))["cqe-mode-rx"] is True


def test_a_plan_is_told_why_a_setting_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"#!/bin/sh\nprintf '%s' '{FIELDS}IP SA\nInner protocol\n\n'\n"
    tool_first_in_path(monkeypatch, tmp_path, "ethtool", script)
    with pytest.raises(UnsupportedError, match=r"hash\.udp6.*Inner protocol"):
        apply(LocalHost(), "e", {"hash.udp6": "sd"})


def test_the_hash_covers_fields_and_a_driver_has_flags_of_its_own() -> None:
    udp = "UDP over IPV4 flows use these fields for computing Hash flow key:\n"
    fields = "IP SA\nIP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n\n"
    assert HashFields.parse(f"# tcp4\n# udp4\n{udp}{fields}# udp6\n{udp}None\n\n") == {"udp4": "sdfn"}
    said = "Private flags for ens2np0:\nrx_cqe_moder       : on\nLinkPolling        : off\n"
    assert read(PrivateFlags(), Played({"*": said}), "e") == {"rx_cqe_moder": True, "LinkPolling": False}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "queues", "then"),
    [
        ("equal 4", 2, "equal 2"),  # it spread over all queues before, so over all of these now
        ("equal 4", 8, "equal 8"),
        ("equal 2", 8, "equal 2"),
        ("weight 1 3", 8, "weight 1 3"),
        ("weight 1 0 3", 2, "equal 2"),
    ],
)
def test_between_blocks_a_table_fits_the_queues_there_are(table: str, queues: int, then: str) -> None:
    before = Snapshot("dut", "e", "", {"channels.combined": 4, "rss.table": table}, {})
    assert before.with_queues(queues).values["rss.table"] == then


def test_weights_that_the_table_is_too_small_for_are_rounded_and_another_form_is_not() -> None:
    applied = Applied("dut", "e", {"rss.table": "weight 1 2"}, {}, {"rss.table": "weight 21 43"})
    applied.require(rounded=True)
    for other in ("equal 2", "weight 1 3", "weight 22 42", "weight 43 21", "weight 1 2 3", "weight 20 44", None):
        with pytest.raises(UnsupportedError, match=f"rss.table is {other} instead of the requested weight 1 2"):
            replace(applied, obtained={"rss.table": other} if other else {}).require(rounded=True)


def filled(weights: list[int], entries: int) -> list[int]:
    """Return entries per queue by ethtool's own loop: an entry goes to the next queue once the share so far is full."""
    counts, queue, partial = [0] * len(weights), -1, 0
    for entry in range(entries):
        while entry >= entries * partial // sum(weights):
            queue += 1
            partial += weights[queue]
        counts[queue] += 1
    return counts


@pytest.mark.parametrize("weights", [[1, 2], [1, 3], [7, 5, 3], [100, 1], [1, 1, 1, 5], [3, 0, 4]], ids=str)
@pytest.mark.parametrize("entries", [16, 32, 64, 100, 128, 512, 4096])
def test_any_size_of_table_is_known_as_the_requested_weights(weights: list[int], entries: int) -> None:
    counts = filled(weights, entries)
    assert divided(weights, entries) == counts
    asked, found = (f"weight {' '.join(map(str, weights))}", str(spread("weight", counts)))
    if found.startswith("weight"):
        Applied("dut", "e", {"rss.table": asked}, {}, {"rss.table": found}).require(rounded=True)


NIC = """#!/bin/sh
# A NIC with four queues and a table of eight entries, in a file; `chosen` exists if a user has chosen the table.
[ "$1" = -x ] && { echo "RX flow hash indirection table:"; echo "    0:  $(cat table)"; exit; }
shift 2
case "$*" in
    default) echo 0 1 2 3 0 1 2 3 >table; rm -f chosen ;;
    "equal 4") echo 0 1 2 3 0 1 2 3 >table; touch chosen ;;
    "equal 2") echo 0 1 0 1 0 1 0 1 >table; touch chosen ;;
    *) echo "no queue for it" >&2; exit 1 ;;
esac
"""


def test_the_default_table_is_not_set_as_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses fewer queues while a chosen table needs more."""
    tool_first_in_path(monkeypatch, tmp_path, "ethtool", NIC)

    def put(table: str) -> int:
        (command,) = Rss().commands("e", {"table": table})
        return subprocess.run(command.argv, check=False, cwd=tmp_path).returncode

    assert put("equal 2") == 0
    assert (tmp_path / "table").read_text() == "0 1 0 1 0 1 0 1\n"
    assert (tmp_path / "chosen").exists()
    assert put("equal 4") == 0
    assert not (tmp_path / "chosen").exists()
    assert put("equal 16") == 1
    assert (tmp_path / "table").read_text() == "0 1 2 3 0 1 2 3\n"


def test_interrupts_and_governors_are_values_by_number() -> None:
    assert read(IrqAffinity(), Played({"*": "48 0-3\n49 2\n"}), "e") == {"48": "0-3", "49": "2"}  # type: ignore[arg-type]
    said = "/sys/devices/system/cpu/cpu10/cpufreq/scaling_governor:powersave\n"
    assert read(Governor(), Played({"*": said}), "e") == {"10": "powersave"}  # type: ignore[arg-type]


@pytest.mark.parametrize(("word", "values"), [("1", {"threaded": True}), ("0", {"threaded": False}), ("", {})])
def test_threads_of_a_device_are_a_switch_that_older_kernels_lack(word: str, values: Values) -> None:
    assert read(BY_PREFIX["napi"], Played({"*": f"{word}\n"}), "e") == values  # type: ignore[arg-type]


OF_EACH: dict[str, Values] = {
    "governor": {"0": "performance", "1": "powersave"}, "link": {"mtu": 2000, "promisc": True, "up": False},
    "channels": {"rx": 3, "tx": 2}, "rings": {"rx": 512, "tx": 256}, "features": {"gro": True, "tso": False},
    "flags": {"a": True, "b": False}, "napi": {"threaded": True}, "pause": {"rx": True, "tx": False},
    "coalesce": {"rx-usecs": 5, "adaptive-rx": True, "tx-frames": 9, "adaptive-tx": False},
    "rss": {"table": "weight 1 3", "key": "aa:bb:cc:dd", "hfunc": "toeplitz", "xfrm": "symmetric-xor"},
    "hash": {"tcp4": "sdfn", "udp4": "sd"}, "irq": {"7": "0-1", "8": "3"}, "xps": {"0": "1", "1": "2"},
    "xps_rxqs": {"0": "1", "1": "3"}, "rps": {"0": "1", "1": "3"}, "rfs": {"0": "16", "1": "32"},
}  # fmt: skip


def test_each_row_asks_for_all_of_its_values_and_a_hosts_script_restores_them_all() -> None:
    """A value that its host's watchdog leaves out stays as a killed run had it."""
    assert len(BY_PREFIX) == len(SETTINGS) == len(OF_EACH)
    lines = []
    for row in SETTINGS:
        commands = row.commands("eth9", OF_EACH[row.prefix])
        lines += [f"# {row.prefix}", shlex.join(row.question("eth9"))]
        lines += [f"{shlex.join(command.argv)}{f' <<< {command.stdin}' * bool(command.stdin)}" for command in commands]
    values = {f"{prefix}.{name}": value for prefix, of in OF_EACH.items() for name, value in of.items()}
    kept = Snapshot("host", "eth9", "boot 2 mac", values, {}).of_device().values
    assert values.keys() - kept.keys() == {"governor.0", "governor.1"}, "the machine's own"
    lines += ["# the script", *restore_lines("eth9", values, SETTINGS).splitlines()]
    assert "\n".join(lines).splitlines() == Path(__file__).with_name("commands.txt").read_text().splitlines()


FILES = {"governor", "napi", *(row.prefix for row in (XPS, *STEERING))}  # without one, there is no value


@pytest.mark.parametrize("row", sorted({*BY_PREFIX} - FILES))
def test_what_a_tool_refuses_is_no_value(row: str) -> None:
    with pytest.raises(UnsupportedError, match="Operation not supported"):
        BY_PREFIX[row].values_in(Result("dut", ("ethtool",), 1, b"", b"netlink error: Operation not supported", 0.1))


# --- DPDK: a tree like the kernel's /sys, and thirty lines behind `tee` that act as the kernel ---

PCI = "0000:3b:00.0"


class PciHost(LocalHost):
    """This machine with a tree instead of /sys; writes to a driver's files have the same effect as in the kernel."""

    def __init__(self, tree: Path, drivers: tuple[str, ...] = ("ixgbe", "vfio-pci")) -> None:
        super().__init__("tg")
        self.sys, self.device = tree, tree / "bus/pci/devices" / PCI
        self.device.mkdir(parents=True)
        for driver in drivers:
            (tree / "bus/pci/drivers" / driver).mkdir(parents=True)
        (self.device / "driver_override").write_text("(null)\n")
        (self.device / "driver").symlink_to(f"../../drivers/{drivers[0]}")
        pages = tree / "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        pages.parent.mkdir(parents=True)
        pages.write_text("16\n")

    def run(self, argv: Any, *, stdin: bytes = b"", **more: Any) -> Result:
        if argv[0] == "modprobe":
            return super().run(["true"], **more)
        result = super().run(argv, stdin=stdin, **more)
        if argv[0] == "tee":
            self.kernel(Path(argv[1]), stdin.decode())
        return result

    def kernel(self, path: Path, text: str) -> None:
        driver = self.device / "driver"
        if path.name == "unbind":
            driver.unlink()
        elif path.name == "driver_override":
            path.write_text(text if text.strip() else "(null)\n")
        elif path.name == "drivers_probe":
            override = (self.device / "driver_override").read_text().strip()
            chosen = "ixgbe" if override == "(null)" else override
            if (self.sys / "bus/pci/drivers" / chosen).is_dir():
                driver.symlink_to(f"../../drivers/{chosen}")


@pytest.fixture
def tg(tmp_path: Path) -> PciHost:
    return PciHost(tmp_path / "sys")


def test_a_port_is_taken_and_given_back_any_number_of_times(tg: PciHost, tmp_path: Path) -> None:
    before, state, sysfs = DpdkState(PCI, "ixgbe", "", 16), str(tmp_path / "state"), str(tg.sys)
    for _ in range(2):  # the second time after a crash
        assert take(tg, DpdkPort(PCI, "vfio-pci", 64), state, sysfs=sysfs) == before
        assert read_state(tg, PCI, sysfs=sysfs) == DpdkState(PCI, "vfio-pci", "vfio-pci", 64)
    assert give_back(tg, PCI, state, sysfs=sysfs) == before
    assert read_state(tg, PCI, sysfs=sysfs) == before
    assert give_back(tg, PCI, state, sysfs=sysfs) is None


def test_a_card_that_dpdk_shares_with_the_kernel_keeps_its_driver(tmp_path: Path) -> None:
    """With vfio-pci instead of mlx5_core, DPDK could not use the card."""
    tg = PciHost(tmp_path / "sys", ("mlx5_core", "vfio-pci"))
    state, sysfs, before = str(tmp_path / "state"), str(tg.sys), DpdkState(PCI, "mlx5_core", "", 16)
    assert take(tg, DpdkPort(PCI, "vfio-pci", 64), state, sysfs=sysfs) == before
    assert read_state(tg, PCI, sysfs=sysfs) == DpdkState(PCI, "mlx5_core", "", 64)
    assert give_back(tg, PCI, state, sysfs=sysfs) == before


class PciNamespace(PciHost):
    """A namespace whose veth is the card's interface: it goes with the driver, and comes back as a new one."""

    def __init__(self, tree: Path, namespace: str) -> None:
        self._enter = ["ip", "netns", "exec", namespace]
        super().__init__(tree)
        self.kernel_has(True)

    def run(self, argv: Any, **more: Any) -> Result:
        result = super().run([*self._enter, *argv], **more)
        if argv[0] == "tee":
            self.kernel(Path(argv[1]), more["stdin"].decode())
        return result

    def start(self, argv: Any, *, deadline_s: float) -> Any:
        return super().start([*self._enter, *argv], deadline_s=deadline_s)

    def kernel(self, path: Path, text: str) -> None:
        super().kernel(path, text)
        driver = self.device / "driver"
        self.kernel_has(driver.is_symlink() and driver.readlink().name == "ixgbe")

    def kernel_has(self, has: bool) -> None:
        net = self.device / "net/eth7"
        if has and not net.exists():
            self.run(["sh", "-c", "ip link add eth7 numrxqueues 4 numtxqueues 4 type veth peer name far"])
            net.mkdir(parents=True)
        elif not has and net.exists():
            net.rmdir()
            self.run(["ip", "link", "del", "eth7"])


@pytest.fixture
def card(tmp_path: Path) -> Iterator[PciNamespace]:
    name = f"xdc{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield PciNamespace(tmp_path / "sys", name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
@pytest.mark.parametrize("way", ["the end", "the watchdog"])
def test_the_interface_that_the_kernel_makes_again_gets_its_settings(
    card: PciNamespace, tmp_path: Path, way: str
) -> None:
    state, sysfs, pci = str(tmp_path / "state"), str(card.sys), card.sys / "bus/pci"
    card.run(["sh", "-c", "ip link set dev eth7 mtu 2000 promisc on up"])
    card.run(["sh", "-c", "ethtool -L eth7 rx 3"])
    before = snapshot(card, "eth7").values
    held = GuardedPort(card, DpdkPort(PCI, "vfio-pci", 64), state, sysfs=sysfs)
    assert [held.take(), held.take()] == [False, False], "the host has not rebooted meanwhile"
    assert not card.run(["ip", "link", "show", "eth7"], check=False).ok
    if way == "the end":
        held.put_back()
    else:
        held._watchdog._process.close_stdin()  # as if its connection ended
        with pytest.raises(HostError, match=r"the former state of 0000:3b:00\.0 is no longer held"):
            held.require()
        pages = card.sys / "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        assert until(lambda: pages.read_text() == "16", 30)
        assert (pci / "drivers/vfio-pci/unbind").read_text() == (pci / "drivers_probe").read_text() == PCI
        card.kernel(pci / "drivers/vfio-pci/unbind", PCI)  # the state that a kernel has after these writes
        card.kernel(pci / "devices" / PCI / "driver_override", "\n")
        card.kernel(pci / "drivers_probe", PCI)
        held._watchdog._process.wait(30)
    assert snapshot(card, "eth7").values == before
    assert give_back(card, PCI, state, sysfs=sysfs) == (None if way == "the end" else DpdkState(PCI, "ixgbe", "", 16))


def test_hugepages_above_the_wanted_number_stay(tg: PciHost, tmp_path: Path) -> None:
    take(tg, DpdkPort(PCI, "vfio-pci", 4), str(tmp_path), sysfs=str(tg.sys))
    assert read_state(tg, PCI, sysfs=str(tg.sys)).hugepages == 16


def test_a_driver_that_does_not_take_it_is_said_and_what_was_stays_remembered(tg: PciHost, tmp_path: Path) -> None:
    sysfs = str(tg.sys)
    with pytest.raises(UnsupportedError, match=r"has driver none .* instead of .* has driver uio_pci_generic"):
        take(tg, DpdkPort(PCI, "uio_pci_generic", 4), str(tmp_path), sysfs=sysfs)
    assert give_back(tg, PCI, str(tmp_path), sysfs=sysfs) == DpdkState(PCI, "ixgbe", "", 16)
    assert read_state(tg, PCI, sysfs=sysfs).driver == "ixgbe"


def test_a_device_that_is_not_there_is_said(tg: PciHost) -> None:
    with pytest.raises(HostError, match=r"no PCI device 0000:00:99\.0"):
        set_state(tg, DpdkState("0000:00:99.0", "ixgbe", "", 0), sysfs=str(tg.sys))
