"""What a person chooses of figures, by the same names in a notebook and on the command line: what they show, how large
they are, and which files they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from xdplab.errors import FigureError
from xdplab.figures.factors import FigureChoice
from xdplab.figures.styles import DEFAULT_STYLE, FORMATS, STYLES, Style, sized

OF_WHAT = tuple(field.name for field in fields(FigureChoice))
OF_SIZE = ("style", "width", "height", "caption")


@dataclass(frozen=True)
class FigureFiles:
    """The files of figures: their folder (None: nothing is written), their style with its size, and their formats."""

    folder: Path | None
    style: Style = STYLES[DEFAULT_STYLE]
    formats: tuple[str, ...] = FORMATS


def taken(options: Mapping[str, Any]) -> tuple[FigureChoice, Style]:
    """Return what a figure shows, and its style with its size: the options `OF_WHAT` and `OF_SIZE`.

    Raises FigureError for another option, and for a value that is none.
    """
    if others := [name for name in options if name not in (*OF_WHAT, *OF_SIZE)]:
        names = ", ".join((*OF_WHAT, *OF_SIZE))
        raise FigureError(f"a figure has no option {others[0]!r}", remedy=f"there are {names}")
    choice = FigureChoice(**{name: options[name] for name in OF_WHAT if name in options})
    return choice, sized(**{name: options[name] for name in OF_SIZE if name in options})


def filed(options: Mapping[str, Any], folder: Path) -> tuple[FigureChoice, FigureFiles]:
    """Return what figures show, and their files.

    Beside the options of a figure: ``out`` (by default ``folder``), ``formats``, and ``why``, which writes nothing.
    """
    own = {name: options[name] for name in ("out", "formats", "why") if name in options}
    choice, style = taken({name: value for name, value in options.items() if name not in own})
    place = None if own.get("why") else own.get("out") or folder
    return choice, FigureFiles(place, style, tuple(own.get("formats") or FORMATS))
