"""What a notebook draws of any column: each line is of one trial."""

import pandas as pd
import pytest
from tests.analysis import synthetic

from xdplab.figures import explore


def test_an_earlier_try_is_no_part_of_a_trials_line() -> None:
    """The intervals of both tries made one line, with a negative time between them."""
    trials = synthetic.run(vary={"accesses": [0]}, repetitions=1).assign(attempt=2)
    name = trials["trial_id"].iloc[0]
    rows = [
        {
            "trial_id": name, "attempt": attempt, "burst": "rate", "host": "tg", "t_s": 0.1 * number,
            "tx_packets": packets, "rx_packets": packets,
        }
        for attempt, packets in ((1, 100), (2, 300))
        for number in range(1, 6)
    ]  # fmt: skip
    grid = explore.over_time(pd.DataFrame(rows), trials, "rx_pps", None, None)
    (line,) = grid.ax.lines
    assert list(line.get_ydata()) == pytest.approx([3000.0] * 4)
