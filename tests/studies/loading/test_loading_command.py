"""`xdplab study loading --smallest`, end to end: BPF and module in a guest that counts, twice, to the same counts."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.available import guest_kernel, or_skip, unused
from tests.studies.command import study

from xdplab.labs.vm import headers
from xdplab.studies.guests import driver, place_of
from xdplab.studies.loading import rows, runs, summaries
from xdplab.studies.loading.passes import parse_function_graph, parse_loadbench
from xdplab.studies.loading.points import BPF, LoadingPoint, LoadingRequest
from xdplab.studies.loading.points import smallest as made_smallest
from xdplab.studies.loading.runs import STUDY

GUEST = "vm:6.1:count"
pytestmark = [pytest.mark.root, pytest.mark.guest]


@pytest.fixture(scope="module", autouse=True)
def guests() -> None:
    guest_kernel()
    with or_skip("module"):
        headers.tree("6.1")
    unused(GUEST)  # the work of others there would be counted too


@pytest.fixture(scope="module")
def smallest(guests: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path, str]:
    return study(tmp_path_factory.mktemp("smallest") / "runs", "loading", "--smallest", "--loads", "3")


def wholes(table: pd.DataFrame) -> pd.Series:
    loads = table[table["task"].eq("load") & table["step"].isin(("load", "insert")) & table["source"].eq("system call")]
    return loads.groupby(["kind", "program", "accesses"], dropna=False)["instructions"].median()


@pytest.mark.thorough
def test_every_part_of_both_kinds_is_counted(smallest):
    table, _, _ = smallest
    found = rows.parts(table)
    for kind, names in (("bpf", rows.BPF_PARTS), ("module", rows.MODULE_PARTS)):
        own = found[found["kind"].eq(kind)]
        assert len(own) == 3
        assert own[list(names)].gt(0).all(axis=None)
    assert table.loc[table["task"].eq("load"), "ns"].isna().all()  # a count is not a time


@pytest.mark.thorough
def test_log_and_trace_agree_and_parts_are_within_the_whole(smallest):
    table, _, _ = smallest
    checked = summaries.crosscheck(table)
    assert len(checked) == 3
    assert set(checked["parts ≤ whole"]) == {"yes"}
    large = checked[checked["accesses"].eq(1600).fillna(False)]
    assert large["log / traced"].between(0.98, 1.0).all()  # the log ends shortly before bpf_check() does


@pytest.mark.thorough
def test_what_grows_with_the_program(smallest):
    table, _, _ = smallest
    found = rows.parts(table).set_index(["kind", "accesses"])
    assert found.loc[("bpf", 1600), "verify"] > 30 * found.loc[("bpf", 1), "verify"]
    assert found.loc[("module", 1600), "whole"] < 3 * found.loc[("module", 1), "whole"]


@pytest.mark.thorough
def test_whole_processes_cost_more_than_what_they_call(smallest):
    table, _, _ = smallest
    counted = summaries.processes(table).set_index("process")["median"]
    alone, system_call = counted["a process that does nothing"], summaries.versus(table)
    loader = counted["a libbpf loader"] - alone
    assert loader > float(system_call.loc[system_call["program"].eq("clock"), "BPF"].iloc[0]) / 2
    assert counted["busybox insmod"] < counted["insmod"]  # Debian's insmod is linked with a library of cryptography


@pytest.mark.thorough
def test_sizes_of_both_kinds(smallest):
    table, _, _ = smallest
    for kind in ("bpf", "module"):
        sizes = summaries.memory(table, kind)
        assert len(sizes) == 3
        assert sizes.drop(columns=["place", "program", "form", "accesses"]).notna().all(axis=None)


@pytest.mark.nightly
def test_another_boot_counts_the_same(smallest, tmp_path: Path):
    table, _, _ = smallest
    started = STUDY.start(made_smallest(LoadingRequest()), tmp_path)
    plan = replace(started.plan, points=tuple(p for p in started.plan.points if p.task == "load"))
    again = replace(started, kind=replace(started.kind, read=lambda _: plan))
    again.measure()
    first, second = wholes(table), wholes(again.rows())
    assert first.index.equals(second.index)
    off = (second / first - 1).abs()
    assert off[first > 1e6].max() < 0.001, off.to_string()
    assert off.max() < 0.05, off.to_string()  # up to 900 of 60,000 instructions differ, with the allocation of memory


def test_a_watched_load_is_the_programs_own_and_none_of_libbpfs_probes(guests: None) -> None:
    """libbpf loads a program of two instructions before each: with it, the parts were more than the whole."""
    tool = driver("loadbench")
    program = runs.bpf_object(LoadingPoint("load", "host", BPF, "clock")).object
    with place_of(GUEST, (), (tool,)) as place:
        argv = [place.put(tool, mode=0o755), "--repetitions", "3"]
        watched = place.put(program)
        fentry = parse_loadbench(place.host.run([*argv, "--watch", "fentry", "bpf", watched]).stdout)
        place.host.run([*argv, "--watch", "graph", "--trace", "/tmp/xdplab.trace", "bpf", watched])
        calls = parse_function_graph(place.host.get("/tmp/xdplab.trace"))
    assert all(cycle["check_ns"] + cycle["jit_ns"] <= cycle["load_ns"] for cycle in fentry.cycles)
    traced = [
        (call.function, call.mark) for call in calls if call.mark.startswith("cycle") and "check" in call.function
    ]
    assert traced == [("bpf_check", f"cycle {mark}") for mark in (2**32 - 1, 0, 1, 2)]
