"""The expected outputs: a checksum for each file, and the texts, so that the first difference can be shown."""

import csv
import io
import lzma
import math
import platform
import re
import tarfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

from tests.oracle.derive import NOT_KEPT, NUMBER, Files, digest

FOLDER = Path(__file__).with_name("expected")
LIBRARIES = ("matplotlib", "numpy", "pandas", "scipy")
CLOSE = 1e-9
"""The relative difference of two fractional numbers that is none: another CPU adds in another order."""
SHOWN = 100
MOST_KEPT = 500_000
"""Bytes of a text. Of a longer one, as of an SVG, only the checksum is kept."""


def drawn_by() -> str:
    """Return what the digits in an SVG depend on."""
    return " ".join([f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])


def packed(files: Files) -> bytes:
    """Return an archive of files: the same files give the same bytes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def texts(subject: str) -> Files:
    """Return the expected texts of a subject."""
    if not _texts(subject).exists():
        return {}
    with tarfile.open(_texts(subject)) as archive:
        return {entry.name: _read(archive, entry) for entry in archive}


def _read(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry)
    return stream.read()


def write(subject: str, files: Files) -> int:
    """Keep the outputs of a subject as the expected ones; return their size in bytes."""
    FOLDER.mkdir(exist_ok=True)
    sums = "".join(f"{_digest(subject, data)}  {name}\n" for name, data in sorted(files.items()))
    _sums(subject).write_text(f"# {drawn_by()}\n{sums}")
    kept = {name: data for name, data in files.items() if not name.endswith(".svg") and len(data) <= MOST_KEPT}
    _texts(subject).unlink(missing_ok=True)
    if subject not in NOT_KEPT:
        _texts(subject).write_bytes(packed(kept))
    return sum(path.stat().st_size for path in (_sums(subject), _texts(subject)) if path.exists())


def _digest(subject: str, data: bytes) -> str:
    """Return the checksum of a file; without its text, it is that of numbers which no CPU's order of adding changes."""
    return digest(NUMBER.sub(_coarse, data) if subject in NOT_KEPT else data)


def _coarse(number: re.Match[bytes]) -> bytes:
    value = float(number[0])
    return b"0" if abs(value) < CLOSE else f"{value:.7g}".encode()


def _sums(subject: str) -> Path:
    return FOLDER / f"{subject}.sums"


def _texts(subject: str) -> Path:
    return FOLDER / f"{subject}.tar.xz"


def differences(subject: str, got: Files) -> list[str]:
    """Return the first difference of each file, one line each; none if all are equal."""
    if not _sums(subject).exists():
        return [f"{subject}: nothing is expected yet: `python -m tests.oracle write --only {subject}`"]
    by, *lines = _sums(subject).read_text().splitlines()
    sums = {name: kept for kept, _, name in (line.partition("  ") for line in lines)}
    if not (same := by == f"# {drawn_by()}"):
        told = f"{subject}: written with {by[2:]}, and here is {drawn_by()}: files with only a checksum are skipped"
        warnings.warn(told, stacklevel=2)
    kept_texts = texts(subject)
    found = [f"{subject} {name}: is no longer derived" for name in sums if name not in got]
    found += [f"{subject} {name}: is new" for name in got if name not in sums]
    for name, data in got.items():
        if name not in sums or _digest(subject, data) == sums[name]:
            continue
        if name in kept_texts:
            found += [f"{subject} {name} {where}" for where in first_difference(name, kept_texts[name], data)]
        elif same:
            found.append(f"{subject} {name}: differs (only its checksum is kept)")
    return found


def alike(expected: bytes, got: bytes) -> bool:
    """Tell whether two texts are equal, or differ only in fractional numbers, and there by no more than `CLOSE`."""
    if expected == got:
        return True
    one, other = NUMBER.split(expected), NUMBER.split(got)
    return one[::2] == other[::2] and all(
        math.isclose(float(a), float(b), rel_tol=CLOSE) for a, b in zip(one[1::2], other[1::2], strict=True)
    )


def first_difference(name: str, expected: bytes, got: bytes) -> Iterator[str]:
    """Give the first cell of a table, or the first line of another text, that differs."""
    if alike(expected, got):
        return
    if name.endswith(".csv") and (cells := list(_first_cell(expected.decode(), got.decode()))):
        yield from cells
        return
    for number, (one, other) in enumerate(zip_longest(expected.splitlines(), got.splitlines()), 1):
        if one is None or other is None or not alike(one, other):
            yield f"line {number}: expected {_shown(one, other)}, got {_shown(other, one)}"
            return


def _first_cell(expected: str, got: str) -> Iterator[str]:
    tables = [list(csv.reader(io.StringIO(text))) for text in (expected, got)]
    names, new = tables[0][0], tables[1][0]
    if names != new:
        gone, more = [n for n in names if n not in new], [n for n in new if n not in names]
        yield f"columns: expected {gone or 'the same'}, got {more or 'another order'}"
    for number, (row, other) in enumerate(zip(*(table[1:] for table in tables), strict=False), 1):
        cells = dict(zip(new, other, strict=False))
        for name, cell in zip(names, row, strict=False):
            if name in cells and not alike(cell.encode(), cells[name].encode()):
                one, other = cell.encode(), cells[name].encode()
                yield f"row {number} ({row[0]}), column {name}: expected {_shown(one, other)}, got {_shown(other, one)}"
                return
    if len(tables[0]) != len(tables[1]):
        yield f"rows: expected {len(tables[0]) - 1}, got {len(tables[1]) - 1}"


def _shown(line: bytes | None, beside: bytes | None) -> str:
    """Return the part of a text around the place at which it begins to differ from the one beside it."""
    if line is None:
        return "no such line"
    if len(line) <= SHOWN:
        return repr(line.decode())
    pairs = zip(line, beside or b"", strict=False)
    begins = next((place for place, (one, other) in enumerate(pairs) if one != other), 0)
    at = max(0, begins - SHOWN // 2)
    return repr(line[at : at + SHOWN].decode(errors="replace"))
