"""Other processes: what runs, and waiting for what they do."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def until(holds: Callable[[], object], seconds: float = 10.0, every_s: float = 0.05) -> bool:
    """Wait until something holds; return whether it did in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True


def children(pid: int) -> list[int]:
    """Return the processes that a process has started; none if it has ended."""
    with suppress(OSError):
        return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    return []


def runs(pid: int) -> bool:
    """Return whether a process has not ended; one that nobody has waited for has."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@contextmanager
def child(argv: Sequence[str | Path], says: str, cwd: str | Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose first line is ``says``; it is killed when the block ends, if it runs then."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, cwd=cwd) as process:
        try:
            assert process.stdout.readline() == f"{says}\n"
            yield process
        finally:
            process.kill()
