"""`xdplab study verifier` end to end on this machine's kernel: measured, killed, resumed, tabled, drawn."""

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.studies.verifier.objects import GLOBALS

from xdplab.cli import cli
from xdplab.errors import LabError
from xdplab.labs.vm import kernels
from xdplab.run.state import read_state
from xdplab.studies.kinds import open_run
from xdplab.studies.study_kind import failures
from xdplab.studies.verifier.compare_programs import ComparisonOptions, compared, side_of_run
from xdplab.studies.verifier.generated import find_compilers
from xdplab.studies.verifier.runs import STUDY, VerifierRequest
from xdplab.studies.verifier.study import VerifierFacts, VerifierStudy

pytestmark = pytest.mark.root
NOTHING_ELSE = ("--family", "none", "--no-testbed", "--no-largest", "--repetitions", "2", "--loads", "3")


@pytest.fixture
def objects(verify, compile_member, tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for n in range(1, 10):
        (folder / f"loop{n}.o").write_bytes(compile_member("double_strcmp", n).read_bytes())
    (folder / "too-large.o").write_bytes(compile_member("pruning", 60).read_bytes())
    return folder


def spoken(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def command(*arguments: str) -> str:
    return spoken("study", "verifier", *arguments)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_command_from_objects_to_tables_and_figures(objects: Path, tmp_path: Path):
    said = command(str(objects), *NOTHING_ELSE, "--out", str(tmp_path / "results"))
    (path,) = (tmp_path / "results").iterdir()
    table = pd.read_parquet(path / "verifier.parquet")
    assert len(table) == 20
    assert table["verdict"].value_counts().to_dict() == {"accepted": 18, "complexity": 2}
    assert (table.groupby("sha256")["processed_insns"].nunique() == 1).all()
    assert table["verify_ns"].notna().all()
    assert "more instructions to process than the limit" in (path / "tables" / "acceptance.md").read_text()
    for name in ("time", "memory", "states"):
        assert (path / "figures" / f"{name}.svg").stat().st_size > 1000 or "peak" in said
        assert (path / "figures" / f"{name}.md").exists()
    assert "PREVAIL" in said
    assert str(tmp_path) not in (path / "points.json").read_text()
    page = spoken("study", "published", str(path))
    assert (path / "tables" / "paper.md").read_text().splitlines()[-1] in page
    assert "9 of 10" in page


def _require_told_apart(usual: Path, given: Path, words: str) -> None:
    """The two runs have no point in common, their figures' labels differ, and a comparison per program names both."""
    rows = [pd.read_parquet(run / "verifier.parquet") for run in (usual, given)]
    assert not set(rows[0]["trial_id"]) & set(rows[1]["trial_id"])
    assert [set(table["given"].dropna()) for table in rows] == [set(), {words}]
    (plain,), (named,) = (set(table["label"]) for table in rows)
    assert named == f"{plain} ({words})"
    a, b = (open_run(run) for run in (usual, given))
    both = compared(side_of_run(a), side_of_run(b), ComparisonOptions())
    assert [words in name for name in both.names] == [False, True]
    assert len(both.programs) == 1
    points = a.compare(b, "memory_bytes").decision.points
    assert points["ratio"].isna().tolist() == points["reason"].notna().tolist() == [True, True]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("option", "column", "factor"), [("flag", "total_states", 1), ("globals", "processed_insns", 5)]
)
def test_what_programs_are_given_changes_the_verifiers_work_and_is_kept(
    compile_member, compile_text, tmp_path: Path, option: str, column: str, factor: int
):
    table = tmp_path / "mine.globals"
    table.write_text("* rounds 50\n")
    path, value, tool, words = {
        "flag": (compile_member("branches", 20), "test_state_freq", "program flags", "test_state_freq"),
        "globals": (compile_text(GLOBALS), str(table), "global variables", f"globals {sha256(table)[:12]}"),
    }[option]
    for name, options in (("usual", ()), ("given", (f"--{option}", value))):
        command(str(path), *NOTHING_ELSE, *options, "--out", str(tmp_path), "--name", name)
    (usual,), (given,) = tmp_path.glob("*-usual"), tmp_path.glob("*-given")
    work = [pd.read_parquet(run / "verifier.parquet")[column].max() for run in (usual, given)]
    assert work[1] > factor * work[0]
    assert [tool in (run / "manifest.json").read_text() for run in (usual, given)] == [False, True]
    assert option == "flag" or (given / "globals.txt").read_text() == table.read_text()
    _require_told_apart(usual, given, words)


def test_a_flag_changes_the_lines_work(compile_member):
    path = str(compile_member("branches", 20))
    usual, often = (spoken("study", "lines", path, "--json", *flags) for flags in ((), ("--flag", "test_state_freq")))
    assert json.loads(usual) != json.loads(often)


@pytest.mark.thorough
def test_a_run_that_was_ended_goes_on_where_it_stopped(objects: Path, tmp_path: Path, monkeypatch):
    request = VerifierRequest(
        objects=(str(objects),), families=(), testbed=False, largest=False, repetitions=1, loads=1
    )
    run = STUDY.start(request, tmp_path / "results")
    measured = 0

    def stop_at_four(self: VerifierStudy, trial: object, raw: Path, facts: VerifierFacts) -> None:
        nonlocal measured
        measured += 1
        if measured > 4:
            raise KeyboardInterrupt
        original(self, trial, raw, facts)

    original = VerifierStudy.measure
    monkeypatch.setattr(VerifierStudy, "measure", stop_at_four)
    with pytest.raises(KeyboardInterrupt):
        run.measure()
    monkeypatch.undo()
    assert read_state(run.directory).counts["measured"] == 4
    assert "Not measured: 6 trials of host" in spoken("study", "published", str(run.directory.path))
    assert "10 trials: 10 measured" in spoken("resume", str(run.directory.path))
    assert json.loads(command("--resume", str(run.directory.path), "--json"))["status"]["measured"] == 10
    assert "Not measured" not in spoken("study", "published", str(run.directory.path))
    assert max(a.attempt for a in read_state(run.directory).attempts) == 1  # nothing was measured twice


def test_audit_and_figures_take_a_study_s_run_too(tmp_path: Path):
    run = STUDY.start(VerifierRequest(families=("branches",), testbed=False, largest=False, smallest=True), tmp_path)
    assert "trials were not tried yet" in spoken("audit", str(run.directory.path))
    assert "no such program" in spoken("figures", str(run.directory.path), "--why")


@pytest.mark.nightly
def test_the_sweep_reaches_the_limit_with_every_compiler(tmp_path: Path, verify):
    request = VerifierRequest(families=("double_strcmp",), mcpus=("v2", "v3"), testbed=False, repetitions=1, loads=1)
    run = STUDY.start(request, tmp_path / "results")
    run.measure()
    assert not failures(run.plan)
    over = run.rows()[lambda t: t["verdict"] == "complexity"]
    assert set(over["compiler"]) == {c.name for c in find_compilers()}
    largest = run.tables()["largest"].frame
    assert len(largest) == 2 * len(find_compilers())
    for column in largest.columns[1:]:
        assert largest[column].between(100, 400).all()


@pytest.mark.nightly
@pytest.mark.guest
def test_two_guest_kernels_count_what_this_machine_cannot(objects: Path, tmp_path: Path):
    kernels_ = [word for kernel in ("host", "5.10", "6.1") for word in ("--kernel", kernel)]
    command(str(objects), *NOTHING_ELSE, *kernels_, "--out", str(tmp_path / "r"))
    (path,) = (tmp_path / "r").iterdir()
    table = pd.read_parquet(path / "verifier.parquet")
    guests = table[table["clock"] == "instructions"]
    assert set(guests["kernel"]) == {"5.10", "6.1"}
    assert guests["verify_ns"].isna().all()
    assert guests["verify_instructions"].notna().all()
    assert guests.loc[guests["verdict"] == "accepted", "branches"].notna().any()


@pytest.mark.thorough
def test_the_notebook_runs_from_its_first_cell_to_its_last(verify, tmp_path: Path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(Path(__file__).parents[3] / "notebooks" / "07_verifier.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    shown = [o for c in notebook.cells for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]
    assert len(shown) == 3


@pytest.mark.guest
@pytest.mark.nightly
@pytest.mark.usefixtures("_own_kernels_go")
def test_a_kernel_of_ones_own_boots_beside_a_distributions(objects: Path, tmp_path: Path):
    """Debian's own image under another name: equal verdicts and counts. Without its modules it is refused."""
    debians = kernels.kernel("6.12")
    image = tmp_path / "my-vmlinux"
    image.write_bytes(debians.file("vmlinux").read_bytes())
    modules = str(debians.file("lib/modules") / debians.release)
    argv = [str(objects / "loop3.o"), *NOTHING_ELSE, "--out", str(tmp_path / "results")]
    with pytest.raises(LabError, match="no share of the host's root"):
        command(*argv, "--kernel", str(image))
    assert not (tmp_path / "results").exists()
    command(*argv, "--kernel", "6.12", "--kernel", str(image), "--modules", modules)
    (path,) = (tmp_path / "results").iterdir()
    table = pd.read_parquet(path / "verifier.parquet")
    assert table["kernel"].nunique() == table["label"].nunique() == 2
    assert table["processed_insns"].nunique() == 1
    assert set(table["verdict"]) == {"accepted"}
    assert f"sha256:{sha256(image)}" in (path / "manifest.json").read_text()
