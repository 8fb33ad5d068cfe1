"""A figure on disk: SVG, PDF, PNG, the marks it was drawn from, its caption; the same marks give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xdplab.figures.marks import View
from xdplab.figures.options import FigureFiles
from xdplab.figures.styles import Style, applied
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


def save(view: View, name: str, output: FigureFiles, source: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Draw a view; write it in each format, its marks as CSV, and its caption as text and for LaTeX.

    Returns the paths; without a folder nothing is drawn. Raises ResultsError naming the file if it cannot be written,
    FigureError as `draw` does.
    """
    if output.folder is None:
        return ()
    sheet = sheet_of(drawing.draw(view, output.style))
    files = {suffix: render(sheet, suffix, output.style, name, source or {}) for suffix in output.formats}
    files["csv"] = view.marks.assign(file=name).to_csv(index=False, lineterminator="\n").encode()
    if view.caption:
        files["txt"] = visible("".join(f"{part}\n" for part in view.caption)).encode()
        files["tex"] = f"{tex_caption(' '.join(view.caption))}\n".encode()
    return tuple(write_whole(output.folder / f"{name}.{suffix}", data) for suffix, data in files.items())


_OF_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {char: f"\\text{name}{{}}" for char, name in {"\\": "backslash", "~": "asciitilde", "^": "asciicircum"}.items()}
    | {char: f"\\text{name}{{}}" for char, name in {"<": "less", ">": "greater", "|": "bar", "…": "ellipsis"}.items()}
    | {char: f"$\\{name}$" for char, name in {"±": "pm", "×": "times", "·": "cdot", "→": "rightarrow"}.items()}
    | {char: f"$\\{name}$" for char, name in {"≥": "ge", "≤": "le", "µ": "mu", "Δ": "Delta"}.items()}
    | {"−": "$-$", "²": "$^2$", "³": "$^3$", "`": "\\textasciigrave{}"}
)


def tex_caption(text: str) -> str:
    """Return a caption for LaTeX, in one line."""
    return f"\\caption{{{latex(text.replace(chr(10), ' '))}}}"


def latex(text: str) -> str:
    """Return a text as LaTeX that prints it, in any encoding of its fonts; letters beyond ASCII stay (UTF-8)."""
    return visible(text).replace("--", "-\0-").translate(_OF_LATEX).replace("\0", "{}").replace(" \\%", "~\\%")


def sheet_of(axes: Axes | Panels) -> Figure:
    """Return the figure that holds one Axes or several."""
    from matplotlib.figure import Figure

    sheet = axes.figure
    assert isinstance(sheet, Figure)
    return sheet
