"""Costs counted in guests of arm64: exact in each boot, equal to what an interpreter of the machine code executes."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.entry import ending_with_output
from tests.studies.cost.interpreter import interpreted
from tests.studies.test_other_architectures import available

from xdplab.errors import LabError, PlanError
from xdplab.studies import kinds
from xdplab.studies.cost.counts import measurement_in
from xdplab.studies.cost.gathering import gather
from xdplab.studies.cost.points import CostRequest
from xdplab.studies.kind import Run
from xdplab.studies.plugin import AARCH64, Disassembled, arm64_accesses, disassembled

pytestmark = pytest.mark.guest

KERNEL = "6.12@arm64"
SIZES = (0, 10, 320, 640)


def _counted(folder: Path) -> Run[Any]:
    available(f"vm:{KERNEL}")
    words = [f"array:{size}" for size in SIZES]
    code, output, error = ending_with_output(["cost", *words, "--kernel", KERNEL, "--out", str(folder)])
    assert code == 0, output + error
    (path,) = folder.iterdir()
    return kinds.open_run(path)


def _exact(rows: pd.DataFrame, part: str, size: int) -> Fraction:
    (exact,) = rows.loc[rows["part"].eq(part) & rows["program"].eq(f"array:{size}"), "exact"]
    return Fraction(exact)


def _loop(raw: Path) -> list[Disassembled]:
    """Return the instructions from the place that the program's only branch back goes to, up to that branch."""
    (function,) = [one for one in measurement_in(raw).functions if one.role == "program"]
    code = disassembled(function.code, function.start, AARCH64)
    conditional = [one for one in code if one.name.startswith("b.")]
    (back,) = [one for one in conditional if int(one.operands, 16) < one.address]
    return [one for one in code if int(back.operands, 16) <= one.address <= back.address]


def test_a_packet_costs_the_same_in_each_boot_and_what_its_machine_code_executes(tmp_path: Path) -> None:
    """Two methods beside the count: unicorn runs the code that the JIT made; the loop's body is counted by hand."""
    first, second = (_counted(tmp_path / name) for name in ("first", "second"))
    rows = first.rows()
    counts = ["program", "part", "name", "line", "exact", "loads", "stores", "branches"]
    exact = [table.loc[table["exact"].notna(), counts].astype(str).values.tolist() for table in (rows, second.rows())]
    assert exact[0] == exact[1]
    assert len({_exact(rows, "path", size) for size in SIZES}) == 1
    for trial, _, raw in first.plan.attempts():
        (frame,) = (first.directory.path / trial.point.frames).read_text().split()
        size = int(trial.point.program.partition(":")[2])
        assert _exact(rows, "program", size) == len(interpreted(measurement_in(raw), bytes.fromhex(frame)))
        if size == SIZES[-1]:
            loop = _loop(raw)
            a_pass = sum(arm64_accesses(one.name, one.operands)[0] for one in loop)
            more = _exact(rows, "program", SIZES[-1]) - _exact(rows, "program", SIZES[-2])
            assert more == Fraction(SIZES[-1] - SIZES[-2], a_pass) * len(loop)


@pytest.mark.parametrize(
    ("kernel", "mode", "words"),
    [
        (KERNEL, "af_xdp", "af_xdp is not counted"),
        ("7.2@riscv64", "native", "nothing is counted in a guest of riscv64"),
    ],
)
def test_what_is_not_counted_is_refused_before_anything_boots(kernel: str, mode: str, words: str) -> None:
    available(f"vm:{KERNEL}")
    with pytest.raises((PlanError, LabError), match=words):
        gather(CostRequest(programs=("array:10",), kernels=(kernel,), modes=(mode,)))


def test_a_machine_without_the_compiler_is_told_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    available(f"vm:{KERNEL}")
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name.endswith("-gcc") else f"/usr/bin/{name}")
    with pytest.raises(LabError) as refused:
        gather(CostRequest(programs=("array:10",), kernels=(KERNEL,)))
    assert "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" in str(refused.value.remedy)
