"""Real runs with a fault, and a soak: what their tables are made of; `nightly` strikes each kind of process once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.faults import campaign, real, soak

needs_tools = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("strace", "bpftool", "nsenter"))),
    reason="needs root, strace, bpftool and nsenter: makes namespaces and strikes processes in them",
)


def look(objects: int = 6, **changes: int) -> soak.Look:
    held = {"controller_bytes": 200 << 20, "controller_files": 7, "keeper_bytes": 13 << 20, "keeper_files": 12}
    return soak.Look(1, 0, 1.0, **(held | changes), objects=objects)


def test_each_kind_of_process_is_killed_at_thirty_places() -> None:
    points = real.kills()
    assert len(points) >= 30
    assert {point.role for point in points} == {"controller", *real.ROLES}
    assert len({point.detail for point in points}) == len(points)


def test_what_grows_in_a_soak_is_told() -> None:
    flat = [look(), look(), look(9), look(), look(9)]
    assert soak.grown(flat) == []
    assert soak.grown([*flat, look(controller_bytes=211 << 20)]) == ["the controller grew by 11.0 MB"]
    assert soak.grown([*flat, look(keeper_files=40)]) == ["the keeper has 28 more open files"]
    assert soak.grown([*flat, look(30)]) == ["at most 30 BPF objects, 9 in the first half"]


def test_a_part_of_the_campaign_leaves_the_rows_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# x\n\n{campaign.BEGIN}\n{campaign.END}\nafter\n")
    monkeypatch.setattr(campaign, "PAGE", page)
    one = {"call": "write", "path": "a", "lost": [], "left": [], "words": [], "recover_s": 1.0}
    campaign.write_page(campaign.table([one | {"fault": "kill"}]))
    campaign.write_page(campaign.table([one | {"fault": "EIO", "lost": ["a"]}]))
    campaign.write_page(campaign.table([one | {"fault": "EIO"}]))
    text = page.read_text()
    assert text.endswith(f"{campaign.END}\nafter\n")
    assert [line.split(" | ")[:4] for line in text.splitlines() if line.startswith(("| kill", "| EIO"))] == [
        ["| kill", "1", "1", "0"],
        ["| EIO", "1", "1", "0"],
    ]


@pytest.mark.nightly
@pytest.mark.lab
@needs_tools
def test_nothing_is_lost_or_left_where_each_kind_of_process_is_struck() -> None:
    first = {point.role: point for point in reversed(real.kills())}
    outcomes = real.struck([*first.values(), *real.stops()[:2], *real.others()])
    assert [outcome for outcome in outcomes if outcome["lost"] or outcome["left"] or outcome["words"]] == []


@pytest.mark.nightly
@pytest.mark.lab
@needs_tools
def test_thirty_trials_with_a_fault_in_six_leave_memory_and_files_as_they_were() -> None:
    looks, bad = soak.soak(32, 6)
    assert bad == []
    assert looks[-1].faults >= 4
