"""Instructions of hot paths, counted by callgrind: they show a slow-down that noise would hide in times.

Three paths are counted: the AF_XDP engine makes a frame (addresses, number, stamp), the AF_XDP application forwards one
(rings and recycling, without the workload), and Python parses the raw files of an attempt of results/sample. The
kernel's work, the live engine and the receiver (both BPF programs) and the Python of tables are not. A count is exact
for one compiler, or for one build of Python; those of Debian 12 and of CI are recorded. If a change is meant to cost
more, it updates the count here, and its commit gives the reason.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compiled import made, tool_source

HERE = Path(__file__).parent
TOLERANCE = 0.01
_COUNTS = {
    "every frame stamped": 100.0,
    "one frame in 16 stamped": 82.12,
    "numbers only": 80.0,
    "turn of a frame": 41.13,
}
RECORDED = {"gcc 12.2.0 x86_64-linux-gnu": _COUNTS}
FRAMES, BATCHES, FRAMES_PER_BATCH = 1000, 100, 64
STAMPS = {"every frame stamped": "all", "one frame in 16 stamped": "16", "numbers only": "none"}
SLOWER = {  # one more store per frame
    "xdpgen": (
        "afxdp_queue.c",
        "    *stamp = 0;\n",
        "    *(volatile uint64_t *)&words[1] = words[1];\n    *stamp = 0;\n",
    ),
    "afxdp_user": (
        "forward.c",
        "            work(queue, data_of(queue, frame), frame->len);\n",
        "            add(&queue->sum, 1);\n",
    ),
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
    work = tool_source(tool, folder / str(slower))
    shutil.copy(HERE / f"{harness}.c", work)
    if slower:
        file, line, more = SLOWER[tool]
        text = (work / file).read_text()
        assert text.count(line) == 1
        (work / file).write_text(text.replace(line, line + more))
    made(work, f"TOOL={harness}", f"NOT_LINKED={replaced}", "CFLAGS=-O2 -g")
    return work / harness


def counted(binary: Path, *words: str, within: str | None = "counted") -> int:
    """Return the instructions that the C function ``within`` and its callees execute; None: the whole process."""
    argv = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    argv += [f"--toggle-collect={within}"] if within else []
    unhashed = os.environ | {"PYTHONHASHSEED": "0"}
    command = [*argv, str(binary), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=unhashed)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def per_frame(binary: Path, frames: int, count: int, *words: str) -> float:
    """Return the instructions per frame, from the difference to twice as many calls, without the first calls' cost."""
    more = counted(binary, str(2 * count), *words) - counted(binary, str(count), *words)
    assert more > 0
    return more / (count * frames)


def all_counts(folder: Path, slower: bool = False) -> dict[str, float]:
    sender = built("xdpgen", "send_frame", "main.c afxdp_queue.c", folder, slower)
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


@pytest.mark.thorough
def test_one_more_store_per_frame_is_seen(counts: dict[str, float], tmp_path: Path) -> None:
    slower = all_counts(tmp_path, slower=True)
    assert all(slower[name] > count * (1 + TOLERANCE) for name, count in counts.items()), (counts, slower)


ATTEMPT = HERE.parents[2] / "results" / "sample" / "raw" / "fc07c43bcca1-r1" / "1"
ATTEMPTS = 5
RECORDED_PARSER = {"CPython 3.11.7 GCC 12.2.0 x86_64": 20_376_000}


def of_process(times: int, *how: str) -> int:
    """Return the instructions of a process that parses the raw files of one attempt so many times."""
    return counted(Path(sys.executable), str(HERE / "parse_raw.py"), str(ATTEMPT), str(times), *how, within=None)


@pytest.fixture(scope="module")
def of_parser() -> tuple[float, int]:
    """The instructions that parsing one attempt takes, and those of the process that parses `ATTEMPTS` twice."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    few, more = of_process(ATTEMPTS), of_process(2 * ATTEMPTS)
    return (more - few) / ATTEMPTS, more


@pytest.mark.thorough
def test_the_parser_of_raw_files_executes_what_is_recorded(of_parser: tuple[float, int]) -> None:
    build = " ".join(
        (platform.python_implementation(), platform.python_version(), platform.python_compiler(), platform.machine())
    )
    if build not in RECORDED_PARSER:
        pytest.skip(f"no count is recorded for {build}; here it is {of_parser[0]:.0f}")
    assert of_parser[0] == pytest.approx(RECORDED_PARSER[build], rel=TOLERANCE)


@pytest.mark.thorough
def test_a_line_that_is_parsed_twice_is_seen(of_parser: tuple[float, int]) -> None:
    attempt, whole = of_parser
    slower = (of_process(2 * ATTEMPTS, "slower") - whole) / (2 * ATTEMPTS)
    assert slower > attempt * TOLERANCE
