"""`--format ktap`: the kernel's own parser, tools/testing/kunit/kunit_parser.py, must understand what is printed."""

import re
from pathlib import Path

import pytest

from tests.end_to_end.conftest import plan, xdplab
from xdplab.cli.ktap import KtapCase, KtapCases, Result

RESULT = re.compile(r"(ok|not ok) ([0-9]+) (?:- )?([^#]*)(?: # (SKIP) ?(.*))?")
"""A result line by kunit_parser.py."""


def parsed(text: str) -> list[tuple[str, str]]:
    """Return each case's result and name. Raises AssertionError for text that kunit_parser.py would not take."""
    version, cases, *lines = text.splitlines()
    assert version == "KTAP version 1"
    results = [line for line in lines if not line.startswith("# ")]
    matches = [match for line in results if (match := RESULT.fullmatch(line))]
    assert len(matches) == len(results)
    assert cases == f"1..{len(results)}"
    assert [int(match[2]) for match in matches] == [*range(1, len(results) + 1)]
    return [("skip" if match[4] else match[1], match[3]) for match in matches]


def test_whatever_a_name_has_a_case_is_one_result() -> None:
    cases = [
        KtapCase("a # SKIP b", "ok"),
        KtapCase("two\nlines", "not ok", "why\nnot 1 ok"),
        KtapCase("x\x1b[2J", "skip", "# 1"),
    ]
    assert [result for result, _ in parsed(KtapCases().text(cases))] == ["ok", "not ok", "skip"]


@pytest.mark.parametrize(
    ("results", "code", "ends"),
    [
        (["ok", "skip"], 0, 0),
        (["ok", "skip"], 2, 0),  # a race that is undecided
        (["ok"], 1, 1),  # trials are missing
        (["ok"], 7, 1),  # an error behind the cases
        (["not ok", "ok"], 0, 1),
        (["skip"], 5, 4),
        (None, 5, 4),
        (None, 3, 4),  # no lab
        (None, 2, 1),  # a wrong plan
        (["ok"], 130, 130),
    ],
)
def test_the_exit_code_is_that_of_a_test_of_the_kernel(results: list[Result] | None, code: int, ends: int) -> None:
    cases = KtapCases()
    if results is not None:
        cases.text([KtapCase("a", result) for result in results])
    assert cases.exit_code(code) == ends


def test_claims_are_cases(tmp_path: Path) -> None:
    done = xdplab("claims", "results/sample", "--file", "docs/examples/claims.yaml", "--format", "ktap", check=False)
    assert done.returncode == 1
    assert [result for result, _ in parsed(done.stdout)].count("not ok") == 1


@pytest.mark.root
@pytest.mark.lab
def test_trials_are_cases(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(plan("[{points: {mode: [native, offload], accesses: 0}}]", repetitions=2))
    done = xdplab("--lab", lab_name, "run", "plan.yaml", "--format", "ktap", "--no-figures", cwd=tmp_path)
    results = sorted((result, "offload" in name) for result, name in parsed(done.stdout))
    assert results == [("ok", False)] * 2 + [("skip", True)] * 2
