"""A page with every figure of a run in every style, to review before printing."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from xdplab.figures.styles import STYLES
from xdplab.run.disk import write_whole

DrawIn = Callable[[str, Path], list[str]]
"""Draws all figures in a style into a folder; returns a line per figure: where it is, or why it is not there."""

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Figures of {name}</title>
<style>body {{ font-family: sans-serif; margin: 1rem; }}
figure {{ display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; }}
img {{ border: 1px solid #ccc; max-width: 100%; }} figcaption {{ color: #444; }}</style></head>
<body><h1>Figures of {name}</h1>
{body}</body></html>
"""


def write_gallery(name: str, draw_in: DrawIn, folder: Path) -> Path:
    """Draw every figure in each style into ``folder/STYLE`` and return the page that shows them, by figure.

    Images have the size at which they are printed. Raises ResultsError where a file cannot be written.
    """
    absent: dict[str, None] = {}
    for style in STYLES:
        absent |= dict.fromkeys(line for line in draw_in(style, folder / style) if line.startswith("no figure"))
    stems = {path.stem: None for style in STYLES for path in sorted((folder / style).glob("*.svg"))}
    parts = [_figure(stem, folder) for stem in stems]
    parts += ["<h2>Not there</h2>", "<ul>", *(f"<li>{escape(line)}</li>" for line in absent), "</ul>"] if absent else []
    page = PAGE.format(name=escape(name), body="\n".join(parts))
    return write_whole(folder / "gallery.html", page.encode())


def _figure(stem: str, folder: Path) -> str:
    """Return a heading with the figure in each style that has it."""
    shown = [style for style in STYLES if (folder / style / f"{stem}.svg").is_file()]
    images = "\n".join(
        f'<figure><img src="{escape(style)}/{escape(stem)}.svg" alt="{escape(stem)}, {escape(style)}">'
        f"<figcaption>{escape(style)}</figcaption></figure>"
        for style in shown
    )
    return f"<h2>{escape(stem)}</h2>\n{images}"
