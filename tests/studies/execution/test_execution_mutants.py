"""Wrappers changed by rules that know nothing of the proof: every change of the code is found, or changes nothing.

Each rule changes one place of a text: a line is left out or written twice, a number is one more, a comparison includes
or excludes its end, an operator is another one. What the compiler refuses, and what it makes the same code of, are no
changes.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.studies.execution.doctored import doctored

from xdplab.errors import XdplabError
from xdplab.studies.execution.benchmarks import USER, all_benchmarks
from xdplab.studies.execution.objects import object_name
from xdplab.studies.execution.proof import examine

pytestmark = pytest.mark.thorough

EQUAL = {"primes, primes.h, line 38, 0: for (NUMBER number = 1; number <= highest; number++)"}
"""0 is not divided: the same divisions, and one turn of the loop less."""

SAMPLE, SEED = 8, 20_261_124
OTHER = {"<=": "<", "<": "<=", "+=": "-=", "*": "+", "%": "&", "==": "!=", "^=": "|=", "++": "+= 2", "/": "%"}
HARMLESS = re.compile(r"^\s*(//|/?\*|#|$)")


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Give each mutant of a C text with the words that name it."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if HARMLESS.match(line):
            continue
        code, slashes, comment = line.partition("//")
        for number, words in enumerate(_of_line(code)):
            changed = "".join([*lines[:at], words + (slashes + comment if slashes else ""), *lines[at + 1 :]])
            yield f"line {at + 1}, {number}: {words.strip() or 'left out'}", changed


def _of_line(code: str) -> Iterator[str]:
    if (code.rstrip().endswith(";") and "=" in code) or "return" in code:
        yield "\n"
        yield f"{code.rstrip()} {code.strip()}\n"
    for found in re.finditer(r"\b\d+\b", code):
        yield f"{code[: found.start()]}{int(found[0]) + 1}{code[found.end() :]}"
    for found in re.finditer(r"<=|\+=|==|\^=|\+\+|[<*%/]", code):
        yield f"{code[: found.start()]}{OTHER[found[0]]}{code[found.end() :]}"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return doctored(tmp_path_factory.mktemp("mutants") / "microbench", [])


def survivors(sources: Path, objects: Path, kernel: str, file: str, chosen: list[tuple[str, str]]) -> list[str]:
    """Return the mutants of user space's function that pass the proof though their code is another one."""
    benchmark = all_benchmarks()[kernel]
    name, header = object_name(benchmark, USER), sources / "kernels" / f"{file}.h"
    right, found = header.read_text(), []
    own = examine(benchmark, USER, objects / name)
    assert not own.wrong
    try:
        for words, text in chosen:
            header.write_text(text)
            done = subprocess.run(["make", "-s", "-B", name], cwd=sources, capture_output=True, check=False)
            if done.returncode:
                continue
            try:
                seen = examine(benchmark, USER, sources / name, objects)
            except XdplabError:
                continue
            if not seen.wrong and seen.text.split("\n", 5)[-1] != own.text.split("\n", 5)[-1]:
                found.append(f"{kernel}, {file}.h, {words}")
    finally:
        header.write_text(right)
    return [one for one in found if one not in EQUAL]


def all_of(sources: Path, kernel: str, file: str) -> list[tuple[str, str]]:
    return list(mutants((sources / "kernels" / f"{file}.h").read_text()))


@pytest.mark.parametrize(("kernel", "file"), [("primes", "primes"), ("matrix", "matrix"), ("primes", "measure")])
def test_a_sample_of_mutants_is_found(sources: Path, objects: Path, kernel: str, file: str) -> None:
    chosen = all_of(sources, kernel, file)
    sample = random.Random(SEED).sample(chosen, min(SAMPLE, len(chosen)))
    assert survivors(sources, objects, kernel, file, sample) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kernel", "file"), [("primes", "primes"), ("matrix", "matrix"), ("matrix", "common"), ("matrix", "measure")]
)
def test_every_mutant_is_found(sources: Path, objects: Path, kernel: str, file: str) -> None:
    assert survivors(sources, objects, kernel, file, all_of(sources, kernel, file)) == []


def test_the_rules_make_mutants_of_every_kind(sources: Path) -> None:
    words = " ".join(name for name, _ in all_of(sources, "primes", "primes"))
    assert "left out" in words
    assert "divisor * divisor < number" in words
