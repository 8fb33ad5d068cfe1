"""`xdplab study execution --smallest`, end to end: all four backends counted, two of them timed in user-mode Linux."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mode

import pandas as pd
import pytest
from tests.available import guest_kernel, unused
from tests.studies.command import study

from xdplab import labs
from xdplab.studies.execution.points import SMALLEST

COUNTED = "vm:6.1:count"
NEW_SECOND = 6
"""Instructions more of a look at the clock in user space, between a second's begin and the next tick: until then it is
the vDSO that carries the second."""
PAIR = Path(__file__).resolve().parents[3] / "docs/examples/pair/pair.yaml"
NOTEBOOK = Path(__file__).resolve().parents[3] / "notebooks/06_execution.ipynb"
# It switches the JIT of this machine, if it can.
pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.guest, pytest.mark.machine]


@pytest.fixture(scope="module", autouse=True)
def guests() -> None:
    guest_kernel()
    unused(COUNTED, "uml")  # this test would change their JIT


@pytest.fixture(scope="module")
def smallest(guests: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path, str]:
    return study(tmp_path_factory.mktemp("smallest") / "runs", "execution", "--smallest")


@pytest.fixture(scope="module")
def second_boot(smallest) -> Iterator[None]:
    """A separate guest for the tests after the first run, held so that it boots only once."""
    with labs.use_lab(COUNTED):
        yield


def counts(table: pd.DataFrame) -> pd.Series:
    counted = table[table["clock"] == "instructions"]
    return counted.groupby(["backend", "benchmark"])["instructions"].median()


def test_every_backend_is_counted_in_one_guest(smallest) -> None:
    table, _, _ = smallest
    found = counts(table).unstack("backend")
    assert set(found.columns) == {"interpreter", "jit", "module", "user"}
    assert set(found.index) == set(SMALLEST)
    assert found.notna().all(axis=None)
    assert (found["interpreter"] > found["module"]).all()
    assert found.loc["matrix", "interpreter"] > 5 * found.loc["matrix", "jit"]
    counted = table[table["clock"] == "instructions"]
    assert counted["elapsed_ns"].isna().all()  # a count is not a time


def test_interpreted_is_what_has_no_machine_code(smallest) -> None:
    table, _, _ = smallest
    assert (table.loc[table["backend"] == "interpreter", "jited_bytes"] == 0).all()
    assert (table.loc[table["backend"] == "jit", "jited_bytes"] > 0).all()


def test_times_are_of_places_that_have_time(smallest) -> None:
    table, _, said = smallest
    timed = table[table["clock"] == "time"]
    assert {"host", "uml"} <= set(timed["place"])
    assert set(timed.loc[timed["place"] == "uml", "backend"]) == {"interpreter", "module"}
    on_host = set(timed.loc[timed["place"] == "host", "backend"])
    if Path("/proc/sys/net/core/bpf_jit_enable").exists():
        assert {"jit", "user"} <= on_host
    else:  # in a network namespace of the tests' own
        assert on_host == {"user"}
        assert "bpf_jit_enable is not visible in this network namespace" in " ".join(said.split())
    assert timed.loc[timed["place"] == "host", "elapsed_ns"].gt(0).mean() > 0.99
    assert timed.loc[timed["benchmark"] == "primes", "elapsed_ns"].gt(0).all()
    assert timed["instructions"].isna().all()


def test_all_backends_give_the_same(smallest) -> None:
    table, _, _ = smallest
    same = table[~table["benchmark"].isin(["clock sum"]) & table["call"].lt(15)]
    assert (same.groupby(["benchmark", "call"])["result"].nunique() == 1).all()
    assert set(table.loc[table["benchmark"] == "primes", "result"]) == {"25"}


def test_the_proofs_counts_are_kept_and_are_the_clocks(smallest) -> None:
    """The plugin of one guest, and the clock of another."""
    table, path, _ = smallest
    proved = json.loads((path / "objects/counts.json").read_text())
    assert {name.rpartition(", ")[0] for name in proved} == set(SMALLEST)
    of_clock = counts(table)
    for backend, wrapper in (("jit", "bpf"), ("module", "module"), ("user", "user")):
        for benchmark in SMALLEST:
            warm = [call["elapsed"] for call in proved[f"{benchmark}, {wrapper}"]["calls"][5:]]
            elapsed = mode(warm)  # a tick of the guest may fall into a call
            assert warm.count(elapsed) > len(warm) / 2, warm
            apart = abs(of_clock[backend, benchmark] - elapsed)
            assert apart <= 1 or (backend == "user" and abs(apart - NEW_SECOND) <= 1), (backend, benchmark, apart)


@pytest.mark.nightly
def test_the_notebook_runs_from_its_first_cell_to_its_last_and_counts_the_same(
    smallest, second_boot, tmp_path: Path
) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    shown = [o for c in notebook.cells for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]
    assert len(shown) == 4
    (path,) = (tmp_path / "results").glob("*-execution")
    first, second = counts(smallest[0]), counts(pd.read_parquet(path / "execution.parquet"))
    assert len(second) == 4 * 4
    assert ((second / first.loc[second.index] - 1).abs() <= 0.001).all()


def test_a_users_own_pair_is_measured_in_all_three_ways(second_boot, tmp_path: Path) -> None:
    table, _, _ = study(tmp_path / "own", "execution", "--config", str(PAIR), "--place", COUNTED, "--repetitions", "1")
    assert table["own"].all()
    found = counts(table).droplevel("benchmark")
    assert set(found.index) == {"interpreter", "jit", "module"}
    assert found["interpreter"] > 2 * found["jit"] > found["module"]
    assert (table.groupby("backend")["call"].count() == 100).all()
