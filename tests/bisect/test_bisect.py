"""The first commit, or kernel, that changes what a packet costs: found, or one of a few, and never guessed."""

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import inf
from pathlib import Path

import pytest
from bisect_planted import Drawn
from pydantic import TypeAdapter
from tests.cli.entry import ending_with_output

from xdplab.analysis.decide.race import Known
from xdplab.bisect import judges
from xdplab.bisect.judges import side_of
from xdplab.cli.answers import ANSWERS
from xdplab.errors import PlanError, ProgramError, UnsupportedError
from xdplab.studies.cost.gate import Case, write_baseline

FILE = "src/p.bpf.c"
PLAIN = {"compiler": "clang", "kernel_release": "6.12.1", "came_back": "100.00% of the frames", "passed_on": "0"}


def case(cost: int, *, kernel: str = "6.12", exact: bool = True, back: str = "100.00% of the frames") -> Case:
    totals = {"program": Fraction(cost), "called": Fraction(0)} | ({"path": Fraction(800)} if exact else {})
    totals |= {"whole": sum(totals.values(), Fraction())} if exact else {}
    made_with = PLAIN | {"kernel_release": kernel, "came_back": back}
    return Case("p", (kernel, "native", "64", "1"), made_with, totals, {"the line": Fraction(cost)}, {})


class Faked:
    """Counts what a file says of itself, or its header: `cost 27`, or why it has none. ``counted``: the texts."""

    counted: list[str]
    interrupt_at: int | None

    def __init__(self, *_: object) -> None: ...

    def case(self, program: Path, kernel: str, settings: str) -> Case:
        text = program.read_text().splitlines()[0]
        if text == "header":
            folder, *_ = json.loads(settings)["cflags"]
            text = Path(folder.removeprefix("-I"), "cost.h").read_text()
        Faked.counted.append(text)
        if Faked.interrupt_at == len(Faked.counted):
            raise KeyboardInterrupt
        word, _, number = text.partition(" ")
        if word == "kernels":  # a cost for each
            number = json.loads(number)[kernel]
            if number is None:
                raise UnsupportedError("it does not boot")
        if word == "crash":
            raise ZeroDivisionError
        if word == "broken":
            raise ProgramError("it does not compile")
        if word == "varies":
            raise UnsupportedError("the program takes another path each time")
        back = "50.00% of the frames" if word == "drops" else PLAIN["came_back"]
        return case(int(number), kernel=kernel, exact=word != "range", back=back)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def faked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Faked.counted, Faked.interrupt_at = [], None
    monkeypatch.setattr(judges, "KeptCosts", Faked)
    monkeypatch.chdir(tmp_path)


def git(repo: Path, *words: str) -> str:
    author = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    return subprocess.run(["git", "-C", str(repo), *author, *words], capture_output=True, text=True, check=True).stdout


def commit(repo: Path, text: str | None) -> str:
    """Commit a program; None: one that has none."""
    file = repo / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    (repo / "log").open("a").write("a commit\n")
    if text is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(f"{text}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"Make it {text}")
    return git(repo, "rev-parse", "HEAD").strip()


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., list[str]]:
    """Make a repository `repo` with a commit for each text, and return their hashes."""

    def make(*texts: str | None) -> list[str]:
        repo = tmp_path / "repo"
        repo.mkdir()
        git(repo, "init", "-q", ".")
        return [commit(repo, text) for text in texts]

    return make


def bisected(*words: str, good: str, bad: str = "HEAD") -> tuple[int, dict[str, object]]:
    argv = ["bisect", "--repo", "repo", "--good", good, "--bad", bad, FILE, "--json", *words]
    code, out, error = ending_with_output(argv)
    return code, json.loads(out) if out else {"error": error}


def test_a_header_is_that_of_each_commit(tmp_path: Path, made: Callable[..., list[str]]) -> None:
    header = tmp_path / "repo/include/cost.h"
    made(None)
    header.parent.mkdir()
    hashes = [header.write_text(text) and commit(header.parents[1], "header") for text in map(COST, (27, 27, 39, 39))]
    code, found = bisected("--cflags", "-Irepo/include", good=str(hashes[0]))
    assert (code, suspects(found)) == (0, [hashes[2]])


def suspects(found: dict[str, object]) -> list[str]:
    return [one["key"] for one in found["suspects"]]  # type: ignore[attr-defined]


COST = "cost {}".format


@pytest.mark.parametrize(
    ("texts", "words", "which"),
    [
        ([COST(27)] * 5 + [COST(39)] * 3, (), [5]),
        ([COST(27), COST(39)], (), [1]),
        ([COST(39)] * 4 + [COST(27)] * 5, (), [4]),  # it became cheaper
        ([COST(n) for n in (10, 12, 11, 60, 59, 63, 62)], (), [3]),  # more than half of the step, whatever others do
        ([COST(n) for n in (10, 12, 12, 60, 60, 63, 62)], ("--step", "2"), [1]),
        ([COST(27), "broken", COST(27), "broken", COST(39), "broken", COST(39)], (), [3, 4]),
        ([COST(27), COST(27), "broken", "varies", None, "range 27", "drops 27", COST(39)], (), [2, 3, 4, 5, 6, 7]),
        ([COST(27), COST(27), None, None, COST(39), "broken", COST(39)], (), [2, 3, 4]),
        (["range 27", "range 27", "range 30"], (), [2]),  # the parts that are exact at both ends
    ],
)
def test_the_first_bad_commit_or_those_it_is_among(
    texts: list[str], words: tuple[str, ...], which: list[int], made: Callable[..., list[str]]
) -> None:
    hashes = made(*texts)
    code, found = bisected(*words, good=hashes[0])
    TypeAdapter(ANSWERS["bisect"]).validate_python(found, strict=True)
    assert (code, suspects(found)) == (int(len(which) > 1), [hashes[n] for n in which])


def test_a_commit_of_a_side_branch_is_found(made: Callable[..., list[str]]) -> None:
    first, *_ = made(COST(27), COST(27))
    git(Path("repo"), "checkout", "-qb", "side", first)
    blamed = commit(Path("repo"), COST(50))
    git(Path("repo"), "checkout", "-q", "-")
    git(Path("repo"), "merge", "-q", "-X", "theirs", "side")
    assert suspects(bisected(good=first)[1]) == [blamed]


def test_the_answer_names_commit_step_and_line(made: Callable[..., list[str]]) -> None:
    hashes = made(COST(27), COST(27), COST(39))
    code, out, _ = ending_with_output(["bisect", "--repo", "repo", "--good", hashes[0], "--bad", "HEAD", FILE])
    assert code == 0
    assert re.search(rf"first bad commit is {hashes[2][:7]}\w* Make it cost 39 \(bench, \d{{4}}-\d\d-\d\d\)", out)
    assert re.search(r"\+12.000 +the line", out)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("interrupt_at", [None, 1, 3])
def test_the_users_repository_stays_byte_for_byte(interrupt_at: int | None, made: Callable[..., list[str]]) -> None:
    hashes = made(*[COST(27)] * 5, *[COST(39)] * 3)
    repo = Path("repo")
    (repo / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch hooked\n")
    (repo / ".git/hooks/post-checkout").chmod(0o755)
    (repo / FILE).write_text("half a change")
    git(repo, "stash")
    (repo / FILE).write_text("another half")
    git(repo, "add", "-A")
    (repo / FILE).write_text("a third")
    before = contents(repo)
    Faked.interrupt_at = interrupt_at
    assert bisected(good=hashes[0])[0] == (130 if interrupt_at else 0)
    assert contents(repo) == before
    assert not list(Path("results").rglob(".git")), "its clone is removed"


def test_what_is_judged_is_not_counted_again_after_an_interrupt(made: Callable[..., list[str]]) -> None:
    hashes = made(*[COST(27)] * 20, *[COST(39)] * 20)
    assert bisected("--name", "whole", good=hashes[0])[0] == 0
    whole = len(Faked.counted)
    Faked.counted, Faked.interrupt_at = [], 5
    assert bisected(good=hashes[0])[0] == 130
    (folder,) = (path.parent for path in Path("results").glob("*-bisect/bisect.json"))
    Faked.counted, Faked.interrupt_at = [], None
    (folder / "clone" / ".git").mkdir(parents=True)  # as a kill leaves it
    code, out, _ = ending_with_output(["bisect", "--resume", str(folder), "--json"])
    assert (code, suspects(json.loads(out))) == (0, [hashes[20]])
    assert len(Faked.counted) == whole - 2, "two verdicts were there; the ends are counts, which the folder keeps"


def test_a_build_makes_the_file_and_leaves_nothing_for_the_next(made: Callable[..., list[str]]) -> None:
    hashes = made(COST(27), COST(27), "exit 1", "true", COST(39), COST(39))
    argv = ["bisect", "--repo", "repo", "--good", hashes[0], "--bad", "HEAD", "made.c", "--json"]
    build = f"grep -q cost {FILE} && cp {FILE} made.c"
    code, out, _ = ending_with_output([*argv, "--build", build])
    assert (code, suspects(json.loads(out))) == (1, hashes[2:5])


def test_what_others_may_have_written_builds_only_after_a_yes(made: Callable[..., list[str]]) -> None:
    hashes = made(COST(27), COST(39))
    Path("repo").chmod(0o777)
    assert bisected("--build", "touch built", good=hashes[0])[0] == 8
    code, out, _ = ending_with_output(
        ["--trust", "bisect", "--repo", "repo", "--good", hashes[0], "--bad", "HEAD", FILE, "--build", "true"]
    )
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("--good A --bad 6.12 repo/src/p.bpf.c", "not a kernel's name"),
        ("--repo nowhere --good A --bad HEAD src/p.bpf.c", "nowhere"),
        ("--repo plain --good A --bad HEAD src/p.bpf.c", "not a git repository"),
        ("--repo repo --good nobody --bad HEAD src/p.bpf.c", "--good nobody"),
        ("--repo repo --good HEAD --bad FIRST src/p.bpf.c", "not an ancestor"),
        ("--repo repo --good FIRST --bad HEAD~1 src/p.bpf.c", "nothing to find"),
        ("--repo repo --good HEAD --bad HEAD src/p.bpf.c", "nothing to find"),
        ("--repo repo --good FIRST --bad HEAD src/other.bpf.c", "below --repo"),
        ("--repo repo --good FIRST --bad HEAD ../other.bpf.c", "not inside"),
        ("--repo repo --good FIRST --bad HEAD --step 13 src/p.bpf.c", "differ by 12"),
        ("--repo repo --good FIRST --bad HEAD", "FILE is missing"),
        ("--repo repo --good FIRST src/p.bpf.c", "--bad is missing"),
        ("--repo repo --good FIRST --bad HEAD --name a/b src/p.bpf.c", "a/b"),
        ("--good 6.1 --bad 6.12 nothing.bpf.c", "nothing.bpf.c"),
        ("--repo repo --by race --step 2 --good FIRST --bad HEAD src/p.bpf.c", "--step"),
        ("--by race --good 6.1 --bad 6.12 repo/src/p.bpf.c", "--by race"),
        ("--good 6.1 --bad 6.1 repo/src/p.bpf.c", "named twice"),
        ("--resume plain", "no folder of a bisection"),
    ],
)
def test_a_question_without_an_answer_is_one_line(words: str, fact: str, made: Callable[..., list[str]]) -> None:
    first, *_ = made(COST(27), COST(27), COST(39))
    Path("plain").mkdir()
    code, out, error = ending_with_output(["bisect", *words.replace("FIRST", first).split()])
    lines = [line for line in error.splitlines() if line.startswith("xdplab: ")]
    assert (code in (2, 3, 4, 7), len(lines)) == (True, 1), (code, out, error)
    assert fact in lines[0]
    assert "Traceback" not in error
    assert not list(Path().glob("results/*")), "a refusal leaves no folder"


@pytest.mark.parametrize(
    ("costs", "which"),
    [
        ({"5.10": 27, "6.1": 27, "6.12": 39, "7.2": 39}, ["6.12"]),
        ({"5.10": 27, "6.1": 39, "6.12": 39, "7.2": 39}, ["6.1"]),
        ({"5.10": 27, "6.1": None, "6.12": 39, "7.2": 39}, ["6.1", "6.12"]),
        ({"5.10": 27, "6.1": 27, "6.12": 27, "7.2": 39}, ["7.2"]),
    ],
)
def test_the_first_kernel(costs: dict[str, int | None], which: list[str]) -> None:
    Path("p.bpf.c").write_text(f"kernels {json.dumps(costs)}\n")
    argv = ["bisect", "--good", "5.10", "--bad", "7.2", "p.bpf.c", "--json"]
    code, out, _ = ending_with_output(argv)
    assert (code, suspects(json.loads(out))) == (int(len(which) > 1), which)


def test_ends_of_other_packets_are_refused() -> None:
    with pytest.raises(PlanError):
        judges.Threshold.between(case(27), case(27, back="1.00% of the frames"), None, over_kernels=False)
    with pytest.raises(PlanError):
        judges.Threshold.between(case(27), case(39, kernel="7.2"), None, over_kernels=False)
    assert judges.Threshold.between(case(27), case(39, kernel="7.2"), None, over_kernels=True).at == 833


def test_ends_that_drop_all_frames_may_lack_the_entries_of_a_map() -> None:
    dropping = case(27, back="0.00% of the frames")
    dropping.made_with["passed_on"] = "0.00% of the frames"  # type: ignore[index]
    with pytest.raises(PlanError, match="--map"):
        judges.Threshold.between(dropping, dropping, None, over_kernels=False)


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        ("cost 27", "", 0),
        ("cost 26", "", 0),
        ("cost 28", "", 1),
        ("cost 28", "--step 2", 0),
        ("cost 29", "--step 2", 1),
        ("broken", "", 125),
        ("varies", "", 125),
        ("range 27", "", 125),
        ("drops 27", "", 125),
        ("crash", "", 255),
        ("cost 28", "--judge nothing.json", 255),
        ("cost 28", "--no-such-option", 255),
        ("cost 28", "--step much", 255),
    ],
)
def test_the_command_of_git_bisect_run_calls_nothing_bad_but_what_costs_more(text: str, words: str, code: int) -> None:
    write_baseline([case(27)], Path("good.json"))
    Path("p.bpf.c").write_text(f"{text}\n")
    argv = ["--judge", "good.json"] if "--judge" not in words else []
    assert ending_with_output(["bisect", *argv, *words.split(), "p.bpf.c"])[0] == code


@pytest.mark.parametrize(
    ("low", "high", "middle", "side"),
    [
        (-0.001, 0.001, -0.015, "good"),
        (-0.032, -0.028, -0.015, "bad"),
        (-0.02, -0.01, -0.015, None),
        (-inf, inf, -0.015, None),
        (0.02, 0.03, -0.015, "good"),
        (0.02, 0.03, 0.015, "bad"),
        (-0.02, 0.01, 0.015, "good"),
        (0.01, 0.02, 0.015, None),
    ],
)
def test_a_race_tells_the_side_on_which_its_whole_interval_lies(
    low: float, high: float, middle: float, side: str | None
) -> None:
    assert side_of(Known(9, (low + high) / 2 if high < inf else 0.0, low, high), middle) == side


def test_no_simulated_race_blames_a_wrong_commit() -> None:
    chance = random.Random(7)
    answers = Counter(Drawn(chance).answer() for _ in range(60))
    assert answers["wrong"] == 0, answers
    assert answers["right, alone"] > 30, answers
