"""Outlines and sizes of texts, which matplotlib finds anew for each text: figures of one process share most of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import matplotlib.text
from matplotlib.textpath import TextToPath


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
    texts.TextToPath = _Letters
    try:
        yield
    finally:
        texts.TextToPath = TextToPath
