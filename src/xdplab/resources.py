"""Where the C sources, templates, scripts and plans are (the checkout, or copies in an installed wheel), and caches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE.parents[1], _PACKAGE.parents[1] / "native", _PACKAGE / "shipped", _PACKAGE / "shipped" / "native")


def shipped(name: str) -> Path:
    """Return the folder of a C tool (``xdpgen``, ``xdpload``, ``afxdp_user``, …), of templates, scripts or ``plans``.

    Raises FileNotFoundError if neither a checkout nor a wheel holds it.
    """
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(f"{name!r} is neither in the checkout nor in the installed package")


def state_root() -> Path:
    """Return the folder of the user's state of this program: $XDPLAB_STATE, or xdplab in the user's state directory."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "xdplab"
    return Path(os.environ.get("XDPLAB_STATE") or base)


def cache_root() -> Path:
    """Return the folder of the user's cache of this program: $XDPLAB_CACHE, or xdplab in the user's cache directory."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xdplab"
    return Path(os.environ.get("XDPLAB_CACHE") or base)


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
