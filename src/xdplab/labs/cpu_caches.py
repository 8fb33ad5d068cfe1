"""The size of this machine's largest cache, and of the memory that evicts it."""

from __future__ import annotations

import re
from pathlib import Path

from xdplab.errors import UnsupportedError

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def largest_cache_bytes(folder: Path = CACHES) -> int:
    """Return the size of the largest cache that CPU 0 sees. Raises UnsupportedError if sysfs shows none."""
    sizes = [_bytes(path.read_text()) for path in folder.glob("index*/size")]
    if not sizes:
        raise UnsupportedError(f"{folder} lists no cache: the amount of memory to walk through is unknown")
    return max(sizes)


def evicted_bytes(folder: Path = CACHES) -> int:
    """Return how much memory a cold call walks through: twice the largest cache. Raises as `largest_cache_bytes`."""
    return 2 * largest_cache_bytes(folder)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else 0
