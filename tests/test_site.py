"""The site builds in strict mode and works without a network; the commands on its pages work."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from xdplab.cli import VERBS, cli, described, pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NEEDS_A_LAB = {"run", "race", "doctor", "lab"}


def fenced(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\b.*\n((?:.*\n)*?)```$", text, re.MULTILINE)


def typed(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each line that calls xdplab, without redirections and pipes."""
    for line in text.splitlines():
        called = re.match(r"\s*(?:sudo )?(?:\.venv/bin/)?xdplab (.*)", line.split(" # ")[0])
        if called:
            yield shlex.split(re.sub(r"\[|\]|\|\| true", " ", called[1]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.mark.thorough
def test_the_site_takes_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(?:https?:)?//[^>]*>", text), page.name
        assert not re.findall(r"<link[^>]*href=\"?(?:https?:)?//[^>]*>", text), page.name
        for image in re.findall(r"<img[^>]*src=\"([^\"]+)\"", text):
            assert (page.parent / image).exists(), f"{page.name}: {image}"
    assert (site / "search/search_index.js").exists(), "the search of a site that is read from the disk"


@pytest.mark.thorough
def test_the_site_has_every_page_in_its_navigation(site: Path) -> None:
    text = (site / "index.html").read_text()
    written = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    for page in [*written, *map(Path, pages.PAGES)]:
        assert f'href="{page.with_suffix(".html")}"' in text, page


def test_the_made_pages_name_every_verb_and_error() -> None:
    commands, errors = pages.commands(), pages.errors()
    for verb in VERBS:
        assert f"\n### xdplab {verb}\n" in commands
    for name, code in (("PlanError", 2), ("LabError", 3), ("StrangersFileError", 8)):
        assert f"| [`{name}`](#{name.lower()}) | {code} |" in errors
    assert "cannot be written: … | free some space |" in errors


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_every_command_of_the_docs_has_its_verb_and_options(page: Path) -> None:
    """Blocks that need a lab, a guest or servers are not run here; a misspelt verb or option is found in all."""
    text = page.read_text()
    blocks = re.findall(r"^ {4}.*$", text, re.MULTILINE) + re.findall(r"^```bash\n((?:.*\n)*?)```$", text, re.MULTILINE)
    for words in typed("\n".join(blocks)):
        command: click.Command = cli
        context = described()
        while isinstance(command, click.Group):
            _, words, _ = command.make_parser(context).parse_args(list(words))
            found = command.get_command(context, words[0])
            assert found is not None, f"{page.name}: xdplab {' '.join(words)}"
            command, words, context = found, words[1:], click.Context(found, parent=context)
        command.make_parser(context).parse_args(list(words))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the checkout, to write into."""
    shutil.copytree(ROOT / "results/sample", tmp_path / "results/sample")
    (tmp_path / "plans").symlink_to(ROOT / "plans")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", ["use/tutorial.md", pytest.param("use/tasks.md", marks=pytest.mark.thorough)])
def test_the_commands_that_need_no_lab_run(page: str, checkout: Path) -> None:
    ran = 0
    for words in typed("".join(fenced(page, "bash"))):
        if words[0] in NEEDS_A_LAB or "latest" in words:
            continue
        done = CliRunner().invoke(cli, words)
        allowed = (0, 1, 2) if words[0] == "compare" and not done.output.startswith("xdplab:") else (0,)
        assert done.exit_code in allowed, f"{words}: {done.output}{done.exception!r}"
        ran += 1
    assert ran >= 2


@pytest.mark.parametrize(("page", "name"), [("use/tasks.md", "rows"), ("use/notebook.md", "run")])
def test_the_python_of_the_pages_runs(page: str, name: str, checkout: Path) -> None:
    names: dict[str, object] = {}
    for block in fenced(page, "python"):
        exec(block, names)
    assert name in names


@pytest.mark.nightly
@pytest.mark.root
@pytest.mark.lab
def test_the_tutorial_from_its_first_command_to_its_report(checkout: Path) -> None:
    """As a reader would: every block in order, in one shell, after the set-up."""
    blocks = [block for block in fenced("use/tutorial.md", "bash") if "make setup" not in block]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ex", "-c", "\n".join(blocks)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"(?<![\w/])(Traceback|nan|<NA>|None)\b", done.stdout), done.stdout
    page = (checkout / "build/race.html").read_text()
    assert "a.bpf.c" in page
    assert "b.bpf.c" in page
