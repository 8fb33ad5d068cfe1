"""Studies execution and loading in guests of another architecture, end to end."""

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.available import or_skip
from tests.studies.command import study

from xdplab.labs.vm import headers, kernels
from xdplab.studies.guests import architecture_of

pytestmark = pytest.mark.guest


def available(place: str) -> str:
    """Return the place, or skip without its QEMU, kernel, compiler or libraries."""
    with or_skip(place):
        architecture = architecture_of(place)
        assert architecture is not None
        architecture.tool()
        architecture.compiler()
        headers.folder(architecture)
        kernels.kernel(place.removeprefix("vm:"))
    return place


def executed(place: str, out: Path) -> tuple[pd.DataFrame, Path, str]:
    few = ("--benchmark", "primes", "--benchmark", "array 100", "--no-cold")
    return study(out, "execution", "--place", place, *few)


def test_arm64_counts_in_every_backend(tmp_path: Path) -> None:
    place = available("vm:6.1@arm64")
    with or_skip("module of arm64"):
        headers.tree("6.1@arm64")
    rows, path, _ = executed(place, tmp_path / "runs")
    assert set(rows["backend"]) == {"interpreter", "jit", "module", "user"}
    assert rows["elapsed_ns"].isna().all()
    settled = rows[rows["call"] >= 5]
    found = settled.groupby(["benchmark", "backend"])["instructions"].median()
    assert found["primes", "interpreter"] > 5 * found["primes", "jit"]
    compiled = rows.groupby("backend")["jited_bytes"].first()
    assert compiled["interpreter"] == 0 < compiled["jit"]
    sessions = json.loads((path / "manifest.json").read_text())["sessions"]
    state = next(one["state"] for one in sessions if one["place"] == place)
    assert state["machine"] == {"value": "aarch64"}
    assert "libbpf1" in state["libraries"]["value"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "backends"),
    [("vm:7.2@riscv64", {"interpreter", "jit", "user"}), ("vm:6.1@ppc64el", {"interpreter", "jit"})],
)
def test_what_an_architecture_does_not_have_is_told_before_anything_runs(
    place: str, backends: set[str], tmp_path: Path
) -> None:
    rows, _, output = executed(available(place), tmp_path / "runs")
    assert set(rows["backend"]) == backends
    for backend in {"module", "user"} - backends:
        assert f"{place}: {backend} is left out: " in output


def test_arm64_loads_and_says_what_it_has_not(tmp_path: Path) -> None:
    place = available("vm:6.1@arm64")
    few = ("--smallest", "--accesses", "100")
    rows, _, output = study(tmp_path / "runs", "loading", "--place", place, *few)
    loads = rows[rows["task"].eq("load") & rows["source"].eq("system call")]
    kinds = {"bpf", "module"} if "modules are left out" not in output else {"bpf"}
    assert set(loads["kind"]) == kinds
    assert rows.loc[rows["task"].eq("load"), "ns"].isna().all()
    assert loads["instructions"].dropna().gt(0).all()
    assert {"libbpf"} <= set(rows.loc[rows["task"].eq("process"), "kind"]) <= {"libbpf", "busybox"}
    assert "insmod and bpftool are left out" in output
