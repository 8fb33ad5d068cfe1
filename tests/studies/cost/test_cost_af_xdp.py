"""Mode af_xdp of `cost`: the application's instructions in user space, exact, beside those of its program."""

from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.entry import ending_with_output
from tests.studies.cost.interpreter import interpreted_workload

from xdplab.errors import PlanError
from xdplab.studies import kinds
from xdplab.studies.cost.gathering import gather
from xdplab.studies.cost.points import TWIN, CostRequest

PROGRAMS = ("array:0", "array:1", "array:1600", "packet:10", "chase:10")


@pytest.mark.guest
@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["5.10", "6.12"])
def test_the_application_takes_its_loop_and_what_an_interpreter_of_the_workload_executes(
    kernel: str, tmp_path: Path
) -> None:
    code, output, error = ending_with_output(
        ["cost", *PROGRAMS, "--mode", "af_xdp", "--kernel", kernel, "--out", str(tmp_path)]
    )
    assert code == 0, output + error
    (path,) = tmp_path.iterdir()
    run = kinds.open_run(path)
    rows = run.rows()
    loops = set()
    for trial in run.plan.trials:
        point = trial.point
        library = (path / point.object / TWIN).read_bytes()
        frame = bytes.fromhex((path / point.frames).read_text().split()[0])
        of_trial = rows.loc[rows["program"].eq(point.program)].set_index(["part", "name"])["instructions"]
        workload = of_trial["function", "workload.so:xdplab_workload"]
        assert workload == interpreted_workload(library, frame), point
        (whole,) = rows.loc[rows["program"].eq(point.program) & rows["part"].eq("application"), "exact"]
        loops.add(Fraction(whole) - int(workload))
    (loop,) = loops
    assert 30 < loop < 80
    assert rows.loc[rows["part"].eq("program"), "exact"].nunique() == 1, "it redirects, whatever the workload"
    assert rows.loc[rows["part"].eq("whole"), "came_back"].eq(1).all()
    assert "of the application" in run.tables()["cost"].frame


def test_a_program_of_ones_own_runs_in_no_user_space(tmp_path: Path) -> None:
    program = tmp_path / "mine.bpf.c"
    program.write_text('__attribute__((section("xdp"), used)) int mine(void *context) { return 2; }\n')
    with pytest.raises(PlanError, match="workload"):
        gather(CostRequest(programs=(str(program),), modes=("af_xdp",)))
