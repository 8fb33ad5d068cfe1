"""A part of `make fuzz`: the targets are built, fed and counted, and an input that breaks one is reported."""

import subprocess
from pathlib import Path

import pytest

from tests.fuzz import fuzzing

pytestmark = pytest.mark.thorough

RUNS = 2000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "BUILD", tmp_path)


@pytest.mark.parametrize("name", fuzzing.C_TARGETS)
def test_a_slice_of_a_parser_in_c(name: str) -> None:
    try:
        target = fuzzing.built(name)
    except subprocess.CalledProcessError as error:
        if "clang_rt.fuzzer" not in error.stderr:
            raise AssertionError(error.stderr) from error
        pytest.skip("clang here comes without libFuzzer (Debian: libclang-rt-14-dev)")
    seeds = fuzzing.C_SEEDS[name] or fuzzing.objects()
    found = fuzzing.fuzzed(name, fuzzing.C_TARGETS[name][0], [target], seeds, RUNS, 0)
    assert (found.broken, found.missing) == (None, None)
    assert found.inputs >= RUNS
    assert found.edges > 10


def test_what_breaks_a_target_is_told(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("#!/bin/sh\necho 'SUMMARY: nothing' >&2\necho '==7==ERROR: AddressSanitizer: heap' >&2\nexit 1\n")
    target.chmod(0o755)
    found = fuzzing.fuzzed("any", "tool", [target], [b"seed"], RUNS, 0)
    assert found.broken == "==7==ERROR: AddressSanitizer: heap"
    assert found.row().startswith("| any | tool | 0 | 0 | 0 | ==7==ERROR")


def test_each_parser_reads_its_seeds_and_what_once_broke_it() -> None:
    from tests.fuzz.parsers import every, read

    for name, (parser, seeds, allowed) in every().items():
        for data in (*seeds, *(path.read_bytes() for path in fuzzing.found_of("python", name))):
            read(parser, data, allowed)
