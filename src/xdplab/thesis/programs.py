"""The programs that the thesis measured: the C files beside its logs, compiled and counted by the project's own proof.

What is compiled is the reader's copy; nothing of it is kept but the counts. A program in the kernel is executed as
bytecode, and its map lookups and its accesses to what they return are counted. Of AF_XDP's application the function
that processes a packet is taken out, compiled against stand-ins of the socket's rings, and executed by the emulator.
"""

from __future__ import annotations

import io
import re
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from xdplab.compiler import bpf_include_flags, find_clang, run_tool
from xdplab.errors import ProgramError
from xdplab.lazy import lazily
from xdplab.programs.counting import XDP_TX, sample_frame
from xdplab.programs.image import read_image
from xdplab.programs.machine import Interpreter, Map

with lazily():
    from xdplab.programs import userspace

_FRAME_BYTES = 60
_EXECUTABLE = 4  # SHF_EXECINSTR
_MAP_FLAGS = "struct bpf_map_def { unsigned type, key_size, value_size, max_entries, map_flags; };\n"
"""libbpf took the old form of map definitions out of its header in 1.0; the programs are older."""
_FUNCTION = re.compile(r"^static bool process_packet\s*\(", re.MULTILINE)
_STAND_INS = """
#include <stdbool.h>
#include <stdint.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <netinet/in.h>
#define memcpy __builtin_memcpy
struct xsk_ring_prod { uint32_t used; };
struct xdp_desc { uint64_t addr; uint32_t len; };
struct stats_record { uint64_t timestamp, rx_packets, rx_bytes, tx_packets, tx_bytes; };
struct xsk_umem_info { void *buffer; };
struct xsk_socket_info {
  struct xsk_ring_prod tx;
  struct xsk_umem_info *umem;
  uint32_t outstanding_tx;
  struct stats_record stats;
};
static struct xdp_desc description;
static uint32_t xsk_ring_prod__reserve(struct xsk_ring_prod *ring, uint32_t count, uint32_t *index)
{ ring->used += count; *index = 0; return count; }
static void xsk_ring_prod__submit(struct xsk_ring_prod *ring, uint32_t count) { ring->used += count; }
static struct xdp_desc *xsk_ring_prod__tx_desc(struct xsk_ring_prod *ring, uint32_t index)
{ (void)ring; (void)index; return &description; }
static void *xsk_umem__get_data(void *buffer, uint64_t addr) { return (char *)buffer + addr; }
"""
_ENTRY = """
unsigned long xdplab_workload(void *state, void *frame, unsigned length)
{
  static struct xsk_umem_info memory;
  static struct xsk_socket_info socket;
  (void)state;
  memory.buffer = frame;
  socket.umem = &memory;
  return process_packet(&socket, 0, length);
}
"""
_USER_FLAGS = ("-O0", "-fPIC", "-shared", "-nostdlib", "-fno-stack-protector", "-fcf-protection=none", "-w")


@dataclass(frozen=True)
class PacketWork:
    """What one packet did: map ``lookups``, ``value_accesses`` to what they returned, loads and stores in the frame.

    ``repeated_stores``: how often the byte of the frame that was stored to most often was stored to again. Lookups and
    value accesses are None in user space, where there is no map.
    """

    lookups: int | None
    value_accesses: int | None
    frame_loads: int
    frame_stores: int
    repeated_stores: int


@cache
def count(text: str) -> PacketWork:
    """Compile one of the thesis' C files and count what it does with a packet. Raises ProgramError."""
    with tempfile.TemporaryDirectory(prefix="xdplab-thesis-") as name:
        folder = Path(name)
        return _in_user_space(text, folder) if _FUNCTION.search(text) else _in_kernel(text, folder)


def _in_kernel(text: str, folder: Path) -> PacketWork:
    (folder / "program.c").write_text(text)
    (folder / "maps.h").write_text(_MAP_FLAGS)
    flags = ["-O2", "-g", "-target", "bpf", "-w", *bpf_include_flags()]
    command = [find_clang(), *flags, "-c", "program.c", "-o", "program.o"]
    try:
        run_tool(command, folder)
    except ProgramError:
        run_tool([*command, "-include", "maps.h"], folder)
    data = (folder / "program.o").read_bytes()
    maps = _maps(data)
    for section in _program_sections(data):
        image = read_image(data, section)
        machine = Interpreter(
            image, {name: Map(bytearray(size * entries), size) for name, (size, entries) in maps.items()}
        )
        if machine.run(sample_frame(_FRAME_BYTES)).verdict == XDP_TX:
            values = [access for name in machine.maps for access in machine.region(f"value of {name}").trace]
            lookups = sum(one.lookups for one in machine.maps.values())
            return PacketWork(lookups, len(values), *_of_frame(machine.frame_trace))
    raise ProgramError("none of its sections returns XDP_TX")


def _program_sections(data: bytes) -> list[str]:
    sections = ELFFile(io.BytesIO(data)).iter_sections()
    code = [part for part in sections if part["sh_flags"] & _EXECUTABLE and part["sh_size"]]
    return [part.name for part in code if part.name != ".text"]


def _maps(data: bytes) -> Mapping[str, tuple[int, int]]:
    """Return the value's size (as the kernel pads it) and the entries of each map of the old form."""
    sections = list(ELFFile(io.BytesIO(data)).iter_sections())
    tables = [part for part in sections if isinstance(part, SymbolTableSection)]
    maps = {}
    for symbol in (one for table in tables for one in table.iter_symbols()):
        index = symbol["st_shndx"]
        if isinstance(index, int) and sections[index].name == "maps" and symbol.name:
            _, _, size, entries = struct.unpack_from("<4I", sections[index].data(), symbol["st_value"])
            maps[symbol.name] = ((size + 7) // 8 * 8, entries)
    return maps


def _in_user_space(text: str, folder: Path) -> PacketWork:
    (folder / "program.c").write_text(_STAND_INS + _function(text) + _ENTRY)
    run_tool([find_clang(), *_USER_FLAGS, "program.c", "-o", "program.so"], folder)
    trace = userspace.frame_accesses((folder / "program.so").read_bytes(), sample_frame(_FRAME_BYTES))
    return PacketWork(None, None, *_of_frame(trace))


def _function(text: str) -> str:
    """Return the text of the function that processes a packet, to its closing brace."""
    start = _FUNCTION.search(text)
    assert start is not None
    depth = 0
    for at in range(text.index("{", start.end()), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start.start() : at + 1]
    raise ProgramError("the function that processes a packet has no end")


def _of_frame(trace: list[tuple[int, int, bool]]) -> tuple[int, int, int]:
    stores = [offset for offset, _, is_store in trace if is_store]
    most = max((stores.count(offset) for offset in set(stores)), default=0)
    return len(trace) - len(stores), len(stores), max(0, most - 1)
