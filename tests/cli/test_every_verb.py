"""Every kind of run with the verbs that take one: each works, or says in one line why not.

What audit and figures answer of each of these runs, `tests/oracle` holds, to the letter.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.cli.entry import ending_with_output
from tests.oracle.derive import SAMPLE, at
from tests.oracle.kinds import RECORDED
from tests.unpack import unpacked

CORE = ("race", "search", "offload")
"""The others' figures take seconds each."""
KINDS = [
    pytest.param(name, marks=[] if name in CORE else [pytest.mark.thorough]) for name in ("sample", "import", *RECORDED)
]
REFUSED = {("offload", "compare"), ("import", "export")}
"""What a kind cannot: an offload's answers are words, an import's rows are not those of its own raw files."""
ANSWERS = {"compare": (0, 1, 2)}
"""Exit codes that are answers."""


def prepared(name: str) -> None:
    """Make the run of that name in the working directory."""
    if name == "import":
        from xdplab.thesis import made_logs  # whoever deletes the thesis deletes this kind

        made_logs.write(Path("logs"), made_logs.tree())
        assert ending_with_output(["import", "thesis", "logs", "--out", "."])[0] == 0
        Path("logs").rename("thesis-logs")
        (made,) = [path.parent for path in Path().glob("*/journal.jsonl")]
        made.rename(name)
    elif name == "sample":
        shutil.copytree(SAMPLE, name, ignore=shutil.ignore_patterns("*.parquet", "figures", "tables", "audit.*"))
    else:
        unpacked(RECORDED[name].archive, Path())


@pytest.mark.parametrize("name", KINDS)
def test_each_verb_works_or_says_in_one_line_why_not(name: str, tmp_path: Path) -> None:
    verbs = {
        "show": ["show", name],
        "status": ["status", name],
        "report": ["report", name, "--out", "page.html"],
        "why": ["figures", name, "--why"],
        "compare": ["compare", name, name],
        "export": ["export", name, "--out", "run.zip"],
        "import": ["import", "bundle", "run.zip", "--out", "got"],
        "resume": ["resume", name],
        "runs": ["runs", "."],
    }
    with at(tmp_path):
        prepared(name)
        ended = {
            verb: ending_with_output(argv)
            for verb, argv in verbs.items()
            if verb != "import" or Path("run.zip").exists()
        }
        listed = json.loads(ending_with_output(["runs", ".", "--json"])[1])
        page = Path("page.html").read_text()
    refused = {(name, verb) for verb, (code, _, _) in ended.items() if code not in ANSWERS.get(verb, (0,))}
    refused |= {(name, verb) for verb, (_, _, error) in ended.items() if error.startswith("xdplab: ")}
    assert refused == {cell for cell in REFUSED if cell[0] == name}, ended
    for _, verb in refused:
        assert len(ended[verb][2].strip().splitlines()) == 1
    assert all(out.strip() for verb, (_, out, _) in ended.items() if (name, verb) not in refused), ended
    assert "<strong>Answer.</strong></p><p>" in page
    assert name != "verifier" or "are not valid" not in page, "a verdict of the verifier is a result"
    again = re.search(r"xdplab run \S*plan\.yaml", page)
    assert bool(again) == (name != "import"), "what was imported is not measured again"
    assert "?</p>" in page.partition("<strong>Question.</strong> ")[2].partition("\n")[0]
    assert name not in ("race", "windows") or "Figures that are not there" not in page, "a race lacks none"
    assert [run["run"] for run in listed] == [name]
