"""No process is started on the DUT during a window, by the kernel's own count."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from xdplab.generators import Generator
from xdplab.labs import use_lab
from xdplab.plan import parse_plan
from xdplab.run.progress import silent
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.kind import TRAFFIC

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

PLAN = {
    "name": "quiet",
    "repetitions": 3,
    "trial": {"warmup_s": 0.05, "window_s": 0.5, "pause_s": 0.02},
    "blocks": [{"points": {"mode": ["native", "generic", "af_xdp"], "accesses": [0]}}],
}
NOTES = "counts.json"
OWN_PIDS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def begun() -> int:
    """Return how many processes and threads this PID namespace, with those below it, has started.

    It is the number of the last one: of the thread that tells it, which counts too.
    """
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(threading.get_native_id()))
    thread.start()
    thread.join()
    return numbers[0]


def measure(folder: Path) -> None:
    """Measure in a lab of one's own, and write down how many processes and threads began in each burst."""
    counts: dict[str, list[int]] = defaultdict(list)
    burst = Generator.burst

    def counted(generator: Generator, name: str, seconds: float) -> Any:
        before = begun()
        done = burst(generator, name, seconds)
        counts[name].append(begun() - before)
        return done

    Generator.burst = counted  # type: ignore[method-assign]
    with use_lab("netns:quiet") as lab:
        run = runs.start(parse_plan(PLAN), lab, folder)
        TRAFFIC.run(run).measure_at(runs.InLab(lab), silent())
    (folder / NOTES).write_text(json.dumps([[attempt.status for attempt in read_state(run).attempts], counts]))


def test_no_process_begins_during_a_window(tmp_path: Path) -> None:
    """A burst begins with the sender's own threads: as many in a window as in the burst of 20 ms that proves the path.

    The recorder of the samples once started two processes per note, ten in half a second. DUT, TG and controller are
    in a PID namespace of their own, where no other work begins anything.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory(prefix="xdplab-quiet-") as runtime:
        done = subprocess.run(
            [*OWN_PIDS, sys.executable, __file__, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": paths, "XDPLAB_RUNTIME_DIR": runtime},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    statuses, counts = json.loads((tmp_path / NOTES).read_text())
    assert statuses == ["measured"] * 9
    assert len(counts["rate"]) == len(counts["path"]) == 9
    assert median(counts["rate"]) <= min(counts["path"]), counts


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
