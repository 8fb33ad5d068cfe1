"""Unpacks archives that tests use."""

import tarfile
from pathlib import Path

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Debian 12's own Python (3.11.2) has no tar filters yet."""


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive into ``folder`` and return it."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **SAFELY)  # type: ignore[arg-type]
    return folder
