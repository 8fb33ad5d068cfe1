"""Device settings on a real veth pair: they are read back, a refusal has its reason, and the old ones return."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace

import pytest

from xdplab.deploy import device
from xdplab.deploy.device import Snapshot, apply, remember, reread, restore, restore_remembered, snapshot
from xdplab.deploy.guarded import GuardedDevice
from xdplab.deploy.queues import queue_limit, set_queues
from xdplab.deploy.settings import CHANNELS, XPS, Features, read, tool
from xdplab.deploy.watchdog import unrestored_path
from xdplab.errors import HostError, PlanError, UnsupportedError
from xdplab.hosts import Result

pytestmark = pytest.mark.root


def test_a_snapshot_holds_values_and_says_why_others_are_missing(lab):
    taken = snapshot(lab.dut.host, "vd0")
    assert taken.values["channels.rx"] == 8
    assert taken.values["features.gro"] is True
    assert taken.values["link.mtu"] == 1500
    assert taken.values["link.up"] is True
    assert taken.values["xps.7"] == "0"
    assert not [name for name in taken.values if name.startswith(("rps.", "rfs.", "xps_rxqs."))]  # nobody chose one
    assert "Operation not supported" in taken.unsupported["rings"]
    assert Snapshot.from_json(json.loads(json.dumps(taken.to_json()))) == taken


def test_applied_settings_are_read_back_and_restored(lab):
    host = lab.dut.host
    before = snapshot(host, "vd0")
    wanted = {"link.mtu": 3000, "link.promisc": True, "features.gro": False, "xps.1": "2", "channels.tx": 4}
    applied = apply(host, "vd0", wanted)
    assert applied.obtained == wanted
    assert applied.before == {
        "link.mtu": 1500,
        "link.promisc": False,
        "features.gro": True,
        "xps.1": "0",
        "channels.tx": 8,
    }
    assert snapshot(host, "vd0").values != before.values
    restore(host, "vd0", before)
    assert snapshot(host, "vd0") == before


def test_xps_masks_of_queues_that_went_away_come_back(lab):
    host = lab.dut.host
    apply(host, "vd0", {f"xps.{queue}": "3" for queue in range(8)})
    before = snapshot(host, "vd0")
    apply(host, "vd0", {"channels.tx": 2})
    assert "xps.7" not in snapshot(host, "vd0").values
    restore(host, "vd0", before)
    assert snapshot(host, "vd0").values["xps.7"] == "3"


def test_what_the_owner_chose_for_queues_that_went_away_comes_back(lab, tmp_path):
    """Receive steering (RPS, RFS) and sending by receive queues: a run never sets them, but takes queues away."""
    host = lab.dut.host
    folder = "/sys/class/net/vd0/queues"
    chosen = {"rx-7/rps_cpus": "3", "rx-7/rps_flow_cnt": "4096", "tx-7/xps_rxqs": "81"}
    for name, value in chosen.items():
        host.run(["tee", f"{folder}/{name}"], stdin=value.encode())

    def now() -> dict[str, str]:
        return {name: host.run(["cat", f"{folder}/{name}"]).text.strip().lstrip("0,") for name in chosen}

    held = GuardedDevice(host, "vd0", str(tmp_path))
    held.take()
    apply(host, "vd0", {"channels.tx": 1, "channels.rx": 1})
    held.put_back()
    assert now() == chosen
    held = GuardedDevice(host, "vd0", str(tmp_path))
    held.take()
    apply(host, "vd0", {"channels.tx": 1, "channels.rx": 1})
    held._watchdog._process.close_stdin()  # as if the controller were gone
    held._watchdog._process.wait(10)
    assert now() == chosen


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ({"channels.rx": 9}, UnsupportedError, "requested channel count exceeds maximum"),
        ({"rings.rx": 256}, UnsupportedError, "Operation not supported"),
        ({"channels.combined": 2}, UnsupportedError, "has no setting channels.combined (it has channels.rx"),
        ({"features.no-such-thing": True}, UnsupportedError, "has no setting features.no-such-thing"),
        ({"link.mtu": 99999}, UnsupportedError, "mtu greater than device maximum"),
        ({"colour.rx": 1}, PlanError, "unknown device setting 'colour'"),
    ],
)
def test_an_impossible_setting_is_refused_with_the_tools_message(lab, wanted, error, words):
    before = snapshot(lab.dut.host, "vd0")
    with pytest.raises(error) as caught:
        apply(lab.dut.host, "vd0", {"features.no-such-feature": True, **wanted} if error is PlanError else wanted)
    assert words in str(caught.value)
    assert snapshot(lab.dut.host, "vd0") == before


def test_queues_1_to_8_with_xdp_attached_on_both_ends(lab, drop_object: Path):
    for end in (lab.dut, lab.tg):
        lab.attach(end, drop_object)
    for queues in (1, 8, 2, 4, 3, 1, 5, 6, 7, 8):
        obtained = {"channels.rx": queues, "channels.tx": queues}
        applied = set_queues(lab.dut, lab.tg, queues)
        assert [(one.interface, one.obtained) for one in applied] == [("vd0", obtained), ("vg0", obtained)]


@pytest.mark.parametrize("queues", [0, 9])
def test_a_queue_count_the_pair_lacks_changes_nothing(lab, queues):
    assert queue_limit(lab.dut) == 8
    with pytest.raises(UnsupportedError, match=f"1 to 8 queues, not {queues}"):
        set_queues(lab.dut, lab.tg, queues)
    assert snapshot(lab.tg.host, "vg0").values["channels.tx"] == 8


def test_a_device_without_channels_has_one_queue(lab):
    lab.dut.host.run(["ip", "link", "add", "br0", "type", "bridge"])
    assert queue_limit(type(lab.dut)(lab.dut.host, "br0")) == 1


DIES_HALFWAY = """
import os, signal, sys
sys.path[:0] = {path!r}
from tests.doubles.hosts import in_namespace
from xdplab.deploy.device import apply, remember
host = in_namespace({namespace!r})
remember(host, "vd0", {state!r})
apply(host, "vd0", {{"channels.rx": 8, "channels.tx": 3, "link.mtu": 2000, "features.gro": False}})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_another_process_restores_after_a_kill_any_number_of_times(lab, tmp_path):
    host, state = lab.dut.host, str(tmp_path / "state")
    before = snapshot(host, "vd0")
    script = DIES_HALFWAY.format(path=sys.path, namespace=host.name, state=state)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert snapshot(host, "vd0").values["channels.tx"] == 3

    assert remember(host, "vd0", state) == before  # the state before the crash, not after it
    Path(unrestored_path("vd0", state)).write_text("what a watchdog could not restore\n")
    assert restore_remembered(host, "vd0", state) == before
    assert not list(Path(state).iterdir())
    assert snapshot(host, "vd0") == before
    assert restore_remembered(host, "vd0", state) is None
    assert snapshot(host, "vd0") == before


def test_a_device_made_anew_under_the_same_name_is_not_given_the_old_state(lab, tmp_path):
    host, state = lab.dut.host, str(tmp_path)
    apply(host, "vd0", {"link.mtu": 2000})
    (said := Path(unrestored_path("vd0", state))).write_text("what was not restored of one before")
    remember(host, "vd0", state)
    assert not said.exists()
    host.run(["ip", "link", "del", "vd0"])
    lab.link()
    assert restore_remembered(host, "vd0", state) is None
    assert snapshot(host, "vd0").values["link.mtu"] == 1500
    assert os.listdir(state) == []  # noqa: PTH208


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": "dut"}'])
def test_a_state_file_that_cannot_be_read_is_named_with_the_way_out(lab, tmp_path, content: str):
    host, state = lab.dut.host, str(tmp_path)
    host.run(["mkdir", "-p", state])
    host.run(["tee", f"{state}/device-vd0.json"], stdin=content.encode())
    for ask in (remember, restore_remembered):
        with pytest.raises(HostError, match="the state of vd0 before a run, cannot be read") as caught:
            ask(host, "vd0", state)
        assert f"`rm {state}/device-vd0.json`" in str(caught.value.remedy)


def test_a_setting_that_is_not_restored_is_named_and_stays_remembered(lab, tmp_path, drop_object: Path):
    host, state = lab.dut.host, str(tmp_path)
    apply(lab.tg.host, "vg0", {"channels.tx": 2})
    apply(host, "vd0", {"channels.rx": 2})
    remember(host, "vd0", state)
    apply(host, "vd0", {"channels.rx": 8})
    apply(lab.tg.host, "vg0", {"channels.tx": 8})
    lab.attach(lab.dut, drop_object)
    with pytest.raises(HostError, match=r"channels\.rx.*8, 2"):
        restore_remembered(host, "vd0", state)
    host.run(["ip", "link", "set", "dev", "vd0", "xdp", "off"])
    assert restore_remembered(host, "vd0", state) is not None


def test_a_program_that_is_just_leaving_the_other_end_is_awaited(lab, tmp_path, drop_object: Path):
    """A search in a VLAN that was ended by a signal: "vd0 is not restored: {'features.tx-tcp-segmentation':
    (None, True), …". Meanwhile such features are fixed."""
    host, state = lab.dut.host, str(tmp_path)
    remember(host, "vd0", state)
    apply(host, "vd0", {"features.rxvlan": False, "features.tx-tcp-segmentation": False})
    lab.attach(lab.tg, drop_object)
    assert "features.tx-tcp-segmentation" not in snapshot(host, "vd0").values
    with ThreadPoolExecutor(1) as meanwhile:
        leaving = ["sh", "-c", "sleep 1; ip link set dev vg0 xdp off"]
        meanwhile.submit(lab.tg.host.run, leaving)
        assert restore_remembered(host, "vd0", state).values == snapshot(host, "vd0").values


@pytest.mark.parametrize("error", [UnsupportedError("refused"), HostError("ethtool was killed")])
def test_a_row_that_cannot_be_written_keeps_no_other_from_being_restored(lab, monkeypatch, error):
    host, write = lab.dut.host, device._write_differences
    before = snapshot(host, "vd0")
    apply(host, "vd0", {"link.mtu": 1400, "channels.rx": 2})

    def refuses(setting, *given):
        if setting.prefix == "link":
            raise error
        return write(setting, *given)

    monkeypatch.setattr(device, "_write_differences", refuses)
    with pytest.raises(HostError, match=r"{'link.mtu': .1400, 1500.}"):
        restore(host, "vd0", before)
    monkeypatch.undo()
    assert read(CHANNELS, host, "vd0")["rx"] == before.values["channels.rx"]
    restore(host, "vd0", before)


def test_a_missing_interface_is_an_error_naming_it(lab):
    with pytest.raises(HostError, match="nosuch0"):
        snapshot(lab.dut.host, "nosuch0")


def test_a_device_that_goes_during_a_run_is_the_hosts_failure_and_no_lack_of_its_driver(lab):
    """If the trials were `unsupported`, none of them would ever be repeated."""
    lab.dut.host.run(["ip", "link", "del", "vd0"])
    for deed in (lambda: set_queues(lab.dut, lab.tg, 1), lambda: apply(lab.dut.host, "vd0", {"channels.rx": 1})):
        with pytest.raises(HostError, match=r"vd0.*(No such device|no device matches)"):
            deed()


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (1, "netlink error: Operation not supported", UnsupportedError),
        (1, "netlink error: No such device", HostError),
        (1, "netlink error: Cannot allocate memory", HostError),
        (1, "netlink error: Network is down", HostError),
        (1, "sudo: a password is required", HostError),
        (127, "ethtool: not found", HostError),
        (128 + 9, "", HostError),
        (255, 'Error: argument "3000000000" is wrong: Invalid "mtu" value', UnsupportedError),
        (-1, "", HostError),
        (None, "", HostError),
    ],
)
def test_only_a_drivers_refusal_is_a_lack_of_its_own(code, words, kind):
    with pytest.raises(kind):
        tool(SimpleNamespace(run=lambda argv, **_: Result("dut", argv, code, b"", words.encode(), 0.1)), ("ethtool",))


def test_feature_groups_are_left_to_their_members(lab):
    names = read(Features(), lab.dut.host, "vd0")
    assert "tx-tcp-segmentation" in names
    assert "tcp-segmentation-offload" not in names
    assert "tx-checksum-ipv4" not in names  # [fixed]


def test_xps_masks_are_written_in_the_kernels_groups():
    assert XPS._grouped("3") == "00000003"
    assert XPS._grouped("100000000") == "00000001,00000000"
    assert XPS._canonical("00000001,00000000") == "100000000"


def test_a_setting_that_changed_since_is_seen_when_it_is_read_again(lab):
    host = lab.dut.host
    applied = apply(host, "vd0", {"features.gro": False, "link.mtu": 2000}).require()
    assert reread(host, applied) == applied
    host.run(["ethtool", "-K", "vd0", "gro", "on"])
    with pytest.raises(UnsupportedError, match=r"features\.gro is True instead of the requested False"):
        reread(host, applied).require(rounded=True)


def test_only_the_settings_that_are_named_are_put_back(lab):
    host = lab.dut.host
    before = snapshot(host, "vd0")
    apply(host, "vd0", {"link.mtu": 2000, "features.gro": False})
    restore(host, "vd0", before.only({"link.mtu"}))
    now = snapshot(host, "vd0").values
    assert (now["link.mtu"], now["features.gro"]) == (1500, False)


def test_of_many_names_the_nearest_are_told(lab):
    with pytest.raises(UnsupportedError, match=r"features.gso.* and \d+ more"):
        apply(lab.dut.host, "vd0", {"features.tso": False})


def test_a_link_that_goes_down_is_awaited(lab):
    lab.dut.await_link()
    peer = ["ip", "link", "set", lab.tg.interface]
    lab.tg.host.run([*peer, "down"])
    with ThreadPoolExecutor(1) as meanwhile:
        waiting = meanwhile.submit(lab.dut.await_link)
        assert not wait([waiting], timeout=0.5).done
        lab.tg.host.run([*peer, "up"])
        waiting.result(timeout=5)
