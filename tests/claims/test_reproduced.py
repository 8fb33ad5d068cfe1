"""Somebody's claims are judged on this machine, beside what they measured; a run with claims shows them itself."""

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import xdplab as xl
from xdplab.claims.judged import judged, judged_here, published
from xdplab.cli import cli
from xdplab.errors import PlanError, ResultsError
from xdplab.studies import bundle, report
from xdplab.studies.kinds import open_run

ROOT = Path(__file__).parents[2]
SAMPLE, CLAIMS = ROOT / "results" / "sample", ROOT / "docs" / "examples" / "claims.yaml"
TWICE = "native is at least twice generic"


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(SAMPLE, tmp_path / "theirs")
    shutil.copy(CLAIMS, folder / "claims.yaml")
    return folder


def here(tmp_path: Path) -> Any:
    return open_run(shutil.copytree(SAMPLE, tmp_path / "here"))


def test_an_artifact_is_reproduced_from_its_file_and_from_its_folder(theirs: Path, tmp_path: Path) -> None:
    bundle.export(open_run(theirs), tmp_path / "artifact.zip", artifact=True)
    with zipfile.ZipFile("artifact.zip") as archive:
        archive.extractall("artifact")
    readme = Path("artifact/README.md").read_text()
    assert (
        readme.index("xdplab reproduce")
        < readme.index(TWICE)
        < readme.index("AMD EPYC")
        < readme.index("xdplab import bundle")
    )
    own = here(tmp_path)
    judgements = judged(open_run(theirs))
    measured = {one.claim: one.estimate for one in judgements}
    at = {one.claim: f" ({one.at})" for one in judgements if one.parts > 1 and one.at}
    for source in ("artifact.zip", "artifact", "theirs", "artifact.zip"):
        answers = judged_here(published(Path(source)), own)
        printed = {one.claim: one.printed for one in answers}
        theirs_at = {claim: value + at.get(claim, "") for claim, value in measured.items()}
        assert printed == theirs_at | {f"{TWICE} without accesses": "2.3 [2.1, 2.5]"}
        assert {one.claim: one.estimate for one in judged(own)} == measured, "the run keeps its claims"


def test_other_claims_have_the_values_of_a_bundle_too(theirs: Path, tmp_path: Path) -> None:
    shutil.move(theirs / "claims.yaml", "other.yaml")
    answers = judged_here(published(theirs, Path("other.yaml")), here(tmp_path))
    assert all(one.printed for one in answers)


def test_an_artifact_that_is_too_large_says_what_is(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_OF_ARTIFACT", 1000)
    with pytest.raises(ResultsError, match="run/raw"):
        bundle.export(open_run(theirs), tmp_path / "artifact.zip", artifact=True)
    assert not (tmp_path / "artifact.zip").exists()
    bundle.export(open_run(theirs), tmp_path / "bundle.zip")
    with pytest.raises(PlanError, match="no claims"):
        bundle.export(open_run(SAMPLE), tmp_path / "artifact.zip", artifact=True)


def test_a_plan_without_claims_is_refused_before_it_is_measured(theirs: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump({"name": "p", "blocks": [{"points": {"mode": ["native"]}}]}))
    with pytest.raises(PlanError, match="no claims"):
        published(plan)
    with pytest.raises(PlanError, match="generic"):
        published(plan, CLAIMS)
    plan.write_text("name: p\nblocks: [{points: {mode: [native, generic, af_xdp], accesses: [400]},"
                    " traffic: {load: [max, 20kpps]}}]\n")  # fmt: skip
    assert len(published(plan, CLAIMS).claims) == 5


def test_reproduce_ends_with_the_answer_and_a_page_of_both(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = here(tmp_path)
    monkeypatch.setattr("xdplab.cli.run.measure_plan", lambda *_: (own, 0))
    monkeypatch.setattr(report, "drawn", lambda run: ([], []))  # tests/studies/test_report.py has the figures
    answer = CliRunner().invoke(cli, ["reproduce", "theirs"], standalone_mode=False)
    assert answer.return_value == 1
    page = (tmp_path / "here" / "report.html").read_text()
    places = [page.index(text) for text in (f"<td>{TWICE}</td>", "Did forwarded_pps change from published to here?")]
    assert places == sorted(places), "claims first, and what was published is the old side"
    assert all(text in page for text in ("2.3 [2.1, 2.5]", "published: theirs", "here: here"))


def test_a_report_and_a_notebook_have_the_claims(theirs: Path) -> None:
    (table,) = report.claims(open_run(theirs))
    assert "1 is refuted" in table.title
    assert list(xl.open(theirs).claims["verdict"]) == list(table.frame["here"])
    assert report.claims(open_run(SAMPLE)) == []
