"""Real runs with a fault, and a soak: the parts of their tables; `nightly` strikes each kind of process once."""

import os
import shutil
from pathlib import Path

import pytest

from tests.faults import campaign, page, real, soak

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


def test_a_part_of_the_campaign_leaves_the_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# x\n\n{page.BEGIN}\n{page.END}\nbetween\n{soak.BEGIN}\nold\n{page.END}\nafter\n")
    monkeypatch.setattr(page, "PAGE", path)
    one = {"call": "write", "path": "a", "lost": [], "left": [], "words": [], "recover_s": 1.0}
    page.write_page([page.Row("A promise", "`tests/x/test_y.py`")])
    page.write_page(campaign.rows_of([one | {"fault": "kill"}]))
    page.write_page(campaign.rows_of([one | {"fault": "EIO", "lost": ["a"]}, one | {"fault": "EIO"}]))
    assert [row.kept for row in page.read_rows()] == [True, True, False]
    page.write_page(campaign.rows_of([one | {"fault": "EIO", "call": "open"}, one | {"fault": "EIO"}]))
    page.put(soak.BEGIN, ["new"])
    assert path.read_text().endswith(f"{page.END}\nbetween\n{soak.BEGIN}\nnew\n{page.END}\nafter\n")
    assert [(row.test, row.broken, row.held, row.lost, row.last) for row in page.read_rows()] == [
        ("`tests/x/test_y.py`", "", "", "", ""),
        ("`make faults`: kill", "1", "1", "0", page.today()),
        ("`make faults`: EIO", "2", "2", "0", page.today()),
    ]


def test_a_promise_is_held_as_often_as_its_tests_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['lab', 'nightly']\n")
    (tmp_path / "tests" / "test_y.py").write_text(
        "import pytest\ndef test_a(record_property): record_property('broken', 104)\ndef test_b(): assert 0\n"
        "@pytest.mark.skip\ndef test_c(): assert 0\n@pytest.mark.nightly\ndef test_d(): assert 0\n"
    )
    row = page.tested(page.Row("A promise", "`tests/test_y.py`, `make fuzz`"))
    assert (row.broken, row.held, row.kept, row.last) == ("105", "104", False, page.today())
    nightly = page.tested(page.Row("A promise", "`tests/test_y.py` (nightly)"))
    assert (nightly.broken, nightly.held) == ("106", "104")
    (tmp_path / "tests" / "test_y.py").write_text("import pytest\n@pytest.mark.skip\ndef test_c(): assert 0\n")
    assert page.tested(row) == row, "nothing could be tried here"


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
    looks, _, bad = soak.soak(32, 6)
    assert bad == []
    assert looks[-1].faults >= 4
