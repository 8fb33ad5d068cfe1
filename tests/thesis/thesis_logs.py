"""Logs for tests: made-up ones, and the published ones where they are here: these never enter the project."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from xdplab.run.frames import frame
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.imported import read_thesis
from xdplab.thesis.made_logs import clock, generator, sar_blocks, write
from xdplab.thesis.rules import judged_import

DATA = Path(os.environ.get("XDPLAB_THESIS_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
"""The thesis' raw logs, and the list of its figures."""
ARCHIVES = ("thesis-dev.tar.xz", "thesis-rep3.tar.xz")
_IF_HERE = pytest.mark.skipif(
    not all((DATA / name).is_file() for name in (*ARCHIVES, "figures-dev.csv")),
    reason="the thesis' raw logs are not here (../shared/data beside the checkout, or XDPLAB_THESIS_DATA)",
)


def needs_data(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that reads the published logs: each rule has made-up ones too."""
    return pytest.mark.thorough(_IF_HERE(test))


def judged(folder: Path, files: Mapping[str, str | bytes]) -> pd.DataFrame:
    """Return the judged trials of some logs, which are written below ``folder``."""
    return judged_import(frame(read_thesis([write(folder, files)], "0a0b").rows, TRIAL_COLUMNS))


PERF_TITLE = "# started on Mon Jan  3 10:00:00 2022"


def generator_log(*, seconds: int = 60, decimals: int | None = 2, sender: bool = True, pps: int = 1000) -> bytes:
    """Return a run of ``seconds``: ``pps`` sent, half of it received, latency 0.25 s printed with ``decimals``."""
    text = generator(pps / 2 if sender else 0.0, tx_pps=pps, latency_s=0.25, decimals=decimals)
    title, *rows = text.splitlines(keepends=True)
    return "".join([title, *rows[: 2 * seconds - 1][0 if sender else 1 :: 1 if sender else 2]]).encode()


def sar_log(samples: int = 3, cpus: int = 2, *, start: int = 10 * 3600) -> bytes:
    """Return ``samples`` of 2 s: CPU c spends 10 c + sample % in softirqs, nic0 receives 1000 times the sample."""
    parts = [f"Linux 5.13.0 (host) \t03/01/2022 \t_x86_64_\t({cpus} CPU)"]
    for sample in range(samples):
        before, after = clock(start + 2 * sample), clock(start + 2 * sample + 2)
        soft = {cpu: 10.0 * cpu + sample + 1 for cpu in range(cpus)}
        parts += sar_blocks(before, after, soft, (1000.0 * (sample + 1), 1000.0 * (sample + 1)), cpus)
    return ("\n\n".join([*parts, *sar_blocks("Average:", "Average:", {}, (0, 0), cpus)]) + "\n").encode()


def perf_log(target: str = "'sleep 5'") -> bytes:
    """Return counts of four events, one of them not counted and one not supported."""
    return f"""{PERF_TITLE}


 Performance counter stats for {target}:

              1,28 msec task-clock                #    0,000 CPUs utilized
         1.008.778      cycles                    #    0,791 GHz                      (66,95%)
     <not counted>      LLC-loads                                                     (0,00%)
   <not supported>      L1-icache-loads

       5,002348942 seconds time elapsed

       0,002399000 seconds user
       0,000000000 seconds sys


Some events weren't counted. Try disabling the NMI watchdog:
\techo 0 > /proc/sys/kernel/nmi_watchdog
\tperf stat ...
\techo 1 > /proc/sys/kernel/nmi_watchdog
""".encode()
