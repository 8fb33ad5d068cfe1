"""`xdplab study jit` end to end in a guest that counts: the kernel's own tests, classes, filters, in both modes."""

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.available import guest_kernel, or_skip
from tests.studies.command import study

from xdplab.cli import cli
from xdplab.errors import MissingToolError
from xdplab.labs.uml import lab as uml_lab
from xdplab.labs.uml import package as uml_source
from xdplab.labs.vm import architectures, kernels
from xdplab.studies.jit.points import DEFAULT_PLACE, SMALLEST_CLASSES

pytestmark = [pytest.mark.thorough, pytest.mark.guest]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    guest_kernel()
    return study(tmp_path_factory.mktemp("jit") / "results", "jit", "--smallest", "--repetitions", "1")[1]


def test_everything_is_measured_in_both_modes(results: Path):
    rows = pd.read_parquet(results / "jit.parquet")
    assert set(rows["part"]) == {"test_bpf", "classes", "filters", "traffic", "amplified", "tcp"}
    assert set(rows["unit"]) == {"instructions"}
    for mode, compiled in (("interpreter", False), ("jit", True)):
        assert (rows.loc[rows["mode"] == mode, "jited"].dropna() == compiled).all()
    tests = rows[rows["part"] == "test_bpf"]
    assert set(tests["number"]) == set(range(13))
    assert tests["classic"].all()
    assert set(rows.loc[rows["part"] == "classes", "subject"]) == set(SMALLEST_CLASSES)


def test_the_jit_is_faster_and_one_addition_is_one_instruction(results: Path):
    rows = pd.read_parquet(results / "jit.parquet")
    wide = rows.pivot_table(index=["part", "subject", "number", "name"], columns="mode", values="cost", dropna=False)
    both = wide.dropna(how="all")
    assert (both["interpreter"] > both["jit"]).all()
    cost = rows[rows["subject"] == "add64 reg"].set_index("mode")["cost"]
    assert cost["jit"] == pytest.approx(1, abs=0.05)
    assert cost["interpreter"] == pytest.approx(14, abs=0.5)
    once = rows[(rows["part"] == "filters") & rows["name"].eq("ipv4-udp") & rows["subject"].eq("ip")].set_index("mode")
    many = rows[(rows["part"] == "amplified") & rows["subject"].eq("ip")].set_index("mode")
    # another socket, the same filter
    assert many["above"].to_dict() == pytest.approx(once["above"].to_dict(), rel=0.25)
    share = rows[rows["part"] == "traffic"].set_index(["number", "mode"])["share"]
    assert 0.02 < share[18, "interpreter"] < 0.05
    assert share[18, "jit"] < share[18, "interpreter"] / 2


@pytest.mark.nightly
def test_the_kernels_own_tests_all_pass_in_both_modes(guest: None, tmp_path: Path):
    rows, *_ = study(tmp_path / "results", "jit", "--part", "test_bpf", "--repetitions", "1", "--place", DEFAULT_PLACE)
    assert rows["passed"].all()
    ran = rows[rows["case"].notna() & rows["subject"].eq("test_bpf")].drop_duplicates(["mode", "number"])
    assert ran["mode"].value_counts().min() > 1000
    assert ran.loc[ran["mode"] == "jit", "classic"].sum() == 122


def of_architecture(kernel: str) -> str:
    """Return the place of a guest of another architecture, or skip."""
    with or_skip(f"guest of {kernel}"):
        _, architecture = architectures.parted(kernel)
        assert architecture is not None
        architecture.tool()
        kernels.kernel(kernel)
    return f"vm:{kernel}"


def ratios(rows: pd.DataFrame) -> pd.Series:
    """Return the speed-up of each test that ran in both modes with a cost above 0."""
    tests = rows[rows["subject"].eq("test_bpf") & rows["cost"].gt(0)]
    costs = tests.groupby(["number", "mode"])["cost"].mean().unstack("mode").dropna()
    return costs["interpreter"] / costs["jit"]


def test_another_architecture_runs_the_same_tests_in_both_modes(tmp_path: Path):
    place = of_architecture("6.1@arm64")
    asked = ("--smallest", "--repetitions", "1", "--part", "test_bpf", "--place", place)
    rows, run, _ = study(tmp_path / "results", "jit", *asked)
    assert set(rows["number"]) == set(range(13))
    assert rows["passed"].all()
    assert (rows["jited"] == rows["mode"].eq("jit")).all()
    assert rows["kernel_release"].str.endswith("-arm64").all()
    assert set(rows["unit"]) == {"instructions"}
    assert ratios(rows).min() > 1
    sizes = rows[rows["mode"].eq("jit")].drop_duplicates("number").set_index("number")["machine_bytes"]
    assert (sizes % 4 == 0).all()  # its instructions have four bytes
    assert sizes.between(32, 4096).all()
    assert rows.loc[rows["mode"].eq("interpreter"), "machine_bytes"].isna().all()
    sessions = json.loads((run / "manifest.json").read_text())["sessions"]
    (state,) = [session["state"] for session in sessions if session["place"] == place]
    assert state["machine"] == {"value": "aarch64"}
    assert state["architecture"] == {"value": "arm64"}
    assert state["guest_qemu"]["value"].startswith("QEMU emulator version")
    assert "-icount shift=0" in state["guest_options"]["value"]
    assert "_arm64.deb sha256:" in state["kernel_packages"]["value"]


def test_user_mode_linux_runs_the_kernels_tests_in_time(tmp_path: Path):
    with or_skip("module of user-mode Linux"):
        uml_lab.require_namespaces()
        uml_source.tests_module()
    asked = ("--place", "uml", "--part", "test_bpf", "--suite", "test_bpf", "--tests", "0-70", "--repetitions", "1")
    rows, *_ = study(tmp_path / "results", "jit", *asked)
    assert set(rows["number"]) == set(range(71))  # two runs of the module: the log holds no more
    assert rows["passed"].all()
    assert not rows["jited"].dropna().any()
    assert set(rows["unit"]) == {"ns"}
    assert rows["cost"].dropna().between(1, 100_000).all()


def test_another_architecture_runs_programs_that_are_compiled_for_it(tmp_path: Path):
    place = of_architecture("6.1@arm64")
    with or_skip("compiler for arm64"):
        architectures.KNOWN["arm64"].compiler()
    rows, *_ = study(tmp_path / "results", "jit", "--part", "classes", "--class", "add64 reg", "--place", place)
    cost = rows.set_index("mode")["cost"]
    assert cost["jit"] == pytest.approx(1, abs=0.05)
    assert cost["interpreter"] > 5


def test_a_part_that_needs_a_missing_compiler_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = of_architecture("6.1@arm64")
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **how: None if name.endswith("-gcc") else found(name, **how))
    out = tmp_path / "r"
    done = CliRunner().invoke(cli, ["study", "jit", "--place", place, "--part", "classes", "--out", str(out)])
    assert isinstance(done.exception, MissingToolError)
    assert "aarch64-linux-gnu-gcc" in str(done.exception)
    assert not out.exists()


def test_a_compiler_without_its_c_library_is_refused_with_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """gcc-aarch64-linux-gnu without what it recommends: the error of a build named gcc-multilib, a package of x86."""
    compiler = tmp_path / "aarch64-linux-gnu-gcc"
    compiler.write_text("#!/bin/sh\necho crt1.o\n")  # as gcc answers for a file that it does not find
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MissingToolError) as refused:
        architectures.KNOWN["arm64"].compiler()
    assert "libc6-dev-arm64-cross" in str(refused.value)


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", ["6.1@arm64", "6.12@riscv64"])
def test_every_test_of_another_architecture_is_compiled_and_passes(kernel: str, tmp_path: Path):
    place = of_architecture(kernel)
    rows, *_ = study(tmp_path / "results", "jit", "--repetitions", "1", "--place", place)
    assert rows["passed"].all()
    ran = rows[rows["jited"].notna()]
    assert (ran["jited"] == ran["mode"].eq("jit")).all()
    assert rows.loc[rows["subject"].eq("test_bpf"), "number"].nunique() > 1000
    assert 3 < ratios(rows).mean() < 10
