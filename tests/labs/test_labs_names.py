"""The list of labs, their owners, and the assignment of CPUs, without making a lab."""

import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.calls import Calls

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs import control
from xdplab.labs.base import Arrangement, Cpus, arrangement_for, share_out
from xdplab.labs.netns import lab as netns


@pytest.mark.parametrize("name", ["netns:a b", "netns:a/b", "netns:.", "netns:" + "x" * 41, "netns:ü"])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="cannot be used"):
        labs.up(name)


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "TOOLS", ("mount", "no-such-tool"))
    with pytest.raises(LabError, match=r"a lab needs no-such-tool .*shell/setup\.sh"):
        labs.up("netns:never")


def test_the_owner_is_the_user_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1234")
    assert control.owner() == 1234
    assert control.owner("77") == 77
    assert control.owner("root") == 0
    other = next(user for user in pwd.getpwall() if user.pw_uid != user.pw_gid)
    assert control.owner(other.pw_name) == other.pw_uid
    with pytest.raises(LabError, match="no user is called 'no-such-user'"):
        control.owner("no-such-user")


def test_the_name_alone_does_not_make_an_ordinary_user_someone_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("SUDO_UID", "1234")
    assert control.owner() == 1000


@pytest.mark.parametrize(("cpus", "arrangement"), [(1, "shared"), (2, "shared"), (3, "shared"), (4, "split")])
def test_few_cpus_are_shared(cpus: int, arrangement: str) -> None:
    assert arrangement_for(cpus) == arrangement


def machine(folder: Path, cores: list[tuple[int, int]]) -> Path:
    """Write the sysfs of a machine whose CPUs have these (package, core)."""
    for cpu, (package, core) in enumerate(cores):
        topology = folder / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    return folder


@pytest.mark.parametrize(
    ("arrangement", "cores", "dut", "tg"),
    [
        ("shared", [], (0, 1), (0, 1)),
        ("split", [], (0, 1), (2, 3)),  # a machine that does not say has a core per CPU
        ("split", [(0, 0), (0, 1), (0, 0), (0, 1)], (0, 2), (1, 3)),  # hyperthreads of a core stay together
        ("split", [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)], (0, 1, 2), (3, 4)),  # the odd core is the DUT's
        ("split", [(0, 0), (0, 0)], (0,), (1,)),
    ],
)
def test_cpus_are_shared_out(
    arrangement: Arrangement, cores: list[tuple[int, int]], dut: tuple[int, ...], tg: tuple[int, ...], tmp_path: Path
) -> None:
    found = share_out(sorted({*dut, *tg}), arrangement, machine(tmp_path, cores))
    assert found == Cpus(dut=dut, tg=tg)


class Kind:
    """A kind of lab that has the labs ``up`` of user 7, each with who holds it, and writes down what is asked of it."""

    DEFAULT = "auto"

    def __init__(self, name: str, up: dict[str, str | None], calls: Calls) -> None:
        self.name, self.labs_up, self.calls = name, up, calls
        self.up = calls.of(f"{name} up", lambda instance, uid, lease=False: instance not in up)
        self.down = calls.of(f"{name} down", lambda instance, uid: instance in up)
        self.require_name = calls.of(f"{name} requires")
        self.arrangement = lambda instance: f"of {name} {instance}"

    def open_lab(self, instance: str, uid: int) -> Any:
        self.calls.append(f"{self.name} opens {instance} {uid}")
        hold = self.calls.within(f"hold {instance}")
        return SimpleNamespace(leased=instance == "leased", hold=hold, close=self.calls.of(f"close {instance}"))

    def status(self, uid: int) -> list[dict[str, Any]]:
        return [{"lab": f"{self.name}:{name}", "locked_by": by} for name, by in self.labs_up.items() if uid in (7, 9)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    kinds = {"netns": Kind("netns", {"a": None, "b": "a run"}, calls), "vm": Kind("vm", {"6.1": "a search"}, calls)}
    counts = {"netns": lambda _: False, "vm": lambda instance: instance.endswith(":count")}
    monkeypatch.setattr(labs, "KINDS", {
        name: SimpleNamespace(names=name, labs=kind, listed=True, counts=counts[name]) for name, kind in kinds.items()
    } | {"inventory": SimpleNamespace(names="file", labs=None, listed=False)})  # fmt: skip
    monkeypatch.setattr(labs, "owner", lambda user=None: {None: 7, "eve": 9, "bob": 8}[user])
    monkeypatch.setattr(labs.keeper_socket, "other_owners", lambda uid: [8, 9])
    monkeypatch.setattr(labs, "user_name", lambda uid: {8: "bob", 9: "eve"}[uid])
    return calls


def test_a_lab_is_found_by_its_whole_name_among_all_kinds(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [labs.used_by(name) for name in ("netns:a", "netns:b", "vm:6.1", "vm", "netns:c")] == [
        None, "a run", "a search", None, None,
    ]  # fmt: skip
    everything = [row["lab"] for row in labs.status()]
    assert everything == ["netns:a", "netns:b", "vm:6.1"]
    monkeypatch.setattr("os.geteuid", lambda: 7)
    assert {user: len(rows) for user, rows in labs.of_others().items()} == {"bob": 0, "eve": 3}
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert {user: len(rows) for user, rows in labs.of_others().items()} == {"eve": 3}
    assert (labs.counts("vm:6.1:count"), labs.counts("vm:6.1"), labs.counts("netns")) == (True, False, False)
    assert labs.default_arrangement("vm") == "of vm auto"
    calls.clear()
    assert (labs.up("netns:a"), labs.up("vm", for_user="eve"), labs.down("netns:a"), labs.down("vm")) == (
        False, True, True, False,
    )  # fmt: skip
    assert [line for line in calls if "requires" not in line] == [
        "netns up a 7", "vm up auto 9", "netns down a 7", "vm down auto 7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "held"), [("netns:a", False), ("netns:new", True), ("vm:leased", True)], ids=["up", "made", "leased"]
)
def test_a_lab_in_use_is_held_if_it_ends_with_its_last_user(name: str, held: bool, calls: Calls) -> None:
    kind, _, instance = name.partition(":")
    if instance == "leased":
        labs.KINDS[kind].labs.labs_up[instance] = None  # type: ignore[attr-defined]
    with labs.use_lab(name):
        calls.append("used")
    before, after = [f"hold {instance}"] * held, [f"hold {instance} ends"] * held
    opened = [f"{kind} up {instance} 7 lease=True", f"{kind} opens {instance} 7"]
    assert calls == [f"{kind} requires {instance}", *opened, *before, "used", f"close {instance}", *after]
