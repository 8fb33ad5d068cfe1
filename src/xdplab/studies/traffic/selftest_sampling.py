"""The negative control of sampling: each fourth frame is held back, and one in four is stamped, at random."""

from __future__ import annotations

import pandas as pd

HELD_BACK: dict[str, int] = {"delay_ns": 100_000, "delay_every": 4}
TRAFFIC = {"load": "2kpps", "flows": 64, "batch": 1, "stamp": 4}
SHARE = 1 / HELD_BACK["delay_every"]
ERROR = 0.1
"""Some nine standard errors of the share among 1,500 stamped frames."""


def share_found(latencies: pd.DataFrame) -> tuple[str, bool]:
    """Return the share of stamped frames that were held back, in words, and whether it is that of all frames.

    ``latencies`` has a row per bucket (`latencies_of`). If each fourth frame were stamped, it would be all or none.
    """
    stamped = int(latencies["count"].sum())
    if not stamped:
        return "no stamped frame came back", False
    held = int(latencies.loc[latencies["latency_ns"] > HELD_BACK["delay_ns"] / 2, "count"].sum())
    return f"{held / stamped:.1%} of {stamped} stamped frames", abs(held / stamped - SHARE) <= ERROR
