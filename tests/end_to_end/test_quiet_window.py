"""No process is started on the DUT during a window, by the kernel's own count."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.end_to_end.conftest import needs_root
from xdplab.generators import Generator
from xdplab.plan import parse_plan
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

PLAN = {
    "name": "quiet",
    "repetitions": 3,
    "trial": {"warmup_s": 0.05, "window_s": 0.5, "pause_s": 0.02},
    "blocks": [{"points": {"mode": ["native", "generic", "af_xdp"], "accesses": [0]}}],
}


def begun() -> int:
    """Return how many processes and threads this machine, with DUT, TG and controller, has started since its boot."""
    found = re.search(r"^processes (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_no_process_begins_during_a_window(lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst begins with the sender's own threads: as many in a window as in the burst of 20 ms that proves the path.

    The recorder of the samples once started two processes per note, ten in half a second. Other work on the machine
    starts some too, so the median counts.
    """
    counts: dict[str, list[int]] = defaultdict(list)
    burst = Generator.burst

    def counted(generator: Generator, name: str, seconds: float) -> Any:
        before = begun()
        done = burst(generator, name, seconds)
        counts[name].append(begun() - before)
        return done

    monkeypatch.setattr(Generator, "burst", counted)
    with runs.lab_for(lab_name) as lab:
        run = runs.start(parse_plan(PLAN), lab, tmp_path)
        runs.execute(run, lab, runs.quiet())
    assert [attempt.status for attempt in read_state(run).attempts] == ["measured"] * 9
    assert len(counts["rate"]) == len(counts["path"]) == 9
    assert median(counts["rate"]) <= median(counts["path"]), counts
