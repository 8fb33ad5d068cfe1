"""Tables as a notebook shows them: sentences are left-aligned and wrapped, numbers stay at the right."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

MOST_ROWS = 60
"""Longer tables show their first and last rows, as pandas does."""
SENTENCE = 20
"""Characters of a text that is wrapped; in a broad table it would have one word a line."""
MOST_COLUMNS = 20
"""Of broader tables, such as that of a run's trials, the first columns are shown: they are those that vary."""
_NULL = re.compile("<td>(&lt;NA&gt;|None)</td>")
"""What pandas makes of null in columns of objects and of nullable types, whatever ``na_rep`` is."""
_STYLE = (
    "#{id} td {{text-align: right}} #{id} th {{text-align: left}} "
    "{texts} {{text-align: left; white-space: normal; overflow-wrap: break-word; max-width: 70ch}} "
    "{sentences} {{min-width: 30ch}}"
)


class ReadableFrame(pd.DataFrame):
    """A data frame whose text can be read: pandas puts it at the right, and breaks it anywhere."""

    @property
    def _constructor(self) -> type[ReadableFrame]:
        return ReadableFrame

    def _repr_html_(self) -> str:
        return self.readable_html()

    def readable_html(self, *, index: bool = True) -> str:
        """Return the table as HTML; null cells are empty."""
        name, shown = f"xdplab-{id(self):x}", pd.DataFrame(self.iloc[:, :MOST_COLUMNS])
        numbers = shown.select_dtypes("number").columns
        texts = [place for place, column in enumerate(shown.columns, 1 + index) if column not in numbers]
        long = [place for place in texts if _longest(shown.iloc[:, place - 1 - index]) > SENTENCE]
        cells = {kind: ", ".join(f"#{name} td:nth-child({at})" for at in at_all) or f"#{name} caption"
                 for kind, at_all in (("texts", texts), ("sentences", long))}  # fmt: skip
        table = shown.to_html(max_rows=MOST_ROWS, border=0, table_id=name, na_rep="", index=index)
        table = _NULL.sub("<td></td>", table)
        more = f"{MOST_COLUMNS} of {len(self.columns)} columns" if len(self.columns) > MOST_COLUMNS else ""
        return f"<style scoped>{_STYLE.format(id=name, **cells)}</style>{table}{more}"


def _longest(column: pd.Series) -> float:
    return float(column.astype("string").str.len().max() or 0) if column.notna().any() else 0.0


def paragraphs(lines: Iterable[str]) -> str:
    """Return sentences as HTML, one below the other."""
    return "".join(f"<p style='margin: 0.2em 0; white-space: pre-wrap'>{html.escape(line)}</p>" for line in lines)


def small_table(title: str, rows: Mapping[str, Any], links: Iterable[str] = ()) -> str:
    """Return the HTML of an object: its title, a row for each thing to say about it, and links to its files."""
    cells = "".join(
        f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
        f"<td style='text-align: left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value not in (None, "")
    )
    files = " · ".join(f"<a href='{html.escape(path)}' target='_blank'>{html.escape(path)}</a>" for path in links)
    return f"<p><b>{html.escape(title)}</b></p><table>{cells}</table>{f'<p>{files}</p>' if files else ''}"
