"""The output of --json follows its schema in docs, and the schemas follow the code."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError
from tests.unpack import unpacked

from xdplab import labs
from xdplab.cli import cli, described
from xdplab.cli.answers import ANSWERS, schema
from xdplab.doctor.checks import Row
from xdplab.studies.kinds import STUDIES, open_run

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = str(ROOT / "results" / "sample")
CLAIMS = str(ROOT / "docs" / "examples" / "claims.yaml")
RECORDED = ROOT / "tests" / "oracle" / "recorded" / "cost.tar.xz"
PLAN = str(ROOT / "plans" / "smoke.yaml")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one command derives of the sample, the next one finds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


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
        ("compare", ["compare", SAMPLE, SAMPLE, "--json"]),
        ("audit", ["audit", SAMPLE, "--json"]),
        ("figures", ["figures", SAMPLE, "--only", "throughput", "--out", "drawn", "--json"]),
        ("figures", ["figures", SAMPLE, "--why", "--json"]),
        ("kernels-list", ["kernels", "list", "--json"]),
        ("lab-kernels", ["lab", "kernels", "--json"]),
        ("programs-prove", ["programs", "prove", "array", "--json"]),
        ("runs", ["runs", str(ROOT / "results"), "--json"]),
        ("show", ["show", SAMPLE, "--json"]),
        ("history", ["history", SAMPLE, "--json"]),
        ("claims", ["claims", SAMPLE, "--file", CLAIMS, "--json"]),
        ("lab-status", ["lab", "status", "--json"]),
    ],
)
def test_what_is_printed_is_what_the_schema_says(
    verb: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(cli, argv)
    assert said.exit_code in (0, 1, 2), said.output
    assert validate(verb, said.stdout) or verb in ("lab-status", "kernels-list")


def test_files_are_named_with_their_size(tmp_path: Path) -> None:
    run = unpacked(RECORDED, tmp_path) / "cost"
    for verb in ("report", "export"):
        said = CliRunner().invoke(cli, [verb, str(run), "--out", str(tmp_path / verb), "--json"])
        written = validate(verb, said.stdout)
        assert written == {"runs": ["cost"], "file": str(tmp_path / verb), "bytes": (tmp_path / verb).stat().st_size}


def printed(*argv: str) -> Any:
    return json.loads(CliRunner().invoke(cli, [*argv, "--json"]).stdout)


def test_one_fact_has_one_name_and_one_value_in_every_verb(tmp_path: Path) -> None:
    status = printed("status", SAMPLE)
    (listed,) = (row for row in printed("runs", str(ROOT / "results")) if row["run"] == "sample")
    assert {name: status[name] for name in listed} == listed
    assert printed("show", SAMPLE)["status"] == status
    shutil.copytree(SAMPLE, tmp_path / "sample")
    resumed = validate("resume", CliRunner().invoke(cli, ["resume", str(tmp_path / "sample"), "--json"]).stdout)
    assert resumed["status"] == status | {"path": str(tmp_path / "sample")}
    assert datetime.fromisoformat(status["begun"]).tzinfo is not None


def test_numbers_have_all_their_digits() -> None:
    points = open_run(Path(SAMPLE)).tables()["points"].numbers
    assert [row["mpps"] for row in printed("show", SAMPLE)["tables"]["points"]] == points["mpps"].tolist()


def test_a_plans_points_have_their_factors(tmp_path: Path) -> None:
    plan = printed("plan", PLAN)
    assert sorted(point["accesses"] for point in plan["points"]) == [0, 100, 1600]
    assert {trial["point_id"] for trial in plan["trials"]} == {point["point_id"] for point in plan["points"]}


def options_of(command: click.Command, path: str = "") -> Iterator[str]:
    """Yield the name of each command below ``command`` that takes --json."""
    context = described()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options_of(below, f"{path}-{name}".strip("-"))
    elif any("--json" in option.opts for option in command.params):
        yield path


def test_every_verb_with_json_has_a_schema() -> None:
    studies = {f"study-{name}" for name in (*STUDIES, "published")}
    assert set(options_of(cli)) - studies == set(ANSWERS) - {"study"}


def test_the_rows_of_labs_and_of_doctor_too(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "lab": "netns", "kind": "netns", "label": "virtual lab", "since": 1.0, "queues": 8, "locked_by": None,
        "why": None, "way": None, "hosts": {"dut": {"interface": "vd0"}, "tg": {"interface": "vg0"}},
    }  # fmt: skip
    monkeypatch.setattr(labs, "status", lambda for_user=None: [row])
    (up,) = validate("lab-status", CliRunner().invoke(cli, ["lab", "status", "--json"]).stdout)
    assert datetime.fromisoformat(up.pop("since")).timestamp() == row.pop("since")
    assert up == row
    rows = [Row("dut", "kernel", "6.12", "ok"), Row("tg", "clang", "none", "missing", "apt install clang")]
    monkeypatch.setattr("xdplab.cli.doctor._examined", lambda name: rows)
    said = CliRunner().invoke(cli, ["doctor", "--json"])
    assert (said.exit_code, validate("doctor", said.stdout)) == (
        1,
        [dataclasses.asdict(row) for row in reversed(rows)],
    )  # problems first


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [("status", {"run": "one"}), ("audit", {"run": "one"}), ("compare", {"verdict": "perhaps"}), ("show", [])],
)
def test_a_schema_refuses_what_is_not_an_answer(verb: str, wrong: object) -> None:
    with pytest.raises(ValidationError):
        validate(verb, json.dumps(wrong))


def test_a_proof_is_shown_by_the_ways_that_were_taken() -> None:
    shown = CliRunner().invoke(cli, ["programs", "prove", "array", "-n", "4"]).output
    assert "4 of 4 accesses, 3 ways" in shown
    assert "None" not in shown
