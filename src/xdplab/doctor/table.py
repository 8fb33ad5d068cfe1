"""What doctor found, as a notebook shows it."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd

from xdplab.doctor.checks import Row, headline, listed, problems, problems_first


class Checks(pd.DataFrame):
    """One row per check: host, check, found, verdict, remedy. It shows the problems, and folds what is right."""

    def _checks(self) -> list[Row]:
        whole = self.astype(object).where(self.notna(), None)
        return [Row(**{str(name): value for name, value in row.items()}) for row in whole.to_dict("records")]

    def __repr__(self) -> str:
        return listed(self._checks(), "pd.DataFrame(…) shows them")

    def _repr_html_(self) -> str:
        rows = self._checks()
        right = [("ok", f"{row.host}: {row.check}", row.found) for row in rows if row.verdict == "ok"]
        first = _table(("verdict", "check", "found", "what to do, or what it limits"), problems(rows))
        more = f"<details><summary>{len(right)} ok</summary>{_table(('verdict', 'check', 'found'), right)}</details>"
        return f"<p>{html.escape(headline(rows))}</p>{first}{more}"


def checks(rows: Sequence[Row]) -> Checks:
    """Return doctor's rows as a table, problems first."""
    return Checks(pd.DataFrame([vars(row) for row in problems_first(rows)]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"<table>{_row(head, 'th')}{''.join(_row(row, 'td') for row in rows)}</table>" if rows else ""


def _row(cells: Sequence[str], kind: str) -> str:
    left = "style='text-align: left'"
    return f"<tr>{''.join(f'<{kind} {left}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>"
