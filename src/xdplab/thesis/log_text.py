"""What the three parsers of the thesis' raw logs share: anomalies with names, the first look, tables of fixed width.

Format and source: I. F. Capeletti, "Análise de Desempenho de Aplicações eBPF/XDP em Planos de Dados Programáveis",
Unipampa 2022. A truncated log causes neither a crash nor a zero: readable values are kept, absent values are NaN, and
an Anomaly says what is wrong with the file.

Lines of right-aligned numbers, all of one width, are read as a grid of characters, a table at a time: reading a word at
a time took most of an import. What departs from the first line's layout in any character is not read so: the parsers
then read line by line and say what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

AnomalyKind = Literal["empty", "binary", "foreign", "truncated", "damaged", "appended_runs", "no_traffic"]


@dataclass(frozen=True)
class Anomaly:
    """What is wrong with one file. ``line`` is 1-based, None if the whole file is meant.

    empty, binary, foreign: none of it can be used. truncated: it ends too early. damaged: lines in between cannot be
    read. appended_runs: it holds several runs one after another. no_traffic: the sender wrote no row.
    """

    kind: AnomalyKind
    text: str
    line: int | None = None


def unreadable(data: bytes, title: bytes) -> Anomaly | None:
    """Return why ``data`` cannot be one of the logs whose first line holds ``title``, or None if it can."""
    if not data or data.isspace():
        return Anomaly("empty", f"{len(data)} bytes, none of them text")
    if b"\0" in data:
        return Anomaly("binary", "NUL bytes", line=data.count(b"\n", 0, data.index(b"\0")) + 1)
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as error:
        return Anomaly("binary", "bytes that are no text", line=data.count(b"\n", 0, error.start) + 1)
    first = data[: data.find(b"\n") + 1 or len(data)]
    if title not in first:
        return Anomaly("foreign", f"begins with {first[:60].decode(errors='replace')!r}", line=1)
    return None


Grid = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]
ANY_DIGIT = bytes.maketrans(b"0123456789", b"0" * 10)
_NUMBER = re.compile(rb"(?P<blank> *)(?<![^\s:,])(?P<whole>-?[0-9]+)(?:[.,](?P<decimals>[0-9]+))?")
_EXACT = 2.0**53
"""Whole numbers below are exact."""
ONE_THREADS_PRODUCTS = 1 << 18
"""Multiplications of one call: for twice as many, OpenBLAS wakes threads, whose waiting takes most of an import."""


@dataclass(frozen=True, eq=False)
class LineLayout:
    """Where a line's numbers stand. ``decimals`` has the digits behind each one's point.

    A column may hold what the first line has there, or a ``blank``, a ``minus``, a ``digit``. ``apart``: it and the
    next column belong to no common whole number. ``weights`` (columns, numbers read): what a digit adds to a number
    without its point; ``number`` is the place among these that a column belongs to, -1 if to none.
    """

    decimals: tuple[int, ...]
    weights: Numbers
    divisors: Numbers
    blank: Mask
    minus: Mask
    digit: Mask
    apart: Mask
    number: NDArray[np.int64]

    def read(self, grid: Grid) -> Numbers | None:
        """Return (lines, fields), or None if a character of a line is not where the layout, or the first line, has it.

        Some lines at a time: so BLAS starts no threads, and what lies in between stays in the CPU's cache.
        """
        numbers = np.empty((len(grid), len(self.divisors)))
        products = int((self.number >= 0).sum()) * len(self.divisors)  # of one line
        lines = max(1, ONE_THREADS_PRODUCTS // products)
        parts = [slice(first, first + lines) for first in range(0, len(grid), lines)]
        return numbers if all(self._read(grid[part], grid[0], numbers[part]) for part in parts) else None

    def _read(self, grid: Grid, first: Grid, numbers: Numbers) -> bool:
        """Set the numbers of a few lines; return whether they have the layout."""
        text, masks = grid.ravel(), _masks(self, 1 << (len(grid) - 1).bit_length())
        blank, minus, digit, apart = (mask[: grid.size] for mask in masks)
        digits, blanks = (text - np.uint8(ord("0"))) < 10, text == ord(" ")
        as_expected = (digits & digit) | (blanks & blank) | (grid == first).ravel()
        minuses = np.flatnonzero(text == ord("-"))
        as_expected[minuses] |= minus[minuses]
        in_order = blanks[:-1] | digits[1:] | apart[:-1]
        if not (as_expected.all() and in_order.all()):
            return False
        values = text & np.uint8(15)  # the low half of a digit's code is its value, that of a blank 0
        values[minuses] = 0
        values = values.reshape(grid.shape)
        most = values.max(axis=0)
        used = np.flatnonzero((most > 0) & (self.number >= 0))  # most columns of a line hold blanks and zeros alone
        if (most[used] @ self.weights[used]).max() >= _EXACT:
            return False
        np.divide(values[:, used].astype(float) @ self.weights[used], self.divisors, out=numbers)
        lines, columns = np.divmod(minuses, grid.shape[1])
        below = self.number[columns]
        numbers[lines[below >= 0], below[below >= 0]] *= -1
        return True


@lru_cache(maxsize=64)
def _masks(layout: LineLayout, lines: int) -> tuple[Mask, ...]:
    """Return blank, minus, digit and apart for some lines at once: numpy takes a third of the time for one long row."""
    masks = (layout.blank, layout.minus, layout.digit, np.append(layout.apart, True))  # apart from the next line
    return tuple(np.tile(mask, lines) for mask in masks)


def grid_of(lines: bytes) -> Grid | None:
    """Return lines that all have one width, each with its end, as (lines, width); None if they have not."""
    width = lines.find(b"\n") + 1
    if not width or len(lines) % width:
        return None
    return np.frombuffer(lines, np.uint8).reshape(-1, width)


def layout_of(line: bytes, fields: tuple[int, ...] | None = None) -> LineLayout:
    """Return the layout of a line (with its end) that others share; their numbers may be below 0.

    Where the line has blanks before a number, others may have digits there. ``fields``: which of its numbers are read,
    None for all; the others are checked, too.
    """
    return _layout(line.translate(ANY_DIGIT), fields)


@lru_cache(maxsize=256)
def _layout(line: bytes, fields: tuple[int, ...] | None) -> LineLayout:
    matches = list(_NUMBER.finditer(line))
    blank, minus, digit, inside = (np.zeros(len(line), bool) for _ in range(4))
    weights = np.zeros((len(line), len(matches)))
    decimals: list[int] = []
    before = -1
    for place, match in enumerate(matches):
        start, point, end = match.start(), match.end("whole"), match.end()
        behind = len(match["decimals"] or b"")
        digit[start:point] = digit[point + 1 : end] = True
        inside[start : point - 1] = True
        if match["blank"]:
            blank[start : point - 1] = True
            minus[start : point - 1] = True
        if before == start:
            digit[start] = minus[start] = False  # else two numbers could touch
        weights[start:point, place] = 10.0 ** (np.arange(point - start)[::-1] + behind)
        weights[end - behind : end, place] = 10.0 ** np.arange(behind)[::-1]
        decimals.append(behind)
        before = end
    read = list(range(len(matches)) if fields is None else fields)
    weights = weights[:, read]
    number = np.where(weights.any(axis=1), weights.argmax(axis=1), -1)
    divisors = 10.0 ** np.array(decimals)[read]
    return LineLayout(tuple(decimals), weights, divisors, blank, minus, digit, ~inside[:-1], number)
