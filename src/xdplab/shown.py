"""Tables as a notebook shows them: sentences are left-aligned and wrapped, numbers stay at the right."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

MOST_ROWS = 60
"""Longer tables show their first and last rows, as pandas does."""
_NULL = "<td>&lt;NA&gt;</td>"
"""What pandas makes of null in a column of a nullable type, whatever ``na_rep`` is."""
_STYLE = (
    "#{id} td {{text-align: right}} #{id} th {{text-align: left}} "
    "{places} {{text-align: left; white-space: normal; overflow-wrap: break-word; max-width: 70ch}}"
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
        name = f"xdplab-{id(self):x}"
        numbers = self.select_dtypes("number").columns
        texts = [place for place, column in enumerate(self.columns, 1 + index) if column not in numbers]
        places = ", ".join(f"#{name} td:nth-child({place})" for place in texts) or f"#{name} caption"
        table = self.to_html(max_rows=MOST_ROWS, border=0, table_id=name, na_rep="", index=index)
        table = table.replace(_NULL, "<td></td>")
        return f"<style scoped>{_STYLE.format(id=name, places=places)}</style>{table}"


def paragraphs(lines: Iterable[str]) -> str:
    """Return sentences as HTML, one below the other."""
    return "".join(f"<p style='margin: 0.2em 0'>{html.escape(line)}</p>" for line in lines)


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
