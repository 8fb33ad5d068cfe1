"""A host restores its device if the controller disappears, at any step, and only then."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.compiled import tool_first_in_path
from tests.waiting import until
from veth_pair import VethLab

from xdplab.cli.doctor import _left
from xdplab.deploy import device
from xdplab.deploy.device import remember, restore_remembered, snapshot
from xdplab.deploy.guarded import GuardedDevice
from xdplab.deploy.queues import Endpoint
from xdplab.deploy.settings import FEATURES, Command, read
from xdplab.deploy.settings_nic import SETTINGS
from xdplab.deploy.watchdog import restore_script, script_path, watch
from xdplab.errors import HostError
from xdplab.hosts.held import Held, Holder
from xdplab.hosts.local import LocalHost

pytestmark = pytest.mark.root

STEPS = ("watch", "channels", "mtu", "features", "xps")
CONTROLLER = """
import os, signal, sys
sys.path[:0] = {path!r}
from tests.doubles.hosts import in_namespace
from xdplab.deploy.device import apply, remember
from xdplab.deploy.watchdog import watch
def die_at(step):
    if step == {step!r}:
        os.kill(os.getpid(), signal.SIGKILL)
host = in_namespace({namespace!r})
remember(host, "vd0", {state!r})
dog = watch(host, "vd0", {state!r})
die_at("watch")
apply(host, "vd0", {{"channels.rx": 8, "channels.tx": 3}})
die_at("channels")
apply(host, "vd0", {{"link.mtu": 2000, "link.promisc": True}})
die_at("mtu")
apply(host, "vd0", {{"features.gro": False, "features.rxvlan": False}})
die_at("features")
apply(host, "vd0", {{"xps.1": "2"}})
die_at("xps")
"""


@pytest.mark.parametrize("step", STEPS)
def test_state_survives_a_kill_of_the_controller_at_any_step(lab: VethLab, tmp_path: Path, step: str) -> None:
    host, state = lab.dut.host, str(tmp_path / "state")
    before = snapshot(host, "vd0")
    script = CONTROLLER.format(path=sys.path, namespace=host.name, state=state, step=step)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert until(lambda: snapshot(host, "vd0") == before), snapshot(host, "vd0").values
    assert restore_remembered(host, "vd0", state) == before  # it verifies and forgets


@contextmanager
def watched(*device: Any, **choices: Any) -> Iterator[Held]:
    dog = watch(*device, **choices)
    yield dog
    dog.dismiss()


def test_a_session_that_ends_well_has_no_deed_of_its_watchdog(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    remember(host, "vd0", state)
    with watched(host, "vd0", state) as dog:
        dog.require()
        host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
    time.sleep(1.5)
    assert snapshot(host, "vd0").values["link.mtu"] == 2000


def test_silence_counts_as_gone(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    before = remember(host, "vd0", state)
    dog = watch(host, "vd0", state, patience_s=1)
    dog._closing.set()  # no more heartbeats, as from a controller that hangs
    host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
    assert until(lambda: snapshot(host, "vd0").values == before.values)
    with pytest.raises(HostError, match="the former state of vd0 is no longer held"):
        dog.require()
    dog.dismiss()


@pytest.mark.thorough
def test_a_controller_that_lives_is_never_silent_however_long_a_search_takes(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    remember(host, "vd0", state)
    with watched(host, "vd0", state, patience_s=2) as dog:
        host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
        time.sleep(6)
        dog.require()
        assert snapshot(host, "vd0").values["link.mtu"] == 2000


def test_a_disk_that_has_no_room_for_a_file_keeps_no_device_from_its_settings(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    here = LocalHost()
    here.run(["mount", "-t", "tmpfs", "-o", "size=1m", "full", state])
    try:
        before = remember(host, "vd0", state)
        dog = watch(host, "vd0", state)
        disk = os.statvfs(state)
        here.run(["mount", "-o", f"remount,nr_inodes={disk.f_files - disk.f_ffree}", state])
        host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
        dog._process.close_stdin()
        dog._process.wait(20)
        assert snapshot(host, "vd0") == before
    finally:
        here.run(["umount", "-l", state])


def test_a_later_session_is_left_alone_by_the_watchdog_of_the_dead_one(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    remember(host, "vd0", state)
    dead = watch(host, "vd0", state)
    with watched(host, "vd0", state):
        host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
        dead._process.close_stdin()
        assert dead._process.wait(10).exit_code is not None
        assert snapshot(host, "vd0").values["link.mtu"] == 2000


def test_the_script_is_of_one_device_only(lab: VethLab, tmp_path: Path) -> None:
    host, state = lab.dut.host, str(tmp_path)
    remember(host, "vd0", state)
    host.run(["ip", "link", "del", "vd0"])
    lab.link()
    host.run(["ip", "link", "set", "vd0", "mtu", "2000"])
    host.run(["sh", script_path("vd0", state)])
    assert snapshot(host, "vd0").values["link.mtu"] == 2000


class Odd:
    prefix = "odd"

    def read(self, host: object, interface: str) -> dict[str, str]:
        return {}

    def commands(self, interface: str, values: object) -> list[Command]:
        return [Command(("tee", "/a path/$(id)"), "it's\n")]


def test_what_happened_before_a_holder_could_not_let_go_is_what_is_told() -> None:
    stuck = Holder("the setting", "let_go() { echo stuck >&2; exit 3; }\n")
    with pytest.raises(HostError, match="the setting is not put back: stuck"), Held(LocalHost(), stuck):
        pass
    with pytest.raises(ZeroDivisionError), Held(LocalHost(), stuck):
        raise ZeroDivisionError


def test_arguments_of_a_script_are_quoted() -> None:
    script = restore_script("e 0", "b 1 02:00", {"odd.x": "1"}, [Odd()])  # type: ignore[list-item]
    assert """printf %s 'it'"'"'s\n' | put tee '/a path/$(id)'""" in script
    assert "/sys/class/net/'e 0'/ifindex" in script


FORGETFUL = """\
#!/bin/sh
# A driver that has switched a feature off by itself: asking for what is asked for already changes nothing.
case "$1 $4" in
-k*) [ -e {state}/back ] && words=on || words='off [requested on]'
     printf 'Features for lo:\\nlarge-receive-offload: %s\\ngeneric-receive-offload: on\\n' "$words" ;;
"-K off") : >{state}/off ;;
"-K on") [ -e {state}/off ] && : >{state}/back ;;
-[lgcax]*) echo "Operation not supported" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize("by", ["restore", "script"])
def test_a_feature_that_the_driver_switched_off_by_itself_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    tool_first_in_path(monkeypatch, tmp_path / "bin", "ethtool", FORGETFUL.format(state=tmp_path))
    here, was = LocalHost(), {"features.lro": True, "features.gro": True}
    assert read(FEATURES, here, "lo") == {"lro": False, "gro": True}
    identity = device.snapshot(here, "lo").identity
    if by == "restore":
        device.restore(here, "lo", device.Snapshot(here.name, "lo", identity, was, {}))
    else:
        here.run(["sh", "-c", restore_script("lo", identity, was, SETTINGS)])
    assert read(FEATURES, here, "lo") == {"lro": True, "gro": True}


STUBBORN = """\
#!/bin/sh
# A driver whose queues stay taken for a while, and that never switches GRO on.
case "$1 $3" in
-k*) printf 'Features for lo:\\ngeneric-receive-offload: off\\ntcp-segmentation-offload: on\\n' ;;
"-K gro") echo "Cannot change generic-receive-offload" >&2; exit 1 ;;
"-K"*) echo "$@" >>{state}/asked; [ "$(wc -l <{state}/asked)" -gt 4 ] && exit 0
       echo "netlink error: Can't set it with AF_XDP sockets" >&2; exit 1 ;;
-[lgcax]*) echo "Operation not supported" >&2; exit 1 ;;
esac
"""


def test_what_a_watchdog_could_not_put_back_is_said_to_whoever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = str(tmp_path / "state")
    Path(state).mkdir()
    tool_first_in_path(monkeypatch, tmp_path / "bin", "ethtool", STUBBORN.format(state=state))
    here = LocalHost()
    was = {"features.gro": True, "features.tcp-segmentation-offload": True}
    kept = device.Snapshot(here.name, "lo", device.snapshot(here, "lo").identity, was, {})
    script = restore_script("lo", kept.identity, kept.values, SETTINGS)
    here.put(script.encode(), script_path("lo", state))
    here.put(json.dumps(kept.to_json()).encode(), device._path("lo", state))
    assert device.left_by_the_dead(here, "lo", state) is None
    dog = watch(here, "lo", state)
    dog._process.close_stdin()  # as if its connection ended
    assert dog._process.wait(20).exit_code is not None
    left = device.left_by_the_dead(here, "lo", state)
    assert left.differing == {"features.gro": (False, True)}
    assert left.messages == "ethtool -K lo gro on: Cannot change generic-receive-offload", "the taken queues came free"
    with pytest.raises(HostError, match="watchdog was told: ethtool -K lo gro on: Cannot change"):
        GuardedDevice(here, "lo", state).take()
    lab = SimpleNamespace(name="netns:x", state_dir=lambda host: state)
    (row,) = _left(lab, Endpoint(here, "lo"))  # type: ignore[arg-type]
    assert row.found == left.text
