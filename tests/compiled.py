"""What tests compile: BPF programs and C tools; and scripts that stand for a tool."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from xdplab.resources import shipped

FLAGS = ("-O2", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu")


def bpf_object(folder: Path, source: str, *flags: str, name: str = "program", btf: bool = True) -> Path:
    """Compile ``source``, with BTF or without, and return the object in ``folder``."""
    (folder / f"{name}.bpf.c").write_text(source)
    argv = ["clang", *FLAGS, *["-g"] * btf, *flags, "-c", f"{name}.bpf.c", "-o", f"{name}.o"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / f"{name}.o"


def tool_source(name: str, folder: Path) -> Path:
    """Copy the source of a C tool into a folder of its name, as a host gets it."""
    work = folder / name
    shutil.copytree(shipped(name), work, ignore=shutil.ignore_patterns("*.o", name))
    shutil.copytree(shipped("common"), work / "common")
    return work


def made(work: Path, *words: str) -> Path:
    """Build the tool whose source is in ``work``, with words for `make`."""
    subprocess.run(["make", "-s", "-j2", *words], cwd=work, check=True, capture_output=True, timeout=300)
    return work / work.name


def tool_first_in_path(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> None:
    """Put a script in front of the tool of this name."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
