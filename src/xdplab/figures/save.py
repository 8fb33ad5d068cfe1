"""A figure on disk: SVG, PDF, PNG and the marks it was drawn from; the same marks give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xdplab.figures.marks import View
from xdplab.figures.styles import FORMATS, Style, applied, style_named
from xdplab.lazy import lazy
from xdplab.run.disk import write_whole
from xdplab.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from xdplab.figures import draw as drawing
    from xdplab.figures import pointer
    from xdplab.figures.draw import Panels
else:
    drawing, pointer = lazy("xdplab.figures.draw"), lazy("xdplab.figures.pointer")

# A date in the file would make equal figures differ.
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
NOTE_KEY = {"svg": "Description", "pdf": "Subject", "png": "Description"}


def provenance(trials: pd.DataFrame) -> dict[str, str]:
    """Return what leads from a figure back to its trials: run ids and the version of the rules that judged them."""
    names = {"run": "run_id", "rules": "rules_version"}
    return {word: ", ".join(sorted(trials[column].dropna().unique())) for word, column in names.items()}


def render(sheet: Figure, suffix: str, style: Style, title: str, source: Mapping[str, str]) -> bytes:
    """Return the figure's bytes in one format, with ``source`` in its metadata."""
    note = "; ".join(f"{word} {value}" for word, value in source.items() if value)
    metadata = UNDATED[suffix] | {"Title": title, NOTE_KEY[suffix]: f"xdplab; {note}"}
    stream = io.BytesIO()
    shown = sheet.shown if isinstance(sheet, drawing.Sheet) and suffix == "svg" else None
    fonts = _outlines_only() if suffix == "pdf" else nullcontext()
    with applied(style), fonts, pointer.named(sheet, shown) if shown else nullcontext():
        sheet.savefig(stream, format=suffix, metadata=metadata)
    if suffix != "svg":
        return stream.getvalue()
    svg = stream.getvalue().decode()
    return visible(pointer.with_tooltips(svg, sheet, shown) if shown else svg).encode()


@contextmanager
def _outlines_only() -> Iterator[None]:
    """Embed fonts without the tables that lay text out: a PDF says where each of its glyphs stands.

    To read and subset these tables of DejaVu Sans took a fifth of the time of a figure's files. Matplotlib has no
    option for it; a version that does not load fonts in this way embeds them with these tables.
    """
    from fontTools import subset  # type: ignore[import-untyped]

    usual = subset.load_font

    def bare(*args: Any, **options: Any) -> Any:
        font = usual(*args, **options)
        for table in LAYOUT_TABLES:
            if table in font:
                del font[table]
        return font

    subset.load_font = bare
    try:
        yield
    finally:
        subset.load_font = usual


LAYOUT_TABLES = ("GSUB", "GPOS", "GDEF", "MATH", "kern")


def save(
    view: View,
    path: Path,
    *,
    style: str | Style = "paper-1col",
    source: Mapping[str, str] | None = None,
    formats: Sequence[str] = FORMATS,
) -> tuple[Path, ...]:
    """Draw a view; write it in each format, its marks as CSV, and its caption as text where a figure has a shorter one.

    ``path`` has no suffix yet. Returns the paths. Raises ResultsError naming the file if it cannot be written.
    """
    style = style_named(style) if isinstance(style, str) else style
    sheet = sheet_of(drawing.draw(view, style))
    files = {suffix: render(sheet, suffix, style, path.name, source or {}) for suffix in formats}
    files["csv"] = view.marks.assign(file=path.name).to_csv(index=False, lineterminator="\n").encode()
    if view.look.words.short_caption:
        files["txt"] = visible("".join(f"{part}\n" for part in view.caption)).encode()
    return tuple(write_whole(path.with_name(f"{path.name}.{suffix}"), data) for suffix, data in files.items())


def sheet_of(axes: Axes | Panels) -> Figure:
    """Return the figure that holds one Axes or several."""
    from matplotlib.figure import Figure

    sheet = axes.figure
    assert isinstance(sheet, Figure)
    return sheet
