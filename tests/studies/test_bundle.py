"""A run gives the same rows on another machine; importing a stranger's bundle does no harm."""

import errno
import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.errors import ResultsError
from xdplab.studies.bundle import ABOUT, CRATE, ROWS, SUMS, export, import_bundle, rows_csv
from xdplab.studies.kinds import open_run
from xdplab.trust import StrangersFileError, ask_by, require_run

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        path = tmp_path_factory.mktemp("sent") / "sample.zip"
        return export(open_run(SAMPLE), path, author="A. Author", licence="CC-BY-4.0")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))


def test_another_machine_derives_the_same_rows(sent: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["import", "bundle", str(sent), "--out", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    assert "every checksum is right; 21 rows derived here" in done.output
    assert "they are byte-equal" in done.output
    taken = tmp_path / "results" / "sample"
    assert str(taken) in done.output
    with pytest.raises(ResultsError, match=f"{taken} is one"):
        open_run(taken.parent)
    assert rows_csv(open_run(taken)) == zipfile.ZipFile(sent).read(ROWS)
    assert not list(taken.glob("*.parquet"))
    with pytest.raises(ResultsError, match="already exists"):
        import_bundle(sent, tmp_path / "results")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["sample"]


def test_the_crate_names_every_file_with_its_sum(sent: Path) -> None:
    archive = zipfile.ZipFile(sent)
    crate = json.loads(archive.read(CRATE))
    described, root, *files = crate["@graph"]
    assert described["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
    assert {"name", "description", "datePublished", "license", "hasPart"} <= set(root)
    assert {part["@id"] for part in files} == set(archive.namelist()) - {CRATE, SUMS}
    for part in files[:20]:
        assert hashlib.sha256(archive.read(part["@id"])).hexdigest() == part["sha256"]
    citation = yaml.safe_load(archive.read("CITATION.cff"))
    assert citation["authors"] == [{"name": "A. Author"}]


def test_what_came_in_a_bundle_is_not_run(sent: Path, tmp_path: Path) -> None:
    """Its files belong to the user who imported it, but another user wrote their content."""
    taken = import_bundle(sent, tmp_path / "results").path
    ask_by(None)
    with pytest.raises(StrangersFileError, match=r"came in a bundle.*remove bundle\.json"):
        require_run(taken)
    (taken / "bundle.json").unlink()
    require_run(taken)


def doctored(sent: Path, path: Path, change: Callable[[dict[str, bytes]], None], resum: bool = True) -> Path:
    source = zipfile.ZipFile(sent)
    files = {name: source.read(name) for name in source.namelist()}
    change(files)
    if resum:
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != SUMS}
        files[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16 if name.endswith("link") else 0
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("../outside", b"x", "not a valid file name"),
        ("/absolute", b"x", "not a valid file name"),
        ("run/../../outside", b"x", "not a valid file name"),
        ("run/./raw", b"x", "not a valid file name"),
        ("run\\outside", b"x", "not a valid file name"),
        ("run/link", b"/etc/passwd", "a link or a special file"),
        ("run/trials.parquet", b"x", "is derived"),
        ("run/raw/t/1/samples.parquet", b"x", "is derived"),
        ("run/report.html", b"<script>", "is derived"),
        ("run/figures/throughput.svg", b"<svg/>", "is derived"),
        ("run/tables/points.md", b"x", "is derived"),
        ("run/audit.md", b"x", "is derived"),
        ("run/bundle.json", b"{}", "is derived"),
        ("run/bomb", bytes(20_000_000), "would be 20000000 bytes"),
        (ABOUT, b'{"name": "../../outside", "rules": "8"}', "is not a valid name of a run"),
        (ABOUT, b"{", "cannot be read"),
        ("run/journal.jsonl", b"{}\n", "line 1 is not an event"),
        ("run/journal.jsonl", b'{"event":"created","time":1,"run_id":"../../outside"}\n', "created.run_id"),
    ],
)
def test_a_strangers_bundle_writes_nothing_beside_its_run(
    sent: Path, tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    place = tmp_path / "a" / "results"
    bad = doctored(sent, tmp_path / "bad.zip", lambda files: files.update({name: data}))
    with pytest.raises(ResultsError, match=words):
        import_bundle(bad, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.zip"]  # neither a folder nor a cache


@pytest.mark.parametrize("change", ["changed", "added", "gone"])
def test_a_bundle_that_is_not_what_its_sums_say_is_refused(sent: Path, tmp_path: Path, change: str) -> None:
    def apply(files: dict[str, bytes]) -> None:
        if change == "changed":
            files["run/plan.yaml"] += b"#"
        elif change == "added":
            files["run/more"] = b"x"
        else:
            del files["run/manifest.json"]

    bad = doctored(sent, tmp_path / "bad.zip", apply, resum=False)
    with pytest.raises(ResultsError, match=r"checksum|not in both"):
        import_bundle(bad, tmp_path / "results")
    assert not (tmp_path / "results" / "sample").exists()


def test_tables_of_another_run_of_that_name_decide_nothing(sent: Path, tmp_path: Path) -> None:
    """The tables of the first were kept in the user's cache, under its name and number of attempts."""
    shutil.rmtree(import_bundle(sent, tmp_path / "results").path)

    def fail_the_last(files: dict[str, bytes]) -> None:
        events = [json.loads(line) for line in files["run/journal.jsonl"].splitlines()]
        [event for event in events if event["event"] == "finished"][-1] |= {"status": "failed", "reason": "boom"}
        files["run/journal.jsonl"] = "".join(json.dumps(event) + "\n" for event in events).encode()

    taken = import_bundle(doctored(sent, tmp_path / "other.zip", fail_the_last), tmp_path / "results")
    assert not taken.equal
    assert "boom" in set(open_run(taken.path).rows()["reason"])


def test_rows_that_differ_are_said(sent: Path, tmp_path: Path) -> None:
    other = doctored(sent, tmp_path / "other.zip", lambda files: files.update({ROWS: files[ROWS] + b"x"}))
    taken = import_bundle(other, tmp_path / "results")
    assert (taken.equal, taken.why) == (False, "its rows differ")


def test_too_much_is_refused_before_it_is_written(sent: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="are more than"):
        import_bundle(sent, tmp_path / "results", most_bytes=1000)
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ResultsError, match=r"cannot be read as a bundle.*\(.*again"):
        import_bundle(tmp_path / "no.zip", tmp_path / "results")


def test_a_full_disk_is_told_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(ResultsError, match=r"sample.zip cannot be written: No space left on device") as caught:
        export(open_run(SAMPLE), tmp_path / "sample.zip")
    assert "--out" in (caught.value.remedy or "")
    assert not list(tmp_path.glob("*.zip*"))


def test_a_run_with_a_link_is_not_exported(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "run")
    (tmp_path / "run" / "raw" / "extra").symlink_to("/etc/passwd")
    with pytest.raises(ResultsError, match="not a regular file"):
        export(open_run(tmp_path / "run"), tmp_path / "run.zip")
