"""Fixtures: bpfverify as the study builds it, and with sanitizers; objects of the generated families."""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.compiled import build_once

from xdplab.formats.verifier import VerifiedProgram, parse_bpfverify
from xdplab.studies.verifier.generated import Member, compile_object, find_compilers, source

Verify = Callable[..., tuple[VerifiedProgram, ...]]
Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verifier")


@pytest.fixture(scope="session")
def bpfverify() -> str:
    return build_once("bpfverify")


@pytest.fixture(scope="session")
def sanitized() -> str:
    return build_once("bpfverify", sanitize=True)


@pytest.fixture(scope="session")
def verify(bpfverify: str) -> Verify:
    """Return the programs of the objects, with bpfverify's results on this machine's kernel."""

    def run(paths: Path | Iterable[Path], *options: str) -> tuple[VerifiedProgram, ...]:
        named = [paths] if isinstance(paths, Path) else list(paths)
        done = subprocess.run([bpfverify, *options, *map(str, named)], capture_output=True, check=True)
        assert done.stderr == b""
        return parse_bpfverify(done.stdout)

    return run


@pytest.fixture(scope="session")
def compile_text(folder: Path) -> Compile:
    """Compile a C text, with the oldest installed clang unless another is given."""
    compilers = find_compilers()
    if not compilers:
        pytest.skip("no clang is installed")

    def build(text: str, mcpu: str = "v2", newest: bool = False) -> Path:
        return compile_object(text, compilers[-1 if newest else 0], mcpu, folder / "objects")

    return build


@pytest.fixture(scope="session")
def compile_member(compile_text: Compile) -> Compile:
    def build(family: str, n: int, **options: str) -> Path:
        return compile_text(source(Member(family, n, tuple(options.items()))))

    return build
