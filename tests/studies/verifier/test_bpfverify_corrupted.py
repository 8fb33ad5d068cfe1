"""Corrupted objects: each gets a verdict and never causes a crash, under both sanitizers."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compiled import tool_source
from tests.studies.verifier.objects import CALLS, MAP_IN_MAP, cyclic, to_rela

from xdplab.formats.verifier import parse_bpfverify

pytestmark = pytest.mark.thorough

SEED = 20250131


def corruptions(content: bytes, rng: random.Random) -> Iterator[bytes]:
    """Objects cut at every 1 %, with random bytes, with changed table fields, for another machine, and with cycles."""
    yield from (content[: len(content) * percent // 100] for percent in range(100))
    for _ in range(120):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 4, 40))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield bytes(changed)
    table = int.from_bytes(content[40:48], "little")
    for _ in range(120):  # the section table can mislead a reader the most
        changed = bytearray(content)
        at = rng.randrange(table, len(changed))
        changed[at] = rng.choice((0, 1, 0x7F, 0xFF, changed[at] ^ (1 << rng.randrange(8))))
        yield bytes(changed)
    yield content[:18] + b"\x3e\x00" + content[20:]  # another machine's
    yield cyclic(content)
    yield cyclic(to_rela(content))


@pytest.fixture
def originals(compile_text, compile_member) -> list[bytes]:
    paths = (compile_member("double_strcmp", 3), compile_text(CALLS), compile_text(MAP_IN_MAP))
    return [path.read_bytes() for path in paths]


@pytest.fixture
def corrupted(originals: list[bytes], tmp_path: Path) -> list[Path]:
    rng = random.Random(SEED)
    paths = []
    for rank, original in enumerate(originals):
        for number, content in enumerate(corruptions(original, rng)):
            paths.append(tmp_path / f"{rank}-{number:03}.o")
            paths[-1].write_bytes(content)
    return paths


def test_a_verdict_for_every_corrupted_object(sanitized: str, corrupted: list[Path]):
    """Root loads them into the kernel; other users only read them: bpfverify never crashes."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    argv = [sanitized, "--deadline", "20", *map(str, corrupted)]
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=120)
    assert b"Sanitizer" not in done.stderr
    assert b"runtime error" not in done.stderr
    assert done.returncode == 0
    rows = parse_bpfverify(done.stdout)
    assert {row.object for row in rows} == {str(path) for path in corrupted}
    whole = {row.verdict for row in rows}
    assert "loader" in whole
    broken = [row for row in rows if row.cause and "broke on it" in row.cause]
    assert len(broken) <= len(corrupted) / 50, [row.cause for row in broken]  # libbpf's own faults, which are contained


@pytest.fixture
def fuzz(tmp_path: Path) -> str:
    """The libFuzzer target."""
    probe = ["clang", "-fsanitize=fuzzer", "-xc", "-", "-o", str(tmp_path / "probe")]
    entry = b"int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return 0; }"
    if subprocess.run(probe, input=entry, capture_output=True).returncode:
        pytest.skip("clang here comes without libFuzzer")
    subprocess.run(
        ["make", "-s", "STRICT=1", "fuzz"], cwd=tool_source("bpfverify", tmp_path), check=True, capture_output=True
    )
    return str(tmp_path / "fuzz" / "fuzz")


def test_twenty_thousand_fuzzed_objects_are_read(fuzz: str, originals: list[bytes], tmp_path: Path):
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for rank, original in enumerate(originals):
        (seeds / f"{rank}.o").write_bytes(original)
    argv = [fuzz, "-runs=20000", f"-seed={SEED}", f"-artifact_prefix={tmp_path}/", str(seeds)]
    done = subprocess.run(argv, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"Done 20000 runs" in done.stderr
