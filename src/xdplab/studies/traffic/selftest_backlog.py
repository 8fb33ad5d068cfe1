"""The negative control of counts: a backlog between the link's count and the program, which drops most frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd

from xdplab.labs import Lab
from xdplab.labs.servers.ports import online_cpus

SLOW: dict[str, int] = {"drop_every": 1, "delay_every": 1, "delay_ns": 2000}
"""The constants of a program that takes longer for a frame than the sender."""
LEAST = 0.5  # of the frames must be dropped before the program


@contextmanager
def steering(lab: Lab) -> Iterator[None]:
    """Have the DUT hand received frames to another CPU (RPS), where a program in generic mode sees them."""
    file = f"/sys/class/net/{lab.dut_interface}/queues/rx-0/rps_cpus"
    before = lab.dut.run(["cat", file]).text.strip()
    others = set(online_cpus(lab.dut, ())) - set(lab.cpus().dut[:1])
    _write(lab, file, f"{1 << min(others, default=0):x}")
    try:
        yield
    finally:
        _write(lab, file, before)


def _write(lab: Lab, file: str, mask: str) -> None:
    lab.dut.run(["sh", "-c", 'echo "$1" > "$2"', "sh", mask, file])


def backlog_found(trials: pd.DataFrame) -> tuple[str, str, bool]:
    """Return what was injected and found: a trial whose link counted what the program never saw must not be valid."""
    injected, verdicts, holds = [], [], []
    for row in trials.to_dict("records"):
        counted, saw = row["actions_received"], sum(json.loads(row["actions_counted"] or "{}").values())
        injected.append(f"the program saw {saw} of {counted} frames")
        verdicts.append(str(row["verdict"]))
        holds.append(saw < (1 - LEAST) * counted and row["verdict"] == "invalid")
    return "; ".join(injected), ", ".join(verdicts), bool(holds) and all(holds)
