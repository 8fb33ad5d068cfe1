"""Logs for tests: made-up ones, and the published ones where they are here: these never enter the project."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from xdplab.run.frames import frame
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.imported import read_thesis
from xdplab.thesis.made_logs import write
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


GENERATOR_TITLE = (
    "  Time    TX Packets     TX Packet Rate Avg TX Packet Rate    RX Packets     RX Packet Rate Avg RX Packet Rate"
)
PERF_TITLE = "# started on Mon Jan  3 10:00:00 2022"


def generator_log(*, seconds: int = 60, decimals: int | None = 2, sender: bool = True, pps: int = 1000) -> bytes:
    """Return a run of ``seconds``: ``pps`` sent, half of it received, latency 0.25 s printed with ``decimals``."""
    latency = "" if decimals is None else "       Latency mean"
    lines = [f"{GENERATOR_TITLE}{latency}  Core  Port"]
    for second in range(1, seconds + 1):
        if sender:
            lines.append(_row(second, (second * pps, pps, pps), (0, 0, 0), 0.0, decimals, 1))
        if second < seconds:
            received = second * pps // 2 if sender else 0
            lines.append(_row(second + 0.5, (0, 0, 0), (received, pps / 2, pps / 2), 0.25, decimals, 2))
    return ("\n".join(lines) + "\n").encode()


def _row(
    time_s: float,
    tx: tuple[float, float, float],
    rx: tuple[float, float, float],
    latency_s: float,
    decimals: int | None,
    core: int,
) -> str:
    counts = [f"{int(packets):12d}, {last:17.2f}, {mean:17.2f}" for packets, last, mean in (tx, rx)]
    latency = [] if decimals is None else [f"{latency_s:17.{decimals if core == 2 else 2}f}"]
    return ", ".join([f"{time_s:6.3f}", *counts, *latency, f"{core:4d}", f"{0:4d}"])


def sar_log(samples: int = 3, cpus: int = 2, *, start: int = 10 * 3600) -> bytes:
    """Return ``samples`` of 2 s: CPU c spends 10 c + sample % in softirqs, nic0 receives 1000 times the sample."""
    parts = [f"Linux 5.13.0 (host) \t03/01/2022 \t_x86_64_\t({cpus} CPU)"]
    for sample in range(1, samples + 1):
        before, after = _clock(start + 2 * sample - 2), _clock(start + 2 * sample)
        parts += [_cpu_block(before, after, cpus, sample), _interface_block(before, after, sample)]
    parts += [_cpu_block("Average:", "Average:", cpus, 0), _interface_block("Average:", "Average:", 0)]
    return ("\n\n".join(parts) + "\n").encode()


def _clock(seconds: int) -> str:
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _comma(value: float) -> str:
    return f"{value:10.2f}".replace(".", ",")


def _cpu_block(before: str, after: str, cpus: int, sample: int) -> str:
    names = ["%usr", "%nice", "%sys", "%iowait", "%steal", "%irq", "%soft", "%guest", "%gnice", "%idle"]
    lines = [f"{before}        CPU" + "".join(f"{name:>10}" for name in names)]
    for name, soft in [("all", 0.0), *((str(cpu), 10.0 * cpu + sample) for cpu in range(cpus))]:
        values = [0.0] * 6 + [soft, 0.0, 0.0, 100.0 - soft]
        lines.append(f"{after}{name:>11}" + "".join(map(_comma, values)))
    return "\n".join(lines)


def _interface_block(before: str, after: str, sample: int) -> str:
    lines = [f"{before}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil"]
    for name, rate in (("lo", 0.0), ("nic0", 1000.0 * sample)):
        lines.append(f"{after}{name:>13}" + "".join(" " + _comma(value).strip() for value in (rate, rate, *[0.0] * 6)))
    return "\n".join(lines)


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
