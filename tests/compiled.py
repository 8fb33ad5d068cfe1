"""What tests compile: BPF programs and C tools; and scripts that stand for a tool."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from xdplab.deploy import native
from xdplab.hosts.local import LocalHost
from xdplab.labs.cache import native_dir
from xdplab.resources import shipped

FLAGS = ("-O2", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu")


def bpf_object(folder: Path, source: str, *flags: str, name: str = "program", btf: bool = True) -> Path:
    """Compile ``source``, with BTF or without, and return the object in ``folder``."""
    (folder / f"{name}.bpf.c").write_text(source)
    argv = ["clang", *FLAGS, *["-g"] * btf, *flags, "-c", f"{name}.bpf.c", "-o", f"{name}.o"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / f"{name}.o"


@functools.cache
def build_once(name: str, *, sanitize: bool = False) -> str:
    """Return a C tool as labs get it: made once of these sources by these compilers, and kept in the user's cache.

    ``sanitize``: with AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    if not sanitize:
        return native.build_tool(LocalHost(), name, str(native_dir()))
    files = native._sources(shipped(name)) | {f"common/{k}": v for k, v in native._sources(shipped("common")).items()}
    build = native._Build(f"{name}-sanitized", files, ("make", "SANITIZE=1"), name, ("make", "cc", "clang"))
    return native._built(LocalHost(), [build], str(native_dir()))[0]


def tool_source(name: str, folder: Path) -> Path:
    """Copy the source of a C tool into a folder of its name, as a host gets it."""
    work = folder / name
    shutil.copytree(shipped(name), work, ignore=shutil.ignore_patterns("*.o", name, "fuzz"))
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
