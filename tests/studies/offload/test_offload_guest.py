"""The offload study in a guest of 6.1, end to end; and a plan's offload points there."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from tests.available import guest_kernel, or_skip
from tests.end_to_end.conftest import xdplab

from xdplab import labs
from xdplab.deploy.device import apply, remember, restore_remembered, snapshot
from xdplab.deploy.native import build_tool
from xdplab.deploy.watchdog import script_path
from xdplab.deploy.xdp import XdpRequest, attach
from xdplab.errors import UnsupportedError
from xdplab.hosts.local import LocalHost
from xdplab.programs.build import build as build_program
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import ProgramSpec
from xdplab.studies.offload.bench import build_module, in_guest
from xdplab.studies.offload.points import OffloadRequest, gather

pytestmark = [pytest.mark.thorough, pytest.mark.guest]
NAME = "vm:6.1.0:functional"  # a name of its own: other tests end guests of 6.1
PLAN = """
name: offloaded
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.1, pause_s: 0.02, retries: 0}
blocks:
  - points: {mode: offload, workload: array, accesses: 0}
    passes: [rate]
"""


@pytest.fixture(scope="module")
def guest() -> Iterator[str]:
    guest_kernel()
    with or_skip("netdevsim"):
        build_module("6.1")
    with labs.use_lab(NAME):
        yield NAME


def test_netdevsim_answers_as_the_kernel_says(guest: str, tmp_path: Path) -> None:
    asked = len(gather(OffloadRequest(smallest=True, places=(guest,))).points)
    xdplab("study", "offload", "--smallest", "--place", guest, "--out", str(tmp_path))
    table = pd.read_parquet(next(tmp_path.glob("*/offload.parquet"))).set_index("question")
    assert len(table) == asked
    differing = table[table["as_expected"].ne(True)]
    assert differing.empty, differing[["expected", "obtained", "words"]].to_string()
    assert table["words"].str.contains("[netdevsim]", regex=False).any()
    assert table.loc["array_entries", "words"].endswith("map asked (array, 3 entries): Cannot allocate memory")
    assert "XDP offload disabled in DebugFS" in table.loc["bpf_xdpoffload_accept=N, a program", "words"]


def test_nothing_of_it_stays_in_the_guest(guest: str) -> None:
    with labs.use_lab(guest) as lab:
        assert "netdevsim" not in lab.host("guest").run(["cat", "/proc/modules"]).text


def test_a_cards_rings_coalescing_and_flow_control_are_set_and_put_back(guest: str) -> None:
    wanted = {
        **{"rings.rx": 256, "rings.tx": 512},
        **{"coalesce.rx-usecs": 7, "coalesce.adaptive-rx": True, "pause.rx": True, "pause.tx": False},
    }
    with labs.use_lab(guest) as lab, in_guest(lab.host("guest"), build_module("6.1"), {9: 1}) as cards:
        host, (port,), state = lab.host("guest"), cards[9].ports, "/tmp/card-state"
        host.run(["mkdir", "-p", state])
        before = snapshot(host, port)
        for put_back in (
            lambda: restore_remembered(host, port, state),
            lambda: host.run(["sh", script_path(port, state)]),  # as the watchdog does after a kill
        ):
            remember(host, port, state)
            assert apply(host, port, wanted).obtained == wanted
            put_back()
            assert snapshot(host, port) == before


def test_the_link_of_a_guests_lab_is_not_offloaded_to(guest: str) -> None:
    """A plan's offload points are `unsupported` there, with these reasons."""
    with labs.use_lab(guest) as lab:
        build_tool(LocalHost(), "xdpload", str(lab.native_dir))
        xdpload = build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
        there = f"{lab.work_dir(lab.dut)}/offloaded.o"
        lab.dut.put(build_program(ProgramSpec(workload="array", accesses=0), cache_directory()).object, there)
        with pytest.raises(UnsupportedError, match=r"the driver of vd0 \(veth\) does not take"):
            attach(lab.dut, xdpload, XdpRequest(there, lab.dut_interface, "offload", section="xdp"))


@pytest.mark.nightly
def test_offload_points_of_a_plan_are_unsupported_with_the_drivers_name(guest: str, tmp_path: Path) -> None:
    (tmp_path / "offloaded.yaml").write_text(PLAN)
    done = xdplab("--lab", guest, "run", "offloaded.yaml", "--out", "out", "--no-figures", cwd=tmp_path, check=False)
    assert done.returncode == UnsupportedError.exit_code
    assert "nothing was measured: no trial is supported here" in done.stderr
    (row,) = pd.read_parquet(next(tmp_path.glob("out/*/trials.parquet"))).to_dict("records")
    assert (row["mode"], row["verdict"]) == ("offload", "unsupported")
    assert "(veth) does not take" in row["reason"]
    assert pd.isna(row["forwarded_pps"])
