"""Users who are unrelated to a lab's maker."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

STRANGER = 54321
SYSTEM_PYTHON = Path("/usr/bin/python3")


def as_user(uid: int, code: str, *, python: Sequence[str] = (), home: str = "/nonexistent") -> list[str]:
    """Return the argument vector that runs ``code`` with only the rights of ``uid``."""
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    clean = ["env", "-u", "SUDO_UID", "-u", "XDG_RUNTIME_DIR", f"HOME={home}"]
    return [*drop, *clean, *(python or [sys.executable]), "-B", "-c", code]


def outcome(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")


class Stranger:
    """A user who is unrelated to the lab's maker, and a Python that this user can run."""

    def __init__(self, python: Sequence[str]) -> None:
        self.uid, self.python = STRANGER, python

    def argv(self, code: str) -> list[str]:
        return as_user(self.uid, code, python=self.python)

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        return outcome(self.argv(code))


def find_stranger() -> Stranger:
    paths = os.pathsep.join(path for path in sys.path if path)
    for python in ([sys.executable], ["env", f"PYTHONPATH={paths}", str(SYSTEM_PYTHON)]):
        if outcome(as_user(STRANGER, "import xdplab.labs, paramiko", python=python)).returncode == 0:
            return Stranger(python)
    pytest.skip(f"another user can run neither {sys.executable} nor {SYSTEM_PYTHON} with this xdplab")
