"""Instructions per frame of hot paths in C, counted by callgrind: they show a slow-down that noise would hide in times.

Two paths are counted: the AF_XDP engine makes a frame (addresses, number, stamp), and the AF_XDP application forwards
one (rings and recycling, without the workload). The kernel's work, the live engine and the receiver (both BPF programs)
and the Python of tables are not. A count is exact for one compiler; ``RECORDED`` has those of Debian 12's. If a change
is meant to cost more, it updates the count here, and its commit gives the reason.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from xdplab.resources import shipped

HERE = Path(__file__).parent
TOLERANCE = 0.01
RECORDED = {
    "gcc 12.2.0 x86_64-linux-gnu": {
        "every frame stamped": 95.0,
        "one frame in 16 stamped": 76.24,
        "numbers only": 71.0,
        "turn of a frame": 39.82,
    }
}
FRAMES, BATCHES, FRAMES_PER_BATCH = 1000, 100, 64
STAMPS = {"every frame stamped": "all", "one frame in 16 stamped": "16", "numbers only": "none"}
SLOWER = {  # one more store per frame
    "xdpgen": ("afxdp.c", "    *stamp = 0;\n", "    *(volatile uint64_t *)&words[1] = words[1];\n    *stamp = 0;\n"),
    "afxdp_user": ("forward.c", "        queue->sum += work(queue, frame);\n", "        add(&queue->sum, 1);\n"),
}


def compiler() -> str:
    said = [
        subprocess.run(["cc", word], capture_output=True, text=True, check=True).stdout.strip()
        for word in ("-dumpfullversion", "-dumpmachine")
    ]
    name = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout
    return f"{'gcc' if 'Free Software Foundation' in name else 'other'} {said[0]} {said[1]}"


def built(tool: str, harness: str, replaced: str, folder: Path, slower: bool) -> Path:
    """Build a harness instead of the tool's `main`, with the tool's Makefile and the flags that a host uses."""
    work = folder / f"{tool}-{slower}"
    shutil.copytree(shipped(tool), work, ignore=shutil.ignore_patterns("*.o", tool))
    shutil.copytree(shipped("common"), work / "common")
    shutil.copy(HERE / f"{harness}.c", work)
    if slower:
        file, line, more = SLOWER[tool]
        text = (work / file).read_text()
        assert text.count(line) == 1
        (work / file).write_text(text.replace(line, line + more))
    argv = ["make", "-s", f"TOOL={harness}", f"NOT_LINKED={replaced}", "CFLAGS=-O2 -g"]
    subprocess.run(argv, cwd=work, check=True, capture_output=True, timeout=120)
    return work / harness


def counted(binary: Path, *words: str) -> int:
    """Return the instructions that `counted()` and its callees execute."""
    argv = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=counted"]
    done = subprocess.run([*argv, str(binary), *words], capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def per_frame(binary: Path, frames: int, count: int, *words: str) -> float:
    """Return the instructions per frame, from the difference to twice as many calls, without the first calls' cost."""
    more = counted(binary, str(2 * count), *words) - counted(binary, str(count), *words)
    assert more > 0
    return more / (count * frames)


def all_counts(folder: Path, slower: bool = False) -> dict[str, float]:
    sender = built("xdpgen", "send_frame", "main.c afxdp.c", folder, slower)
    forwarder = built("afxdp_user", "forward_frame", "afxdp_user.c forward.c", folder, slower)
    found = {name: per_frame(sender, 1, FRAMES, stamp) for name, stamp in STAMPS.items()}
    return found | {"turn of a frame": per_frame(forwarder, FRAMES_PER_BATCH, BATCHES)}


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    return all_counts(tmp_path_factory.mktemp("counted"))


def test_hot_paths_execute_what_is_recorded(counts: dict[str, float]) -> None:
    recorded = RECORDED.get(compiler())
    if recorded is None:
        pytest.skip(f"no counts are recorded for {compiler()}; here they are {counts}")
    assert counts == pytest.approx(recorded, rel=TOLERANCE)


def test_one_more_store_per_frame_is_seen(counts: dict[str, float], tmp_path: Path) -> None:
    slower = all_counts(tmp_path, slower=True)
    assert all(slower[name] > count * (1 + TOLERANCE) for name, count in counts.items()), (counts, slower)
