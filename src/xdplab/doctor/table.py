"""What doctor found, as a notebook shows it."""

from __future__ import annotations

import html
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from xdplab.doctor.checks import Row, problems_first


class Checks(pd.DataFrame):
    """One row per check: host, check, found, verdict, remedy. It shows itself in three columns, with whole remedies."""

    def _shown(self) -> list[tuple[str, str, str]]:
        rows = self.to_dict("records")
        return [(row["verdict"], f"{row['host']}: {row['check']}", _value(row)) for row in rows]

    def __repr__(self) -> str:
        rows = self._shown()
        verdicts, checks = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
        return "\n".join(f"{verdict:{verdicts}}  {check:{checks}}  {value}" for verdict, check, value in rows)

    def _repr_html_(self) -> str:
        head = _row(("verdict", "check", "found"), "th")
        return f"<table>{head}{''.join(_row(row, 'td') for row in self._shown())}</table>"


def checks(rows: Sequence[Row]) -> Checks:
    """Return doctor's rows as a table, problems first."""
    return Checks(pd.DataFrame([vars(row) for row in problems_first(rows)]))


def _value(row: Mapping[Hashable, Any]) -> str:
    return str(row["found"]) if pd.isna(row["remedy"]) else f"{row['found']}; to do: {row['remedy']}"


def _row(cells: Sequence[str], kind: str) -> str:
    left = "style='text-align: left'"
    return f"<tr>{''.join(f'<{kind} {left}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>"
