"""Two changes that CONTRIBUTING.md describes, made to a copy as it says: what they promise then holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FACTOR = """
from xdplab.plan import parse_plan, points_of
block = {"points": {"accesses": 0}, "traffic": {"ttl": [64, 1]}}
default, other = points_of(parse_plan({"name": "p", "lab": "netns", "blocks": [block]}), "shared")
(former,) = points_of(parse_plan({"name": "p", "lab": "netns", "blocks": [{"points": {"accesses": 0}}]}), "shared")
assert (default.ttl, other.ttl) == (64, 1)
assert default.point_id == former.point_id != other.point_id
"""
DRIVER = """
from xdplab.counters.drivers import driver_of
row = driver_of({"rx0_frames": 1, "rx1_frames": 2, "rx_no_room": 0}, "mynic")
assert row is not None and row.source.endswith("mynic_get_stats")
"""


@pytest.mark.parametrize(
    ("heading", "proof", "page"),
    [("A new factor", FACTOR, "reference/factors.md"), ("A new driver", DRIVER, "reference/nic-counters.md")],
)
def test_a_change_made_as_the_page_says_works(heading: str, proof: str, page: str, tmp_path: Path) -> None:
    steps = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (row,) = re.findall(r"^ {7}(\S.*\n)", steps, re.MULTILINE)
    named = re.search(r"the end of `(\w+)` in `(src/\S+)`", steps)
    assert named
    compiling = shutil.ignore_patterns("*.pyc.*")  # by another process at this moment
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=compiling)
    file = tmp_path / named[2]
    head, table, rest = file.read_text().partition(f"\n{named[1]}")
    rows, end, tail = rest.partition("\n)")
    file.write_text(f"{head}{table}{rows}\n    {row.rstrip()}{end}{tail}")

    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    subprocess.run([sys.executable, "-c", proof], env=env, cwd=tmp_path, check=True)
    (command,) = re.findall(r"`python (-m xdplab.cli.pages docs --kept)`", steps)
    subprocess.run([sys.executable, *command.split()], env=env, cwd=tmp_path, check=True)
    (added,) = {*(tmp_path / "docs" / page).read_text().splitlines()} - {
        *(ROOT / "docs" / page).read_text().splitlines()
    }
    assert row.split('"')[1] in added
