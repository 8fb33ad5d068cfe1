"""Source of a guest's kernel: one folder of Debian's source of exactly that version."""

from __future__ import annotations

import functools
import re
import subprocess
import tarfile
from pathlib import Path

from xdplab.errors import LabError
from xdplab.labs.cache import locked, make, mark_used
from xdplab.labs.vm import archive, kernels

_SPACE_MB = 300
"""The package is half of it, and is removed again."""


def folder_of(kernel: str, folder: str) -> dict[str, bytes]:
    """Return the files of one folder (``drivers/net/netdevsim``) of a kernel's source, by name.

    Fetched if it is not in the cache. Raises LabError if the archive has no source of just this kernel, or that has
    no such folder.
    """
    chosen = kernels.kernel(kernel)
    with locked("sources") as root:
        # Side by side: a folder inside its parent would be taken for a file of the parent, and the parent for complete.
        kept = root / f"{chosen.release}_{chosen.version}+{folder.replace('/', '+')}"
        if not kept.exists():
            make(kept, functools.partial(_fill, chosen, folder), what=f"source of {kernel}", space_mb=_SPACE_MB)
        mark_used(kept)
    return {path.name: path.read_bytes() for path in sorted(kept.iterdir())}


def _fill(kernel: kernels.Kernel, wanted: str, folder: Path) -> None:
    series = re.match(r"\d+\.\d+", kernel.release)
    package = f"linux-source-{series[0]}" if series else kernel.release
    with locked("kernels") as root:  # apt's lists are there
        options = archive.find_exactly(root / "apt", package, kernel.version, kernels.suites(kernel.name))
        (file,) = archive.download([f"{package}={kernel.version}"], options, folder.parent)
    _unpack(file, f"usr/src/{package}.tar.xz", f"{package}/{wanted}", folder)
    if not any(folder.iterdir()):
        raise LabError(f"kernel {kernel.name}: its source has no {wanted}")


def _unpack(package: Path, inner: str, wanted: str, folder: Path) -> None:
    """Write the files of one folder of the archive in a package; the rest of the archive is not unpacked."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as outer:
            member = next((member for member in outer if member.name.removeprefix("./") == inner), None)
            content = outer.extractfile(member) if member else None
            if content is None:
                raise LabError(f"{package.name} holds no {inner}")
            with tarfile.open(fileobj=content, mode="r|xz") as members:
                _write(members, wanted, folder)
        process.kill()


def _write(members: tarfile.TarFile, wanted: str, folder: Path) -> None:
    for member in members:
        path = Path(member.name)
        if str(path.parent) == wanted and member.isfile() and (content := members.extractfile(member)):
            (folder / path.name).write_bytes(content.read())
        if not path.is_relative_to(wanted) and any(folder.iterdir()):
            return  # its own folders lie among its files
