"""Finds the nulls of a table that have no reason."""

from __future__ import annotations

import json

import pandas as pd

from xdplab.run.metrics import METRICS
from xdplab.studies.traffic.nulls import OLDER


def unexplained(trials: pd.DataFrame, *, today: bool = False) -> list[str]:
    """Return column and trial of each null without a reason; ``today``: a run of this version is not called older."""
    measured = trials[trials["verdict"].isin(["valid", "invalid"])]
    columns = [metric.name for metric in METRICS if metric.kind != "factor"]
    told = [json.loads(text) for text in measured["null_reasons"].fillna("{}")]
    return [
        f"{column} of {trial}: {reasons.get(column)}"
        for column in columns
        for trial, null, reasons in zip(measured["trial_id"], measured[column].isna(), told, strict=True)
        if null and (column not in reasons or (today and reasons[column] in (OLDER, "not recorded")))
    ]
