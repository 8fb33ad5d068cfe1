"""The output of --json follows its schema in docs, and the schemas follow the code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from xdplab import labs
from xdplab.cli import cli
from xdplab.cli.answers import ANSWERS, schema
from xdplab.doctor.checks import Row

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = str(ROOT / "results" / "sample")
PLAN = str(ROOT / "plans" / "smoke.yaml")


def validate(verb: str, answer: str) -> Any:
    """Return the content of ``answer``. Raises ValidationError."""
    TypeAdapter(ANSWERS[verb]).validate_json(answer, strict=True)
    return json.loads(answer)


def test_the_schemas_in_docs_are_the_codes() -> None:
    kept = {path.name: json.loads(path.read_text()) for path in (ROOT / "docs/reference/schemas").iterdir()}
    made = {f"{verb}.schema.json": schema(verb) for verb in ANSWERS}
    assert kept == made, "run: python -m xdplab.cli.answers docs/reference/schemas"


@pytest.mark.parametrize(
    ("verb", "argv"),
    [
        ("status", ["status", SAMPLE, "--json"]),
        ("plan", ["plan", PLAN, "--json"]),
        ("plan", ["plan", PLAN, "--dry-run", "--json"]),
        ("compare", ["compare", SAMPLE, SAMPLE, "--json"]),
        ("audit", ["audit", SAMPLE, "--json"]),
        ("runs", ["runs", str(ROOT / "results"), "--json"]),
        ("show", ["show", SAMPLE, "--json"]),
        ("lab-status", ["lab", "status", "--json"]),
    ],
)
def test_what_is_printed_is_what_the_schema_says(
    verb: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path))
    said = CliRunner().invoke(cli, argv)
    assert said.exit_code in (0, 1, 2), said.output
    assert validate(verb, said.stdout) or verb == "lab-status"


def test_the_rows_of_labs_and_of_doctor_too(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "lab": "netns", "kind": "netns", "label": "virtual lab", "since": 1.0, "queues": 8, "locked_by": None,
        "why": None, "way": None, "hosts": {"dut": {"interface": "vd0"}, "tg": {"interface": "vg0"}},
    }  # fmt: skip
    monkeypatch.setattr(labs, "status", lambda for_user=None: [row])
    assert validate("lab-status", CliRunner().invoke(cli, ["lab", "status", "--json"]).stdout) == [row]
    rows = [Row("dut", "kernel", "6.12", "ok"), Row("tg", "clang", "none", "missing", "apt install clang")]
    monkeypatch.setattr("xdplab.cli.doctor._examined", lambda name: rows)
    said = CliRunner().invoke(cli, ["doctor", "--json"])
    assert (said.exit_code, validate("doctor", said.stdout)) == (
        1,
        [dataclasses.asdict(row) for row in reversed(rows)],
    )  # problems first


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [("status", [{"run": "one"}]), ("audit", {"run": "one"}), ("compare", {"verdict": "perhaps"}), ("show", [])],
)
def test_a_schema_refuses_what_is_not_an_answer(verb: str, wrong: object) -> None:
    with pytest.raises(ValidationError):
        validate(verb, json.dumps(wrong))
