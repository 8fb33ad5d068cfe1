"""A held device keeps its settings, also if its watchdog was lost or its host was rebooted."""

import time
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import until
from veth_pair import VethLab

from xdplab.deploy import settings_nic
from xdplab.deploy.device import settle, snapshot
from xdplab.deploy.guarded import DpdkPort, GuardedDevice, GuardedPort, put_all_back
from xdplab.deploy.watchdog import script_path, unrestored_path, watch
from xdplab.errors import HostChangedError, HostError
from xdplab.hosts.local import LocalHost

pytestmark = pytest.mark.root


def lose(held: GuardedDevice) -> None:
    """End the watchdog's input, as if its connection ended."""
    held._watchdog._process.close_stdin()
    with pytest.raises(HostError, match="the former state of vd0 is no longer held"):
        held.require()


def test_a_lost_watchdog_is_replaced_and_what_is_set_then_stays(lab: VethLab, tmp_path: Path) -> None:
    host, before = lab.dut.host, snapshot(lab.dut.host, "vd0")
    held = GuardedDevice(host, "vd0", str(tmp_path))
    assert held.take() is False
    host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
    lose(held)
    lost = held._watchdog
    assert held.take() is False, "the host is the same"
    assert lost._closing.is_set(), "nothing of it is kept"
    host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
    time.sleep(2)
    held.require()
    assert snapshot(host, "vd0").values["link.mtu"] == 2000
    held.put_back()
    assert snapshot(host, "vd0") == before


def test_what_was_tuned_since_a_run_died_stays(lab: VethLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The governor is the machine's: `doctor --tune` sets it, no run does, and none restores it."""
    monkeypatch.setattr(settings_nic, "_CPUFREQ", str(tmp_path))
    governor = tmp_path / "cpu0/cpufreq/scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    host, state = lab.dut.host, str(tmp_path / "state")
    held = GuardedDevice(host, "vd0", state)
    held.take()
    governor.write_text("performance\n")
    lose(held)
    held._watchdog._process.wait(20)
    assert governor.read_text() == "performance\n"
    resumed = GuardedDevice(host, "vd0", state)
    resumed.take()
    assert governor.read_text() == "performance\n"
    assert resumed.before.values["governor.0"] == "performance"
    governor.write_text("schedutil\n")
    (second := tmp_path / "cpu1/cpufreq/scaling_governor").parent.mkdir(parents=True)
    second.write_text("powersave\n")
    resumed._watchdog._process.close_stdin()  # type: ignore[union-attr]
    with pytest.raises(
        HostChangedError, match=r"0 was performance and is schedutil; governor\.1 was None and is powers"
    ):
        resumed.take()
    resumed.put_back()
    assert governor.read_text() == "schedutil\n"


def test_a_deed_that_has_begun_is_waited_for(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    held = GuardedDevice(host, "vd0", state)
    held.take()
    slow = f"echo begun >{tmp_path}/deed; sleep 3; ip link set vd0 mtu 1400; echo done >{tmp_path}/deed"
    host.put(slow.encode(), script_path("vd0", state))
    lose(held)
    assert until((tmp_path / "deed").exists, 20)
    later = watch(host, "vd0", state)
    assert (tmp_path / "deed").read_text() == "done\n"
    later.dismiss()


def test_a_host_that_was_started_anew_is_looked_at(lab: VethLab, tmp_path: Path) -> None:
    """A veth that is made again has another identity, like a device after a reboot."""
    host = lab.dut.host
    held = GuardedDevice(host, "vd0", str(tmp_path))
    held.take()

    def restart() -> None:
        host.run(["ip", "link", "del", "vd0"])
        lab.link()
        lose(held)

    restart()
    assert held.take() is True
    held.require()
    restart()
    host.run(["ip", "link", "set", "vd0", "mtu", "1400"])
    with pytest.raises(HostChangedError, match=r"it came back changed: vd0: link.mtu was 1500 and is 1400 \(restore"):
        held.take()


def test_a_host_with_another_kernel_is_another_one(lab: VethLab, tmp_path: Path) -> None:
    held = GuardedDevice(lab.dut.host, "vd0", str(tmp_path))
    held.take()
    held._machine = "Linux version 5.10.0\nquiet\n"
    lose(held)
    with pytest.raises(HostChangedError, match=r"its kernel was `Linux version 5.10.0 quiet` and is `Linux version "):
        held.take()


@pytest.mark.parametrize("at_once", [True, False])
def test_each_device_is_restored_though_another_cannot_be(at_once: bool) -> None:
    begun: list[str] = []
    both = Barrier(2)

    def held(name: str, error: HostError | None = None) -> Any:
        def put_back() -> None:
            begun.append(name)
            if at_once:
                both.wait(10)  # no one waits for the other's end
            if error:
                raise error

        return SimpleNamespace(put_back=put_back)

    with pytest.raises(HostError, match="the DUT's"):
        put_all_back([held("dut", HostError("the DUT's")), held("tg")], at_once=at_once)
    assert (sorted(begun) if at_once else begun) == ["dut", "tg"]


@pytest.mark.parametrize(
    ("kind", "restored", "by"),
    [
        (GuardedDevice, "xdplab.deploy.guarded.restore_remembered", ("dut", "vd0", "/state")),
        (GuardedPort, "xdplab.deploy.dpdk.give_back", ("dut", "0000:3b:00.0", "/state")),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_a_watchdog_is_dismissed_once_its_device_is_restored(
    kind: Any, restored: str, by: tuple[str, ...], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is left would restore the settings of the next run; without one, what is not restored stays so."""
    done: list[Any] = []

    def restore(*given: Any, **_: Any) -> None:
        done.append(given)
        if fails:
            raise HostError("it is busy")

    monkeypatch.setattr(restored, restore)
    held = kind("dut", DpdkPort(by[1], "vfio-pci", 0) if kind is GuardedPort else by[1], by[2])
    if not fails:
        held.put_back()  # one that never had a watchdog
        done.clear()
    held._watchdog = SimpleNamespace(dismiss=lambda: done.append("dismissed"))
    with pytest.raises(HostError) if fails else nullcontext():
        held.put_back()
    assert done == [by, *["dismissed"] * (not fails)]


def test_what_a_watchdog_said_is_forgotten_once_its_device_is_as_it_was(tmp_path: Path) -> None:
    said = Path(unrestored_path("lo", str(tmp_path)))
    said.write_text("RTNETLINK answers: busy")
    settle(LocalHost("here"), "lo", str(tmp_path))
    assert not said.exists()
