"""A run whose files have wrong contents is refused by every verb in one line, and ends no other."""

import json
import shutil
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.errors import ResultsError, XdplabError
from xdplab.run.journal import Journal
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"
Events = list[dict[str, Any]]


def changed(kind: str, **fields: Any) -> Callable[[Events], object]:
    return lambda events: next(e for e in events if e["event"] == kind).update(fields)


def without(kind: str, name: str) -> Callable[[Events], object]:
    return lambda events: next(e for e in events if e["event"] == kind).pop(name)


DAMAGED: dict[str, Callable[[Events], object]] = {
    "an event without its fields": lambda events: events.append({"event": "planned"}),
    "no event": lambda events: events.insert(1, {"kind": "x"}),
    "planned.trials": changed("planned", trials=5),
    "planned.blocks": changed("planned", blocks=[0]),
    "planned.costs_s": changed("planned", costs_s=["a"] * 21),
    "planned.plan": changed("planned", plan=5),
    "planned.plan elsewhere": changed("planned", plan="../../plan.yaml"),
    "planned.only": changed("planned", only=["x"]),
    "finished.trial_id": changed("finished", trial_id=["a"]),
    "finished.trial_id elsewhere": changed("finished", trial_id="../../x"),
    "finished.trial_id unknown": changed("finished", trial_id="ffffffffffff-r9"),
    "finished.duration_s null": changed("finished", duration_s=None),
    "finished.duration_s huge": changed("finished", duration_s=10**400),
    "finished.duration_s NaN": changed("finished", duration_s=float("nan")),
    "finished.facts null": changed("finished", facts=None),
    "finished.status": changed("finished", status="good"),
    "finished.files": changed("finished", files="x"),
    "finished.files elsewhere": changed("finished", files={"../../x": 1}),
    "finished.time": changed("finished", time="now"),
    "finished without time": without("finished", "time"),
    "created.run_id elsewhere": changed("created", run_id="../../x"),
    "hosts.state": changed("hosts", state=[]),
    "ended.how": changed("ended", how=None),
    "planned without what its plan needs": without("planned", "sha256"),
    "half a character": changed("finished", reason="\ud800"),
}
FILES: dict[str, Callable[[Path], object]] = {
    "facts": lambda run: change(run, changed("finished", facts={})),
    "a program's name": lambda run: change(run, lambda events: of_first(events)["facts"].update(program_hash="../x")),
    "search.json": lambda run: (run / "search.json").write_text("[]"),
    "search.json of others": lambda run: (run / "search.json").write_text('{"profile": 5}'),
    "search.json of brackets": lambda run: (run / "search.json").write_text("[" * 100_000),
    "points.json": lambda run: ((run / "plan.yaml").write_text("study: jit"), (run / "points.json").write_text("[]")),
    "plan.yaml": lambda run: (run / "plan.yaml").write_bytes(b"\xff\xfe"),
    "a plan that is no YAML": lambda run: (run / "plan.yaml").write_text("a: ["),
    "a plan that is a list": lambda run: (run / "plan.yaml").write_text("[a]"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    shutil.copytree(SAMPLE, tmp_path / "runs" / "bad", ignore=shutil.ignore_patterns("*.parquet"))
    return tmp_path / "runs" / "bad"


def change(run: Path, apply: Callable[[Events], object]) -> None:
    journal = run / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    apply(events)
    journal.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_journal_is_refused_with_the_line(run: Path, name: str) -> None:
    change(run, damage := DAMAGED[name])
    number = (
        next(
            n
            for n, (line, good) in enumerate(zip(*lines_of(run), strict=False), 1)
            if json.loads(line) != json.loads(good)
        )
        if damage is not DAMAGED["an event without its fields"]
        else 1 + len(lines_of(run)[1])
    )
    gone = ("show", "audit")  # once more, without the raw files that a line lists
    for at, verb in enumerate(verbs := ("status", "show", "audit", "figures", "report", "tables", "resume", *gone)):
        if at == len(verbs) - len(gone):
            shutil.rmtree(run / "raw")
        if verb == "status" and "files" in name:
            continue  # it tells what it can without them
        done = CliRunner().invoke(cli, [verb, str(run)])
        assert isinstance(done.exception, ResultsError), (verb, done.output)
        assert f"line {number} is not an event" in str(done.exception), verb


def lines_of(run: Path) -> tuple[list[str], list[str]]:
    return tuple((folder / "journal.jsonl").read_text().splitlines() for folder in (run, SAMPLE))  # type: ignore[return-value]


def of_first(events: Events) -> dict[str, Any]:
    return next(e for e in events if e["event"] == "finished")


@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_other_files_of_a_run_are_refused_with_their_name(
    run: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "draw_figures", partialmethod(Run.draw_figures, ["throughput"]))
    damage(run)
    for verb in ("show", "report", "resume"):
        done = CliRunner().invoke(cli, [verb, str(run)])
        assert done.exception is None or isinstance(done.exception, XdplabError | SystemExit), (verb, done.exception)
    assert {path.name for path in run.parent.parent.iterdir()} <= {"runs", "cache"}


def test_what_a_manifest_says_decides_nothing(run: Path) -> None:
    """It is made of the journal, and a stranger's may say anything."""
    good = open_run(SAMPLE)  # its findings are made once
    for manifest in ("[]", "{", '{"sessions": [5]}'):
        (run / "manifest.json").write_text(manifest)
        found = good.compare(open_run(run))
        assert found.to_json()["environment"] == [], manifest
        assert CliRunner().invoke(cli, ["resume", str(run)]).exit_code == 0, manifest
        assert len(json.loads((run / "manifest.json").read_text())["sessions"]) == 2, manifest


def test_one_bad_run_does_not_hide_the_others(run: Path) -> None:
    change(run, DAMAGED["finished.duration_s null"])
    shutil.copytree(SAMPLE, run.parent / "good")
    done = CliRunner().invoke(cli, ["runs", str(run.parent), "--json"])
    assert done.exit_code == 0
    rows = {row["run"]: row for row in json.loads(done.output)}
    assert (rows["good"]["trials"], rows["bad"]["trials"]) == (21, None)
    assert "finished.duration_s is not a number" in rows["bad"]["progress"]


@pytest.mark.parametrize("options", [{}, {"sort_keys": True}, {"indent": None, "separators": (", ", " : ")}])
def test_json_that_was_written_anew_is_the_same_journal(run: Path, options: dict[str, Any]) -> None:
    before = open_run(run).state
    journal = run / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps(event, **options) + "\n" for event in events))
    after = open_run(run).state
    assert after.attempts == before.attempts
    assert len(after.attempts) == Journal(journal).count("finished") == 21
    assert list(Journal(journal).events("finished")) == [event for event in events if event["event"] == "finished"]
