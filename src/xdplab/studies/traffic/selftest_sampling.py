"""The negative control of sampling: each fourth frame is held back, and one in four is stamped, at random."""

from __future__ import annotations

import pandas as pd

HELD_BACK: dict[str, int] = {"delay_ns": 100_000, "delay_every": 4}
TRAFFIC = {"load": "2kpps", "flows": 64, "batch": 1, "stamp": 4}
SHARE = 1 / HELD_BACK["delay_every"]
ERROR = 0.1
"""Five standard errors of the share among the 500 stamped frames of a trial."""


def share_found(latencies: pd.DataFrame) -> tuple[str, bool]:
    """Return the share of each trial's stamped frames that were held back, in words, and whether it is that of all
    frames.

    ``latencies`` has a row per bucket (`latencies_of`). If each fourth frame were stamped, it would be all or none in
    a trial, and anything in the mean of some trials.
    """
    late = latencies["latency_ns"] > HELD_BACK["delay_ns"] / 2
    counted = latencies.assign(held=latencies["count"] * late).groupby("trial_id")[["held", "count"]].sum()
    if counted.empty:
        return "no stamped frame came back", False
    shares = counted["held"] / counted["count"]
    text = f"{', '.join(f'{share:.1%}' for share in shares)} of {counted['count'].sum()} stamped frames"
    return text, bool((shares - SHARE).abs().le(ERROR).all())
