"""Lines of right-aligned numbers, all of one width: read as a grid of characters, a table at a time.

Reading a word at a time took most of an import. What departs from the first line's layout in any character is not read
here: the parsers then read line by line and say what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.uint8]
Numbers = NDArray[np.float64]
_SPACE, _MINUS, _DIGIT = 1, 2, 4  # in the order in which they may stand in a number
_DIGITS = bytes(range(ord("0"), ord("9") + 1))
_KINDS = {ord(" "): _SPACE, ord("-"): _MINUS, **dict.fromkeys(_DIGITS, _DIGIT)}
_CLASS = bytes(_KINDS.get(character, 0) for character in range(256))
_VALUE = bytes(character - ord("0") if character in _DIGITS else 0 for character in range(256))
_ANY_DIGIT = bytes.maketrans(_DIGITS, b"0" * 10)
_NUMBER = re.compile(rb"(?P<blank> *)(?P<whole>-?[0-9]+)(?:[.,](?P<decimals>[0-9]+))?")
_EXACT = 2.0**53  # whole numbers below it are floats


@dataclass(frozen=True)
class _Field:
    """One number's columns, and the weight of each of them."""

    start: int
    end: int
    weights: Numbers


@dataclass(frozen=True, eq=False)
class Layout:
    """Where a line's numbers stand. ``decimals`` has the digits behind each one's point.

    ``allowed``: the classes of characters that each column may hold, 0 where it holds the character of ``literal``.
    ``inside``: True where a column and the next are of the same whole number.
    """

    fields: tuple[_Field, ...]
    decimals: tuple[int, ...]
    divisors: Numbers
    allowed: Grid
    literal: Grid
    inside: NDArray[np.bool_]

    def read(self, grid: Grid) -> Numbers | None:
        """Return (lines, fields), or None where a character of a line is not where the layout has it."""
        lines = grid.tobytes()
        classes = np.frombuffer(lines.translate(_CLASS), np.uint8).reshape(grid.shape)
        if not (((classes & self.allowed) != 0) | (grid == self.literal)).all():
            return None
        if not ((classes[:, :-1] <= classes[:, 1:]) | ~self.inside).all():
            return None
        digits = np.frombuffer(lines.translate(_VALUE), np.uint8).reshape(grid.shape).astype(float)
        numbers = np.stack([digits[:, f.start : f.end] @ f.weights for f in self.fields], axis=1)
        if numbers.max() >= _EXACT:
            return None
        numbers /= self.divisors
        minus = classes == _MINUS
        if minus.any():
            signs = np.stack([minus[:, f.start : f.end].sum(axis=1) for f in self.fields], axis=1)
            if signs.max() > 1:
                return None
            numbers[signs == 1] *= -1
        return numbers


def grid_of(lines: bytes) -> Grid | None:
    """Return lines that all have one width, each with its end, as (lines, width); None where they have not."""
    width = lines.find(b"\n") + 1
    if not width or len(lines) % width:
        return None
    return np.frombuffer(lines, np.uint8).reshape(-1, width)


def layout_of(line: bytes, *, signed: bool) -> Layout:
    """Return the layout of a line (with its end) that others share; ``signed`` numbers may be below 0.

    Where the line has blanks before a number, others may have digits there.
    """
    return _layout(line.translate(_ANY_DIGIT), signed)


@lru_cache(maxsize=256)
def _layout(line: bytes, signed: bool) -> Layout:
    allowed, inside = np.zeros(len(line), np.uint8), np.zeros(len(line) - 1, bool)
    fields: list[_Field] = []
    decimals: list[int] = []
    for match in _NUMBER.finditer(line):
        start, point, end = match.start(), match.end("whole"), match.end()
        blank = _SPACE | (_MINUS if signed else 0)
        allowed[start : point - 1] = (blank | _DIGIT) if match["blank"] else _DIGIT
        allowed[point - 1] = _DIGIT
        if fields and fields[-1].end == start:
            allowed[start] = _SPACE  # else two numbers could touch
        inside[start : point - 1] = True
        behind = len(match["decimals"] or b"")
        weights = np.zeros(end - start)
        weights[: point - start] = 10.0 ** (np.arange(point - start)[::-1] + behind)
        if behind:
            allowed[point + 1 : end] = _DIGIT
            weights[point + 1 - start :] = 10.0 ** np.arange(behind)[::-1]
        fields.append(_Field(start, end, weights))
        decimals.append(behind)
    literal = np.frombuffer(line, np.uint8).copy()
    literal[allowed > 0] = 0
    return Layout(tuple(fields), tuple(decimals), 10.0 ** np.array(decimals), allowed, literal, inside)
