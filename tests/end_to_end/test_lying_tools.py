"""A tool on the DUT lies but reports success: the trial's reason says so, and no number is derived from it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import plan, xdplab
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

BLOCK = "[{points: {accesses: 0}, traffic: {engine: afxdp, load: 5kpps}, passes: [rate, perf]}]"
BEFORE_PATH = "/usr/local/sbin"  # of a host; its mounts are its own
FOREIGN = "Schnittstelle vd0: Empfangsringe: viele, Kennung unbekannt"
LIES = {
    "empty": "exit 0",
    "foreign": f'echo "{FOREIGN}"; exit 0',
    "truncated": 'out=$(REAL "$@"); printf %s "$out" | head -c $((${#out} / 2)); exit 0',
}


def each_lie(first: str, second: str) -> pytest.MarkDecorator:
    """Each lie of two tools; one of them is enough to wait for."""
    cases = [(tool, lie) for tool in (first, second) for lie in LIES]
    return pytest.mark.parametrize(
        ("tool", "lie"), [cases[0], *(pytest.param(*case, marks=pytest.mark.thorough) for case in cases[1:])]
    )


HANGS = "sleep 600"


@contextmanager
def liar(lab: Lab, tool: str, text: str) -> Iterator[None]:
    real = shutil.which(tool)
    if real is None:
        pytest.skip(f"there is no {tool} here")
    lab.dut.run(["mount", "-t", "tmpfs", "liar", BEFORE_PATH])
    try:
        lab.dut.put(f"#!/bin/sh\n{text.replace('REAL', real)}\n".encode(), f"{BEFORE_PATH}/{tool}", mode=0o755)
        yield
    finally:
        lab.dut.run(["umount", BEFORE_PATH])


def lied_to(lab: Lab, lab_name: str, folder: Path, tool: str, text: str) -> tuple[int, str, pd.DataFrame]:
    """Return the exit code of a run, its output with the reasons of its trials, and its table."""
    if lab.kind == "inventory":
        pytest.skip("XDPLAB_TEST_INVENTORY is set: its hosts' mounts are this test's to change in its own lab only")
    (folder / "liar.yaml").write_text(plan(BLOCK, retries=0))
    with liar(lab, tool, text):
        done = xdplab("--lab", lab_name, "run", "liar.yaml", "--out", "out", "--no-figures", cwd=folder, check=False)
    xdplab("--lab", lab_name, "restore")
    assert "Traceback" not in done.stderr
    tables = [pd.read_parquet(path) for path in folder.glob("out/*/trials.parquet")]
    table = pd.concat(tables) if tables else pd.DataFrame({"verdict": [], "reason": []})
    return done.returncode, done.stderr + " ".join(table["reason"].dropna()), table


@each_lie("ethtool", "ip")
def test_where_a_device_cannot_be_known_nothing_is_measured(
    lab: Lab, lab_name: str, tmp_path: Path, tool: str, lie: str
) -> None:
    code, said, table = lied_to(lab, lab_name, tmp_path, tool, LIES[lie])
    assert code != 0
    assert tool in said
    assert "valid" not in set(table["verdict"])
    assert table.get("rx_packets", pd.Series(dtype="Int64")).isna().all()


@each_lie("perf", "sar")
def test_what_only_describes_a_trial_is_missing_with_its_reason(
    lab: Lab, lab_name: str, tmp_path: Path, tool: str, lie: str
) -> None:
    code, said, table = lied_to(lab, lab_name, tmp_path, tool, LIES[lie])
    assert tool in said
    if code == 0:
        (row,) = table.to_dict("records")
        assert row["tx_packets"] == row["rx_packets"] > 0
        assert pd.isna(row["cycles"])


@pytest.mark.thorough
@pytest.mark.parametrize("tool", ["sadf", "sar"])
def test_what_is_not_sysstat_is_told_with_what_it_printed(lab: Lab, lab_name: str, tmp_path: Path, tool: str) -> None:
    _, said, _ = lied_to(lab, lab_name, tmp_path, tool, LIES["foreign"])
    assert "not found" not in said
    assert FOREIGN[:40] in said


def of_dut(folder: Path) -> dict[str, dict[str, str]]:
    """Return the DUT's state at the beginning, from the only run's manifest."""
    (manifest,) = folder.glob("out/[0-9]*/manifest.json")
    return dict(json.loads(manifest.read_text())["sessions"][0]["state"]["dut"])


@pytest.mark.thorough
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("tool", ["bpftool", "lscpu"])
def test_a_tool_that_is_asked_for_itself_only_changes_no_number(
    lab: Lab, lab_name: str, tmp_path: Path, tool: str, lie: str
) -> None:
    code, _, table = lied_to(lab, lab_name, tmp_path, tool, LIES[lie])
    assert code == 0
    (row,) = table.to_dict("records")
    assert row["tx_packets"] == row["rx_packets"] > 0
    kept = of_dut(tmp_path)[{"lscpu": "cpus"}.get(tool, tool)]
    wrong = {"foreign": {"value": FOREIGN}, "empty": {"absent": "it printed nothing"}}
    assert kept == wrong[lie] if lie in wrong else kept["value"]
    (run,) = tmp_path.glob("out/[0-9]*")
    xdplab("report", str(run), cwd=tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["ethtool", "ip", "sar", "perf"])
def test_a_tool_that_hangs_costs_its_deadline(lab: Lab, lab_name: str, tmp_path: Path, tool: str) -> None:
    _, said, _ = lied_to(lab, lab_name, tmp_path, tool, HANGS)
    assert tool in said


@pytest.mark.nightly
def test_a_tool_that_hangs_and_is_asked_for_itself_only_costs_its_version(
    lab: Lab, lab_name: str, tmp_path: Path
) -> None:
    code, _, table = lied_to(lab, lab_name, tmp_path, "bpftool", HANGS)
    assert code == 0
    assert set(table["verdict"]) == {"valid"}
    kept = of_dut(tmp_path)
    assert kept["bpftool"] == {"absent": "no answer within 5 s"}
    assert all("no answer" not in answer.get("absent", "") for name, answer in kept.items() if name != "bpftool")
