"""A sample of `make faults`: kills, torn writes, full and broken disks, at calls of a replayed run."""

import shutil
from collections.abc import Callable

import pytest

from tests.faults import page
from tests.faults.campaign import PROMISES, chosen, replayed, role
from tests.faults.page import CAMPAIGN

pytestmark = pytest.mark.thorough

POINTS = 104

CALLS = [
    {"number": n, "name": name, "path": path}
    for n, (name, path) in enumerate(
        [
            ("mkdir", ".0123456789abcdef.new"),
            ("write", ".0123456789abcdef.new/journal.jsonl"),
            *[("write", f"2026-11-22-sample/raw/{t}-r1/.1.partial/counters/a") for t in "abc" for _ in range(9)],
            *[("write", "2026-11-22-sample/.trials.parquet.0123abcd.partial")] * 700,
            ("unlink", "2026-11-22-sample/.trials.parquet.0123abcd.partial"),
        ],
        start=1,
    )
]


def test_a_file_s_role_is_without_what_chance_gave_it() -> None:
    paths = [
        "2026-11-22-sample/.trials.parquet.0123abcd.partial",
        ".0123456789abcdef.new/plan.yaml",
        "2026-11-22-sample-2/raw/0123-r1/.1.partial/counters/a/b",
        "2026-11-22-sample/programs/0123/xlated.bin",
    ]
    assert [role(path) for path in paths] == [
        ".trials.parquet.X",
        "plan.yaml",
        "raw/*/.N/counters",
        "programs/*/xlated.bin",
    ]


def test_each_class_has_its_points_before_any_has_more() -> None:
    """656 of the 1,303 calls write parts of one table."""
    points = chosen(CALLS, 700)
    first = points[: 4 * 7]
    assert {role(point["path"]) for point in first} == {role(call["path"]) for call in CALLS}
    assert {point["fault"] for point in first} == {"kill", "torn write", "ENOSPC", "EIO"}
    assert not [p for p in points if p["call"] == "unlink" and p["fault"] in ("ENOSPC", "EIO")]
    assert len({(p["fault"], p["number"]) for p in points}) == 700


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_nothing_is_lost_or_left_at_a_hundred_faults(record_property: Callable[[str, object], None]) -> None:
    record_property("broken", POINTS)
    outcomes = replayed(POINTS, workers=2)
    assert len(outcomes) == POINTS
    assert {outcome["fault"] for outcome in outcomes} == {"kill", "torn write", "ENOSPC", "EIO"}
    assert [o for o in outcomes if o["lost"] or o["left"] or o["words"]] == []


def test_the_page_has_the_last_result_of_each_fault() -> None:
    rows = {row.test.removeprefix(CAMPAIGN): row for row in page.read_rows() if row.test.startswith(CAMPAIGN)}
    assert rows.keys() == PROMISES.keys()
    assert sum(int(row.broken) for fault, row in rows.items() if fault != "power cut") >= 1000
    assert int(rows["power cut"].broken) >= 20
    assert all(row.kept and row.last for row in rows.values())


def test_each_promise_has_tests_that_are_there() -> None:
    promises = [row for row in page.read_rows() if not row.test.startswith(CAMPAIGN)]
    assert len(promises) >= 15
    for row in promises:
        assert row.files, row.promise
        assert all((page.ROOT / file).is_file() for file in row.files), row.test
