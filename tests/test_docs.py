"""The docs agree with the code."""

import functools
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from xdplab.cli import VERBS, cli, pages
from xdplab.lazy import lazy
from xdplab.plan import load_plan
from xdplab.studies.kinds import STUDIES

jsonschema = lazy("jsonschema")  # nbformat brings it; it takes a second

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
MADE = {str(page.relative_to(ROOT / "docs")) for page in PAGES[2:] if "cli.pages docs --kept" in page.read_text()}


@pytest.mark.parametrize("page", sorted(MADE | pages.KEPT.keys()))
def test_a_kept_page_is_what_the_code_says(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == pages.KEPT[page](), "run: python -m xdplab.cli.pages docs --kept"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_has_its_head(page: Path) -> None:
    """Rows behind an empty line are shown as text."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    tables = [block.strip("\n") for block in prose.split("\n\n") if block.lstrip("\n").startswith("|")]
    assert [table for table in tables if not re.match(r"[^\n]+\n\|( ?-+ ?\|)+\n", table)] == []


def test_the_plans_in_the_docs_are_plans(tmp_path: Path) -> None:
    text = (ROOT / "docs/use/plans.md").read_text()
    blocks = re.findall(r"^    name: (?:.*\n)(?:^    .*\n)+", text, re.MULTILINE)
    for block in blocks:
        (tmp_path / "p.yaml").write_text(re.sub(r"^    ", "", block, flags=re.MULTILINE))
        assert load_plan(tmp_path / "p.yaml").name in ("mine", "quick")
    assert len(blocks) == 2


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_its_help(verb: str) -> None:
    shown = CliRunner().invoke(cli, [verb, "--help"])
    assert shown.exit_code == 0, shown.output
    assert len(shown.output.splitlines()) > 3


def test_the_readme_fits_a_screen_and_names_both_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    assert "shell/run_matrix.sh" in text
    assert "make test" in text


def test_every_page_that_the_code_names_exists() -> None:
    """Pages, schemas and examples of docs/ that code, plans, notebooks, tools and tests name."""
    for path in map(Path, subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()):
        if path.suffix in {".py", ".c", ".h", ".yaml", ".ipynb", ".yml", ".sh", ".toml"} or path.name == "Makefile":
            for named in re.findall(r"(?<![\w./])docs/[\w./-]*\w", (ROOT / path).read_text()):
                assert (ROOT / named).exists(), f"{path}: {named}"


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`([\w/]+(?:\.\w+|/\w+|/))`", text)
    files = [name for name in named if "/" in name and name not in {"programs/", "raw/"}]
    assert len(files) > 30
    for name in files:
        assert (ROOT / name).exists() or (ROOT / "src/xdplab" / name).exists(), name


def test_the_rooms_of_the_architecture_are_the_linters_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    block = re.search(r"```text\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)
    assert block
    assert block[1].splitlines() == layers


def test_the_contract_of_studies_has_each_study() -> None:
    """One that is not listed there might import another."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (modules,) = (contract["modules"] for contract in contracts if contract["type"] == "independence")
    assert set(modules) == {f"xdplab.studies.{name}" for name in ("traffic", "search", *STUDIES)}


@functools.cache
def validator_of(schema: Path) -> Any:
    read = json.loads(schema.read_text())
    kind = jsonschema.validators.validator_for(read)
    kind.check_schema(read)
    return kind(read)


@pytest.mark.parametrize("plan", sorted((ROOT / "plans").glob("*.yaml")), ids=lambda plan: plan.stem)
def test_an_editor_takes_the_plans_that_xdplab_brings(plan: Path) -> None:
    """The first line leads a YAML language server to the schema, by which the plan is right and a wrong key is not."""
    text = plan.read_text()
    validator = validator_of((plan.parent / text.splitlines()[0].partition("$schema=")[2]).resolve())
    validator.validate(yaml.safe_load(text))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(yaml.safe_load(text) | {"block": []})
