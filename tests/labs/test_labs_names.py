"""The list of labs, their owners, and the assignment of CPUs, without making a lab."""

import os
from pathlib import Path

import pytest

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
