"""When the code changed last: what is made of it, and kept, is made again then. Loads nothing that takes time."""

from __future__ import annotations

import os
from typing import Any


def newest(folder: str) -> list[Any]:
    """Return where the code is, and when a file of it was last written."""
    newest, folders = 0.0, [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    newest = max(newest, entry.stat().st_mtime)
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return [folder, newest]
