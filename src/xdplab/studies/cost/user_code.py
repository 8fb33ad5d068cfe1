"""The names of code in user space: where an AF_XDP application and its libraries lie in memory, by function."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from xdplab.studies.guests import GuestContent

CODE = "code"
"""A message of the sender: a file's code in the application's memory, from ``start`` to ``end``, as at ``offset``."""


def user_functions(messages: Iterable[Mapping[str, Any]], content: GuestContent) -> list[tuple[int, str]]:
    """Return address and name of the functions of an application, in order, ``FILE:FUNCTION``.

    A library of which this machine's copy has no names of its own is one function; the end of a file's code has "".
    """
    functions: dict[int, str] = {}
    for code in (message for message in messages if message["type"] == CODE):
        name = Path(code["file"]).name
        functions |= {code["start"]: name, code["end"]: ""}
        if (file := _content(code["file"], content)) is not None:
            functions |= {address: f"{name}:{function}" for address, function in _functions(file, code)}
    return sorted(functions.items())


def _content(path: str, content: GuestContent) -> bytes | None:
    if program := content.programs.get(path.removeprefix("/bin/")):
        return program.read_bytes()
    return content.files.get(path.lstrip("/"))


def _functions(file: bytes, code: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield address and name of the functions of a file whose code lies in memory."""
    elf = ELFFile(io.BytesIO(file))
    (segment,) = [one for one in elf.iter_segments("PT_LOAD") if one["p_flags"] & 1]
    moved = code["start"] - (segment["p_vaddr"] - (segment["p_offset"] - code["offset"]))
    for table in elf.iter_sections():
        if isinstance(table, SymbolTableSection):
            for symbol in table.iter_symbols():
                # What follows _init, the first of all, are the calls of libraries, which have no names.
                if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"] and symbol.name != "_init":
                    yield symbol["st_value"] + moved, symbol.name
