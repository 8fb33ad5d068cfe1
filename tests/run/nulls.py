"""Finds the nulls of a table that have no reason."""

import json

import pandas as pd

from xdplab.studies.traffic.columns import COLUMNS


def unexplained(trials: pd.DataFrame) -> list[str]:
    """Return column and trial of each null without a reason."""
    measured = trials[trials["verdict"].isin(["valid", "invalid"])]
    columns = [column.name for column in COLUMNS if column.kind != "factor"]
    told = [json.loads(text) for text in measured["null_reasons"].fillna("{}")]
    return [
        f"{column} of {trial}: {reasons.get(column)}"
        for column in columns
        for trial, null, reasons in zip(measured["trial_id"], measured[column].isna(), told, strict=True)
        if null and column not in reasons
    ]
