"""A wrapper of the execution study with other code than the project's, for the tests of the proof of equal work."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from xdplab.compiler import find_clang
from xdplab.resources import shipped

Edit = tuple[str, str, str]
"""A file of the tool's folder, a text in it, and what replaces that text."""


def doctored(folder: Path, target: str, edits: Iterable[Edit]) -> Path:
    """Build the object ``target`` in ``folder``, a copy of the tool with ``edits``; each must find its text."""
    shutil.copytree(shipped("microbench"), folder, ignore=shutil.ignore_patterns("*.o", "*.so", "microbench"))
    shutil.copytree(shipped("common"), folder / "common")
    for file, right, wrong in edits:
        text = (folder / file).read_text()
        assert right in text
        (folder / file).write_text(text.replace(right, wrong))
    subprocess.run(["make", "-s", f"CLANG={find_clang()}", target], cwd=folder, check=True, capture_output=True)
    return folder / target
