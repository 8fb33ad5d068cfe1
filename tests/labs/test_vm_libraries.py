"""The libraries that a program boots with."""

import shutil
import subprocess
from pathlib import Path

import pytest

from xdplab.errors import LabError
from xdplab.labs.vm import headers


@pytest.fixture
def program(tmp_path: Path) -> tuple[bytes, Path]:
    """A program of this machine, and a folder with all that ldd says of it: the second opinion."""
    folder = tmp_path / "lib"
    folder.mkdir()
    path = str(shutil.which("ls"))
    words = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split()
    for found in {word for word in words if word.startswith("/")}:
        shutil.copy(found, folder)
    return Path(path).read_bytes(), tmp_path


def test_a_program_gets_its_loader_and_what_its_libraries_need(program: tuple[bytes, Path]) -> None:
    content, folder = program
    found = headers.needed(content, [folder / "lib"])
    assert headers.needed(content) == found
    assert {Path(path).name for path in found} == {path.name for path in (folder / "lib").iterdir()}
    assert all(content == (folder / "lib" / Path(path).name).read_bytes() for path, content in found.items())


def test_a_library_that_no_package_has_is_named(program: tuple[bytes, Path]) -> None:
    content, folder = program
    (folder / "lib/libc.so.6").unlink()
    with pytest.raises(LabError, match=r"libc\.so\.6"):
        headers.needed(content, [folder / "lib"])


def test_what_no_loader_starts_needs_nothing(program: tuple[bytes, Path]) -> None:
    content, _ = program
    assert headers.is_program(content)
    assert not headers.is_program(b"[1, 2]")
    assert not headers.is_program(b"")
