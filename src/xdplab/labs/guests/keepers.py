"""What labs in guests of this machine have in common: keepers, consoles, and the shared folder of tools.

Also the size of the largest cache, which only this machine's own sysfs has.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdplab.errors import UnsupportedError
from xdplab.labs.base import Arrangement
from xdplab.labs.cache import cache_dir
from xdplab.labs.keepers import Keepers

_NOTE = re.compile(r"^xdplab: (the guest .*)$", re.MULTILINE)


@dataclass(frozen=True)
class KeeperScript:
    """The program of a keeper, its ``configuration``, and the files that it inherits."""

    path: Path
    configuration: Mapping[str, Any]
    descriptors: Sequence[int] = ()


@dataclass(frozen=True)
class GuestKeepers(Keepers):
    """The keepers of one kind of guest; they run as the lab's owner."""

    ping_s: float = 5.0
    """Seconds between two beats to a guest, unless it must get none."""

    def console(self, instance: str) -> Path:
        """Return the file with the console output of the last guest of that name."""
        return cache_dir() / self.kind / f"{instance}.console"

    def ended(self, instance: str) -> str:
        """Tell how the last guest of that name ended, if xdplab did not end it."""
        console = self.console(instance)
        try:
            notes = _NOTE.findall(console.read_text(errors="replace"))
        except OSError:
            return ""
        return f": last time {notes[-1]}; its console: {console}" if notes else ""

    def start(self, script: KeeperScript, uid: int, instance: str, *, lease: bool, facts: dict[str, Any]) -> bool:
        """Start a keeper and return once its guest is up. Returns whether it was made now.

        ``facts`` describe the lab for clients.
        """
        console = str(self.console(instance))
        more = {"ping_s": self.ping_s, **script.configuration}
        lab = {"socket": str(self.address(uid, instance)), "uid": uid, "lease": lease, "start_s": self.coming_up_s}
        with ThreadPoolExecutor(1) as beside:
            beside.submit(importlib.import_module, "xdplab.hosts.ssh")  # its users need it as soon as it is up
            done = subprocess.run(
                [sys.executable, "-I", "-B", str(script.path)],
                input=json.dumps(lab | more | {"console": console, "known": facts | {"console": console}}),
                capture_output=True,
                text=True,
                check=False,
                pass_fds=script.descriptors,
            )
        return self.came_up(uid, instance, done)


def arrangement(_instance: str) -> Arrangement:
    """Return the arrangement of a guest: its CPUs are threads of one process, whatever their number."""
    return "shared"


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
