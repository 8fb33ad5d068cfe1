"""An anonymous bundle contains no name of people or machines, and has the rows of its run."""

import gzip
import hashlib
import io
import json
import re
import shutil
import socket
import zipfile
from functools import partialmethod
from pathlib import Path

import pytest
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.studies import anonymous
from xdplab.studies.anonymous import FORMS, anonymous_copy, identities, pseudonym
from xdplab.studies.bundle import ROWS, rows_csv
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.studies.report import write_report

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"

COMMAND_LINE = "BOOT_IMAGE=/vmlinuz root=UUID=1b9f7c9e-58a5-4f55-9d8c-6b1f0a2c3d4e mitigations=off ip=10.20.30.40"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJm3Zq0bXv2y5t8w1uKQ0cP7rD4eF6gH8iJ0kL2mN4oP"
PLANTED = (
    "kestrel42.example.org", "kestrel42", "melisande", "02:5e:aa:31:07:c4", "10.20.30.40", "10.20.30.4",
    "fd12:77::1f",
    "1b9f7c9e-58a5-4f55-9d8c-6b1f0a2c3d4e", "/vmlinuz root", KEY, "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA",
    "MT2117X09876", "3d1219c7c4c5404aaa1f6d2a48adfda5", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU",
)  # fmt: skip
"""The names that the run below contains in many places."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, with names in its manifest, its journal, in text, in compressed and in binary files."""
    path = tmp_path_factory.mktemp("runs") / "2026-11-22-melisande"
    shutil.copytree(SAMPLE, path)
    manifest = json.loads((path / "manifest.json").read_text())
    host = {
        "command_line": {"value": COMMAND_LINE}, "address": {"value": '{"mac": "02:5e:aa:31:07:c4"}'},
        "nodename": "kestrel42.example.org", "serial_number": "MT2117X09876", "machine_id": PLANTED[12],
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps({**manifest, "more": host}, indent=1))
    with (path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"event": "note", "time": 1.0, "argv": ["ssh", "melisande@10.20.30.40"]}) + "\n")
        journal.write(
            json.dumps({"event": "note", "time": 1.0, "state": {"command_line": {"value": COMMAND_LINE}}}) + "\n"
        )
    raw = next(folder for folder in (path / "raw").rglob("*") if folder.is_dir() and not list(folder.glob("*/")))
    text = (
        "Linux 6.12.1 (kestrel42) 11/22/26\n# hostname : kestrel42.example.org\nlink/ether 02:5E:AA:31:07:C4 brd "
        f"ff:ff:ff:ff:ff:ff\ninet 10.20.30.4/24 inet6 fd12:77::1f/64 ::1 127.0.0.1 12:34:56 0000:3b:00.0\n"
        f"/home/melisande/lb.bpf.c\nssh-ed25519 {KEY} melisande@kestrel42\nSHA256:{PLANTED[10]} (ED25519)\n"
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PLANTED[13]}\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    (raw / "perf.melisande.txt").write_text(text)
    (raw / "trace.txt.gz").write_bytes(gzip.compress(text.encode()))
    (raw / "object.o").write_bytes(b"\x7fELF\0\xff/home/melisande/lb.bpf.c\0\xfe\x00")
    (path / "files").mkdir(exist_ok=True)
    (path / "files" / "lb.bpf.c").write_text("/* for kestrel42 */\n")
    return path


@pytest.fixture(scope="module")
def sent(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("sent") / "run.zip"
        done = CliRunner().invoke(cli, ["export", str(run), "--anonymous", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out, done.output


def everything(path: Path) -> dict[str, bytes]:
    """Return every file of a bundle by name, including compressed contents."""
    archive = zipfile.ZipFile(path)
    found = {name: archive.read(name) for name in archive.namelist()}
    return found | {
        f"{name}!": gzip.GzipFile(fileobj=io.BytesIO(data)).read()
        for name, data in found.items() if name.endswith(".gz")
    }  # fmt: skip


def holding(path: Path) -> set[tuple[str, str]]:
    return {
        (name, word)
        for name, data in everything(path).items()
        for word in PLANTED
        if word.lower().encode() in data.lower() or word in name
    }


def test_nothing_of_it_is_in_any_file_of_the_bundle(sent: tuple[Path, str]) -> None:
    source = {("run/files/lb.bpf.c", "kestrel42")}  # a program stays as measured, and the output says so
    assert holding(sent[0]) == source
    assert "files/lb.bpf.c is a program as it was measured, and holds 1 of these" in sent[1]
    for kind in sorted({form.kind for form in FORMS}):
        assert f"{kind}: " in sent[1]


def test_an_export_as_it_is_holds_all_of_it(run: Path, tmp_path: Path) -> None:
    """The test above must search where the names are."""
    out = tmp_path / "run.zip"
    assert CliRunner().invoke(cli, ["export", str(run), "--out", str(out)]).exit_code == 0
    assert {word for _, word in holding(out)} == set(PLANTED)


def test_the_addresses_that_the_sample_itself_holds_are_gone_too(run: Path, sent: tuple[Path, str]) -> None:
    mac = re.compile(rb"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
    before = {found for path in SAMPLE.rglob("*.json*") for found in mac.findall(path.read_bytes())}
    after = {found for data in everything(sent[0]).values() for found in mac.findall(data)}
    assert len(before) > 1
    assert before & after <= {b"ff:ff:ff:ff:ff:ff", b"00:00:00:00:00:00"}


def test_the_same_name_is_the_same_pseudonym_everywhere(sent: tuple[Path, str]) -> None:
    files = {name.rpartition("/")[2]: data for name, data in everything(sent[0]).items()}
    text = files["trace.txt.gz!"].decode()
    (user,) = re.findall(r"/home/(\w+)/lb", text)
    assert f"perf.{user}.txt" in files
    assert files[f"perf.{user}.txt"].decode() == text
    assert files["object.o"] == b"\x7fELF\0\xff/home/%s/lb.bpf.c\0\xfe\x00" % user.encode()
    (mac,) = re.findall(r"link/ether (\S+)", text)
    assert json.loads(json.loads(files["manifest.json"])["more"]["address"]["value"])["mac"] == mac
    assert json.loads(files["manifest.json"])["more"]["command_line"]["value"].split(" ")[2] == "mitigations=off"
    assert "ff:ff:ff:ff:ff:ff" in text
    assert "::1 127.0.0.1 12:34:56 0000:3b:00.0" in text


def test_it_verifies_and_derives_equal_rows_elsewhere_and_its_report_is_clean(
    run: Path, sent: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One figure's words stand for those of all, which are made of the same rows."""
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Run, "draw_figures", partialmethod(Run.draw_figures, ["throughput"]))
    done = CliRunner().invoke(cli, ["import", "bundle", str(sent[0]), "--out", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output  # 1 where the rows differ from the exported ones
    (taken,) = (tmp_path / "results").iterdir()
    assert rows_csv(open_run(taken)) == rows_csv(open_run(run)) == zipfile.ZipFile(sent[0]).read(ROWS)
    page = write_report([open_run(taken)], tmp_path / "report.html", author=None, licence=None, margin=0.02).read_text()
    assert [word for word in PLANTED if word.lower() in page.lower()] == []
    again = CliRunner().invoke(cli, ["export", str(taken), "--anonymous", "--out", str(tmp_path / "again.zip")])
    assert again.exit_code == 0, again.output


def test_a_pseudonym_is_none_of_the_names() -> None:
    """The copy of a copy without names: its names are the pseudonyms of before, each in another's place."""
    macs = [b"aa:aa:aa:aa:aa:a2", b"aa:aa:aa:aa:aa:a1", b"aa:aa:aa:aa:aa:a3"]
    names = identities("run", {"raw/x.txt": b"\n".join(macs)}).names
    assert {pseudonym for _, pseudonym in names.values()} == {b"aa:aa:aa:aa:aa:a%d" % n for n in (4, 5, 6)}


def test_where_a_file_holds_the_sum_of_another_it_is_that_of_the_file_as_it_is_handed_on(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "summed", run_id="12345678", plan_yaml="")
    (run.path / "one.json").write_text('{"nodename": "kestrel42"}')
    sum_of_one = hashlib.sha256((run.path / "one.json").read_bytes()).hexdigest()
    (run.path / "two.txt").write_text(f"{sum_of_one}  one.json\n")
    (run.path / "three.txt").write_text(f"{hashlib.sha256((run.path / 'two.txt').read_bytes()).hexdigest()}  two.txt\n")
    files = [(path.name, path) for path in run.path.glob("*.*")]
    copy, _ = anonymous_copy(run, files, tmp_path / "copies")
    for name, holder in (("one.json", "two.txt"), ("two.txt", "three.txt")):
        assert (copy / holder).read_text().startswith(hashlib.sha256((copy / name).read_bytes()).hexdigest())


def test_a_run_whose_points_hold_an_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point's id depends on its factors, and the sample's contain addresses of test frames, which count here."""
    monkeypatch.setattr(anonymous, "_NO_MACHINE", [])
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(cli, ["export", str(SAMPLE), "--anonymous", "--out", str(tmp_path / "run.zip")])
    assert done.exit_code == 1
    assert isinstance(done.exception, ResultsError)
    assert "without its names and addresses this would be another run" in str(done.exception)
    assert not (tmp_path / "run.zip").exists()


def test_a_name_that_is_a_common_word_stays_and_is_said() -> None:
    found = identities("run", {"a.json": b'{"nodename": "localhost", "user": "queues", "hostname": "falcon7"}'})
    assert {"localhost", "queues"} <= found.kept
    assert b"falcon7" in found.names
    assert found.without(b"falcon7 queues falcon77") == b"hhhhhh1 queues falcon77"


def test_this_machines_own_name_is_looked_for_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "petrel19")
    assert b"petrel19" in identities("run", {"raw/x.txt": b"lost: petrel19 went away"}).names


@pytest.mark.parametrize(
    ("value", "fill", "made"),
    [
        (b"02:5e:aa:31:07:c4", b"a", b"aa:aa:aa:aa:aa:12"),
        (b"10.20.30.40", b"1", b"11.11.11.12"),
        (b"kestrel42.example.org", b"h", b"hhhhhhhhh.hhhhhhh.h12"),
        (b"root=/dev/sda mitigations=off", b".", b"............. mitigations=off"),
    ],
)
def test_a_pseudonym_has_the_length_and_form_of_what_it_stands_for(value: bytes, fill: bytes, made: bytes) -> None:
    assert pseudonym(value, 12, fill) == made
