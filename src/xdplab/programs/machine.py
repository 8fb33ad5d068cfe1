"""Executes BPF bytecode as the kernel's interpreter would, and records its memory accesses.

It supports what xdplab's programs need: 32- and 64-bit arithmetic, jumps, subprograms, array-like maps, seven helpers.
Anything else raises ProgramError. Addresses are a region's number in the upper and an offset in the lower 32 bits, so
an access outside of a region is found at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdplab.errors import ProgramError
from xdplab.programs.counting import ETHERNET_BYTES, FIRST_BUFFER, TC_ACT_REDIRECT, XDP_REDIRECT
from xdplab.programs.image import MAP_SECTIONS, Image
from xdplab.programs.steps import M32, step

_STACK_BYTES = 512
_MAX_STEPS = 50_000_000

LOOKUP_ELEM, SMP_PROCESSOR_ID, REDIRECT, SKB_PULL_DATA = 1, 8, 23, 39
XDP_LENGTH, XDP_LOAD_BYTES, XDP_STORE_BYTES = 188, 189, 190
_RX_QUEUE_INDEX = 16  # of struct xdp_md
_LEN, _IFINDEX, _DATA, _DATA_END = 0, 40, 76, 80  # of struct __sk_buff
REGISTERS = 12
"""r0 to r10, and the kernel's own (BPF_REG_AX): a hardened JIT (net.core.bpf_jit_harden) makes constants in it."""


@dataclass
class Region:
    """Bytes with a name; ``trace`` lists (offset, size, is store) of every access, in order."""

    name: str
    data: bytearray
    trace: list[tuple[int, int, bool]] = field(default_factory=list)


@dataclass
class Map:
    """An array, whose keys are indices of 4 bytes; or, with ``places``, a map that has such an index for each key.

    ``part`` of a key of ``key_size`` bytes counts, from one byte to another: a trie's prefixes are equally long.
    ``inner`` are the maps in this one, with the same values. ``lookups`` are those that were made in it.
    """

    values: bytearray
    value_size: int
    places: Mapping[bytes, int] | None = None
    key_size: int = 4
    part: tuple[int, int | None] = (0, None)
    inner: Sequence[Map] = ()
    lookups: int = 0

    def find(self, key: bytes) -> int | None:
        """Return the index of a key's value or inner map."""
        self.lookups += 1
        if self.places is not None:
            return self.places.get(key[slice(*self.part)])
        at = int.from_bytes(key, "little")
        return at if at * self.value_size < len(self.values) else None


@dataclass(frozen=True)
class PacketRun:
    """The result of one packet: return code, the frame afterwards, and the number of instructions."""

    verdict: int
    frame: bytes
    steps: int


class Interpreter:
    """One program with its maps and data sections, which keep their contents from packet to packet."""

    def __init__(self, image: Image, maps: dict[str, Map], *, cpu: int = 0, origin: int = 0) -> None:
        """``origin``: the lower half of the address at which each region begins."""
        self.maps = {name: maps[name] for name in image.maps}
        self.cpu = cpu
        self._origin = origin
        self._linear = {"xdp.frags": FIRST_BUFFER, "tc": ETHERNET_BYTES}.get(image.section, 1 << 16)
        self._tc = image.section == "tc"
        self._copied: dict[int, int] = {}
        self._regions: dict[int, Region] = {}
        self._handles: dict[int, Map] = {}
        self._value_bases: dict[int, int] = {}
        self._bases: dict[str, int] = {}
        self._context = 0
        self.kfuncs: Counter[int] = Counter()
        self.frame_trace: list[tuple[int, int, bool]] = []
        for name, one in self.maps.items():
            base = self._bases[name] = self._add(Region(f"map {name}", bytearray()))
            self._handles[base] = one
            self._value_bases[base] = self._add(Region(f"value of {name}", one.values))
        for name, content in image.data.items():
            self._bases[name] = self._add(Region(name, bytearray(content)))
        self._steps = [step(self, image, at, insn) for at, insn in enumerate(image.insns)]

    def region(self, name: str) -> Region:
        """Return a region by name (``value of MAP``, ``.bss``, ``frame``). Raises KeyError."""
        return next(region for region in self._regions.values() if region.name == name)

    def run(self, frame: bytes) -> PacketRun:
        kept = len(self._regions)
        packet = self._packet = self._add(Region("frame", bytearray(frame)))
        self._copied = {}
        registers = [0] * REGISTERS
        registers[1] = self._context = self._add(Region("context", bytearray()))
        end = packet + min(len(frame), self._linear)
        self._context_fields = (
            {_LEN: len(frame), _IFINDEX: 1, _DATA: packet, _DATA_END: end}
            if self._tc
            else {0: packet, 4: end, 8: packet, _RX_QUEUE_INDEX: 0}
        )
        registers[10] = self._new_stack()
        steps = self._execute(registers)
        result = bytes(self._regions[packet >> 32].data)
        self.frame_trace = self._regions[packet >> 32].trace
        for number in list(self._regions)[kept:]:
            del self._regions[number]
            self._handles.pop(number << 32 | self._origin, None)
        return PacketRun(registers[0] & M32, result, steps)

    def _execute(self, registers: list[int]) -> int:
        self._frames: list[tuple[int, list[int]]] = []
        at: int | None = 0
        steps, code = 0, self._steps
        while at is not None:
            if steps >= _MAX_STEPS:
                raise ProgramError(f"the program did not end within {_MAX_STEPS} instructions")
            if not 0 <= at < len(code):
                raise ProgramError(f"the program jumps out of itself, to instruction {at}")
            at = code[at](registers)
            steps += 1
        return steps

    def _add(self, region: Region) -> int:
        number = max(self._regions, default=0) + 1
        self._regions[number] = region
        return number << 32 | self._origin

    def _new_stack(self) -> int:
        return self._add(Region("stack", bytearray(_STACK_BYTES))) + _STACK_BYTES

    def _locate(self, address: int, size: int) -> tuple[Region, int]:
        region, offset = self._regions.get(address >> 32), (address & M32) - self._origin
        if region is None or not 0 <= offset <= len(region.data) - size:
            where = f"{region.name}, which has {len(region.data)} bytes" if region else "no memory at all"
            raise ProgramError(f"the program accesses {size} bytes at {offset:#x} of {where}")
        return region, offset

    def load(self, address: int, size: int) -> int:
        """Read little-endian memory; raises ProgramError outside of it."""
        if address >> 32 == self._context >> 32:
            return self._context_field((address & M32) - self._origin)
        region, offset = self._locate(address, size)
        region.trace.append((offset, size, False))
        if address in self._copied:
            self._regions[self._packet >> 32].trace.append((self._copied[address], size, False))
        return int.from_bytes(region.data[offset : offset + size], "little")

    def _context_field(self, offset: int) -> int:
        """Return a field of struct xdp_md: data, data_end, data_meta (the kernel makes them pointers), or the queue; or
        of struct __sk_buff."""
        if offset not in self._context_fields:
            raise ProgramError(f"the proof does not know the context's field at {offset}")
        return self._context_fields[offset]

    def store(self, address: int, size: int, value: int) -> None:
        """Write little-endian memory; raises ProgramError outside of it."""
        region, offset = self._locate(address, size)
        region.trace.append((offset, size, True))
        if address in self._copied:
            self._regions[self._packet >> 32].trace.append((self._copied[address], size, True))
        region.data[offset : offset + size] = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")

    def address_of(self, image: Image, at: int) -> int:
        """Return what a 64-bit immediate at ``at`` stands for."""
        reference = image.references.get(at)
        if reference is None:
            return (image.insns[at].imm & M32) | (image.insns[at + 1].imm & M32) << 32
        if reference.section in MAP_SECTIONS:
            return self._bases[reference.symbol]
        return self._bases[reference.section] + reference.offset

    def call_helper(self, number: int, registers: list[int]) -> None:
        """Run a helper; registers 1 to 5 are lost, as in the kernel."""
        if number == SMP_PROCESSOR_ID:
            registers[0] = self.cpu
        elif number == LOOKUP_ELEM:
            registers[0] = self._lookup(registers[1], registers[2])
        elif number == REDIRECT:
            registers[0] = TC_ACT_REDIRECT if self._tc else XDP_REDIRECT
        elif number == SKB_PULL_DATA:
            self._context_fields[_DATA_END] = self._packet + registers[2]
            registers[0] = 0
        elif number == XDP_LENGTH:
            registers[0] = len(self._regions[self._packet >> 32].data)
        elif number in (XDP_LOAD_BYTES, XDP_STORE_BYTES):
            registers[0] = self._copy(*registers[2:5], back=number == XDP_STORE_BYTES)
        else:
            raise ProgramError(f"the proof does not know BPF helper {number}")
        registers[1:6] = [0xDEAD << 48] * 5

    def call_kfunc(self, at: int, registers: list[int]) -> int:
        """Count the call at an instruction; the function succeeds, and leaves what it is given as it is."""
        self.kfuncs[at] += 1
        registers[:6] = [0, *[0xDEAD << 48] * 5]
        return at + 1

    def _copy(self, at: int, address: int, count: int, *, back: bool) -> int:
        """Copy bytes of the frame, or copy them back: an access to the copy counts as one to the frame."""
        frame, _ = self._locate(self._packet + at, count)
        region, offset = self._locate(address, count)
        if back:
            frame.data[at : at + count] = region.data[offset : offset + count]
            return 0
        region.data[offset : offset + count] = frame.data[at : at + count]
        self._copied = {address + i: at + i for i in range(count)}
        return 0

    def _lookup(self, handle: int, key: int) -> int:
        one = self._handles.get(handle)
        if one is None:
            raise ProgramError("the program looks up in something that is not a map")
        index = one.find(self.load(key, one.key_size).to_bytes(one.key_size, "little"))
        if index is None:
            return 0
        if not one.inner:
            return self._value_bases[handle] + index * one.value_size
        base = self._add(Region("map in a map", bytearray()))  # for this packet
        self._handles[base], self._value_bases[base] = one.inner[index], self._value_bases[handle]
        return base

    def enter(self, target: int, back: int, registers: list[int]) -> int:
        """Call a subprogram: its own stack, registers 6 to 9 kept for the caller."""
        self._frames.append((back, registers[6:11]))
        registers[10] = self._new_stack()
        return target

    def leave(self, registers: list[int]) -> int | None:
        """Return from a subprogram, or None at the end of the program."""
        if not self._frames:
            return None
        back, registers[6:11] = self._frames.pop()
        return back
