"""Whether an object is loaded as its file has it: loading may make other code of it than the emulator executes.

A shared object may have functions that run as it is loaded, or that choose another function; libbpf fills in what a
program asks of the kernel's types and configuration; a kernel changes a module's code at places that the module lists.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from xdplab.errors import ProgramError
from xdplab.studies.execution.benchmarks import BPF, MODULE, USER

_AT_START = ("DT_INIT", "DT_INIT_ARRAY", "DT_PREINIT_ARRAY")
_CHANGES_TEXT = ("DT_TEXTREL",)
_LIBRARIES = frozenset({"libc.so.6"})
_CHANGED_SECTIONS = (".altinstructions", "__jump_table", ".static_call_sites", ".parainstructions")
_CORE_RELOCATIONS = slice(24, 32)  # of struct btf_ext_header: core_relo_off and core_relo_len


def unsealed(wrapper: str, content: bytes, function: str) -> list[str]:
    """Return what loading would change of ``function``, or run before it. Raises ProgramError if it is no object."""
    try:
        return list(_WAYS[wrapper](ELFFile(io.BytesIO(content)), function))
    except ELFError as error:
        raise ProgramError(f"it is not an object: {error}") from None


def _of_shared_object(elf: Any, function: str) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    tags = list(dynamic.iter_tags()) if dynamic else []
    names = {tag.entry.d_tag for tag in tags}
    if at_start := [tag for tag in _AT_START if tag in names]:
        yield f"it has code that runs as it is loaded ({', '.join(at_start)})"
    if names & set(_CHANGES_TEXT):
        yield "its code is changed as it is loaded (DT_TEXTREL)"
    if others := sorted({tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"} - _LIBRARIES):
        yield f"it is linked with {', '.join(others)}"
    places = {
        (symbol["st_value"], symbol["st_info"]["type"])
        for section in (".symtab", ".dynsym")
        if (table := elf.get_section_by_name(section))
        for symbol in table.iter_symbols()
        if symbol.name.split("@")[0] == function
    }
    if len(places) > 1 or any(kind != "STT_FUNC" for _, kind in places):
        yield f"{function} is more than one function, or chosen as it is loaded"


def _of_bpf(elf: Any, function: str) -> Iterator[str]:
    extra = elf.get_section_by_name(".BTF.ext")
    header = extra.data()[_CORE_RELOCATIONS] if extra else b""
    if any(header[4:]):
        yield "its code is changed as it is loaded (CO-RE relocations)"
    table = elf.get_section_by_name(".symtab")
    externs = sorted(s.name for s in table.iter_symbols() if s.name and s["st_shndx"] == "SHN_UNDEF") if table else []
    if externs:
        yield f"it has externs, which are filled in as it is loaded: {', '.join(externs)}"


def _of_module(elf: Any, function: str) -> Iterator[str]:
    """Code of the function that a kernel replaces: alternatives, jump labels, static calls."""
    sections = list(elf.iter_sections())
    table = elf.get_section_by_name(".symtab")
    symbol = next((s for s in table.iter_symbols() if s.name == function), None)
    if symbol is None:
        return
    inside = range(symbol["st_value"], symbol["st_value"] + symbol["st_size"])
    for name in _CHANGED_SECTIONS:
        relocations = elf.get_section_by_name(f".rela{name}")
        for one in relocations.iter_relocations() if relocations else ():
            target = sections[relocations["sh_link"]].get_symbol(one["r_info_sym"])
            if target["st_shndx"] == symbol["st_shndx"] and target["st_value"] + one["r_addend"] in inside:
                yield f"the kernel changes its code as it is loaded ({name})"
                break


_WAYS: Mapping[str, Callable[[Any, str], Iterator[str]]] = {
    USER: _of_shared_object,
    BPF: _of_bpf,
    MODULE: _of_module,
}
