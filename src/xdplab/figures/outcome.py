"""What was drawn, as lines for a person: nothing that draws is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import NotApplicableError, XdplabError
from xdplab.figures import FORMATS
from xdplab.text import many


@dataclass(frozen=True)
class Drawn:
    """The ``files`` of one figure, or no files and the ``reason`` why there is no such figure.

    ``text`` says what the figure shows. ``lacking``: the reason is that its data were not measured.
    """

    name: str
    stem: str
    files: tuple[Path, ...]
    reason: str = ""
    text: str = ""
    lacking: bool = False

    @classmethod
    def refused(cls, name: str, stem: str, error: XdplabError) -> Drawn:
        return cls(name, stem, (), str(error), lacking=isinstance(error, NotApplicableError))


def lines(drawn: Sequence[Drawn], run: Path) -> list[str]:
    """Return a line per figure: where it is, or why it cannot be drawn; those that lack data are one line together."""
    lines = [line(one) for one in drawn if one.files]
    lines += [_beside(*one.files) for one in drawn if one.files][:1]
    lines += [line(one) for one in drawn if not (one.files or one.lacking)]
    lacking = [one for one in drawn if one.lacking]
    if lacking:
        need = f"{many(len(lacking), 'figure')} need{'s' * (len(lacking) == 1)} what this run did not measure"
        lines.append(f"{need}: `xdplab figures {run} --why`")
    return lines


def line(drawn: Drawn) -> str:
    """Return which file to look at, or why there is no figure."""
    if not drawn.files:
        return f"no figure {drawn.stem}: {drawn.reason}"
    return f"figure {drawn.stem}{f', {drawn.text}' * bool(drawn.text)}: {drawn.files[0]}"


def _beside(*files: Path) -> str:
    """Return what was written of each figure besides the file that its line names."""
    others = [file.suffix for file in files[1:] if file.suffix[1:] in FORMATS]
    captions = "its caption (.txt, and .tex for LaTeX) and its marks (.csv)"
    return f"beside each: {', '.join([*others, captions])}"
