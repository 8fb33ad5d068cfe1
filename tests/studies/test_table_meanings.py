"""Below a table stands what it means: made from its rows, of exact counts, or where an interval supports it."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.oracle.kinds import RECORDED
from tests.unpack import unpacked

from xdplab.analysis.sentences import estimate
from xdplab.cli import cli
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.studies.meaning import ranging, supported, table_with_line

FACTS = {
    "cost": {"cost": ["450", "363"], "lines": ["19 of 87"], "functions": ["bpf_test_run", "26 %"]},
    "execution": {
        "medians": ["1.04", "2.13"],
        "primes": ["1.09 [1.07, 1.11]", "2.05", "15.12"],
        "causes": ["0.96", "16.5"],
        "chains": ["273", "31", "17"],
        "work": ["0.0 %"],
    },
    "jit": {
        "speed-up": ["4.2", "16", "4.63"],
        "architectures": ["13 tests", "13 compiled"],
        "kinds": ["5.17"],
        "results": ["13 of 13"],
        "test_bpf": ["3.54", "LD_ABS_LL", "6.68"],
        "classes": ["4.2", "call helper", "16"],
        "filters": ["3.34 (ip ipv4-dhcp)", "4.63 (seccomp granted)"],
        "traffic": ["1.9 to 2.9 %", "0.53 to 0.8 %"],
        "amplified": ["3.85"],
        "tcp": ["1.1 to 2.1 %", "0.29 to 0.61 %"],
    },
    "loading": {
        "bpf": ["31 %", "80 %"],
        "module": ["31.4", "1.3"],
        "versus": ["0.771", "28.3"],
        "crosscheck": ["7.6 %"],
        "memory-bpf": ["66.5"],
        "memory-module": ["1.33"],
        "start": ["2,340 [2,330, 2,350]"],
        "processes": ["0.14", "busybox rmmod", "0.998"],
    },
    "neighbour": {"arms": ["0.328", "XDP_PASS native"]},
    "outage": {"outage": ["repetitions"]},
    "offload": {"kernels": ["19 of 19"], "offload-vm-6.1": ["3 at load", "2 at attach"]},
    "search": {"searches": ["2008 to 2341"]},
    "verifier": {
        "corpora": ["16 of 20"],
        "acceptance-generated": ["18 of 20"],
        "largest": ["140", "169 to 171"],
        "paper": ["7 of 7"],
    },
}
UNTOLD = {"loading": ["compile"]}
"""Tables of times that were measured once: no interval, no line."""


@pytest.mark.parametrize("name", FACTS)
def test_each_table_of_a_recorded_run_has_its_line(name: str, tmp_path: Path) -> None:
    unpacked(RECORDED[name].archive, tmp_path)
    run: Run[Any] = open_run(tmp_path / name)
    meanings = {table: made.meaning for table, made in run.tables().items()}
    assert [table for table, line in meanings.items() if not line] == UNTOLD.get(name, [])
    assert [*meanings] == [table for table in meanings if table in FACTS[name] or not meanings[table]]
    missing = [fact for table, facts in FACTS[name].items() for fact in facts if fact not in meanings[table]]
    assert missing == []
    shown = CliRunner().invoke(cli, ["show", str(run.directory.path)]).output
    lines = " ".join(shown.split()).lower()
    told = {table: lines.count(line.rstrip(".").lower()) for table, line in meanings.items() if line}
    assert [table for table, times in told.items() if times != 1] == []


def rows(unit: str, *values: float) -> pd.DataFrame:
    keys = {"name": [*"abcd"[: len(values)]], "on": [*"xyxy"[: len(values)]]}
    return pd.DataFrame({"place": "here", "unit": unit, **keys, "ratio": values})


@pytest.mark.parametrize(
    ("shown", "facts"),
    [
        (rows("instructions", 3.0, 2.0, 4.0), ["2 (b)", "4 (c)"]),
        (rows("instructions", 20.0, 2.0, 5.0, 6.0).assign(name=[*"aabb"]), ["2 (a y)", "20 (a x)"]),
        (rows("instructions", 3.0), ["3"]),
        (rows("ns", 3.0, 2.0, 4.0), []),
        (rows("instructions", float("nan")), []),
        (rows("instructions"), []),
        (rows("instructions", 3.0).assign(place="there (published)"), []),
    ],
)
def test_a_range_is_of_exact_counts_of_this_run(shown: pd.DataFrame, facts: list[str]) -> None:
    line = table_with_line("t", shown, ranging("ratio", ["name", "on"], "it is", "times"), shown).meaning
    assert bool(line) == bool(facts)
    assert [fact for fact in facts if fact not in line] == []


NONE = float("nan")


@pytest.mark.parametrize(("ends", "told"), [((2, 1.9, 2.1), True), ((2, NONE, NONE), False), ((2, 0.5, 8), False)])
def test_a_measured_value_is_told_if_its_interval_supports_it(ends: tuple[float, float, float], told: bool) -> None:
    values = [("a", estimate(1.0, 0.9, 1.1)), ("b", estimate(*ends))]
    assert bool(supported(values, "times")) == told
