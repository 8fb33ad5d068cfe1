"""Debian's user-mode Linux in the user's own cache: the kernel as a program, and its modules. Never installed."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import LabError
from xdplab.labs.cache import locked, make, mark_used
from xdplab.labs.vm import archive

PACKAGE = "user-mode-linux"
SUITES = ("bookworm",)
"""The suite whose package is 6.1, the version that the studies' figures name."""

_SPACE_MB = 200
_DESCRIPTION = "uml.json"


@dataclass(frozen=True)
class Package:
    """One user-mode Linux in the cache.

    ``release`` is what ``uname -r`` says in it, ``version`` the package's, ``source`` its source's.
    """

    release: str
    version: str
    source: str
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "usr/bin/linux.uml"

    @property
    def modules(self) -> Path:
        return self.folder / "usr/lib/uml/modules" / self.release

    @property
    def series(self) -> str:
        """``6.1`` of ``6.1.176``."""
        return ".".join(self.release.split(".")[:2])


def package() -> Package:
    """Return the user-mode Linux of this machine's cache; fetch it if it is missing. Raises LabError."""
    with locked("uml-kernel") as root:
        folder = root / PACKAGE
        if not folder.exists():
            make(folder, functools.partial(_fill, root / "apt"), what="user-mode Linux", space_mb=_SPACE_MB)
        mark_used(folder)
    description = json.loads((folder / _DESCRIPTION).read_text())
    return Package(description["release"], description["version"], description["source"], folder)


def _fill(apt_root: Path, folder: Path) -> None:
    options, version = archive.find_newest(apt_root, PACKAGE, SUITES)
    (file,) = archive.download([f"{PACKAGE}={version}"], options, folder.parent)
    archive.extract(file, folder)
    kernel = folder / "usr/bin/linux.uml"
    try:
        release = subprocess.run([kernel, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise LabError(f"user-mode Linux does not start here: {error}", remedy="it runs on x86-64 only") from error
    description = {"release": release, "version": version, "source": archive.built_using(file, "linux")}
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n")
