"""The proof of exactly N accesses per packet: executed and counted, in the kernel and in user space.

Proof by the object's bytecode: it is executed, and every access to the working set is counted.
"""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice, repeat
from pathlib import Path

from xdplab.compiler import compiler_version
from xdplab.errors import ProgramError
from xdplab.hosts import Host
from xdplab.lazy import lazy
from xdplab.plan.maps import IN_USER_SPACE
from xdplab.programs.build import BuiltProgram
from xdplab.programs.counting import (
    VERDICTS,
    Access,
    AccessCounts,
    frame_lengths,
    hits_by_packet,
    in_frame,
    in_state,
    require,
    require_cycle,
    require_reflected,
    require_width,
    sample_frame,
    seen,
)
from xdplab.programs.image import METADATA, Image
from xdplab.programs.machine import Interpreter, Map
from xdplab.programs.onhost import count_in_kernel
from xdplab.programs.source import GROUP, PREFIXES, map_contents
from xdplab.programs.spec import WORD_BYTES, ProgramSpec, UserProgram
from xdplab.programs.work import kernel_calls
from xdplab.text import many

_WHERE = "bytecode"
HITS_FROM = 32
LOOKUPS = (1 << HITS_FROM) - 1
"""A counting build counts the accesses in the lower half of its counter, and in the upper half those that found an
entry, where not all do."""


def count_bytecode(image: Image, spec: ProgramSpec, lengths: Sequence[int] = ()) -> list[AccessCounts]:
    """Execute one packet per length (without FCS), one after another, and return its accesses to the working set.

    Raises ProgramError unless each makes exactly the promised accesses and returns the frame with its MACs swapped.
    """
    machine = Interpreter(image, _maps(spec))
    results, walked = [], []
    of_packets = hits_by_packet(spec) if spec.misses else repeat(None)
    for length, hits in zip(lengths or frame_lengths(spec), of_packets, strict=False):
        frame = sample_frame(length)
        lookups, before = _lookups(machine), _trace_lengths(machine)
        run = machine.run(frame)
        accesses = _working_set(machine, spec, before)
        counts = seen(accesses, _lookups(machine) - lookups)
        require(spec, counts, _WHERE, hits)
        require_width(spec, accesses, _WHERE)
        require_reflected(spec, frame, run.frame, _WHERE)
        promised, code = VERDICTS[spec.hook, spec.action]
        if run.verdict != code:
            raise ProgramError(f"{_WHERE}: {spec.name} returns {run.verdict} where {promised} ({code}) is promised")
        walked += [offset for offset, _, is_store in accesses if not is_store]
        results.append(counts)
    if spec.workload == "chase":
        require_cycle(spec, walked, _WHERE)
    wrong = {image.references[at].symbol for at in machine.kfuncs} - {METADATA + spec.workload}
    if wrong:
        raise ProgramError(f"{_WHERE}: {spec.name} calls {wrong.pop()}")
    return results


def _maps(spec: ProgramSpec) -> dict[str, Map]:
    table = _table if spec.kernel == "lookup" else _array
    return {name: table(spec, data) for name, data in map_contents(spec).items()}


def _array(spec: ProgramSpec, data: bytes) -> Map:
    return Map(bytearray(data), len(data))


def _table(spec: ProgramSpec, data: bytes) -> Map:
    """Return the map as these bytes fill it."""
    entries, kind = spec.table_entries, spec.map_type or ""
    split = len(data) - entries * WORD_BYTES
    values = bytearray(data[split:])
    if kind in IN_USER_SPACE and not spec.misses:
        return Map(values, WORD_BYTES)  # its keys are indices
    size = 4
    if kind == "hash_of_maps":
        first = split - entries * size
        inner = [
            Map(values, WORD_BYTES, _places(data[first + at * size : split][: GROUP * size], size, at=at))
            for at in range(0, entries, GROUP)
        ]
        return Map(values, WORD_BYTES, {at.to_bytes(4, "little"): at for at in range(len(inner))}, inner=inner)
    size = split // entries
    part = (4, 4 + PREFIXES[kind][0] // 8) if kind in PREFIXES else (0, None)
    return Map(values, WORD_BYTES, _places(data[:split], size, part), size, part)


def _places(keys: bytes, size: int, part: tuple[int, int | None] = (0, None), at: int = 0) -> dict[bytes, int]:
    return {keys[i : i + size][slice(*part)]: at + i // size for i in range(0, len(keys), size)}


def _lookups(machine: Interpreter) -> int:
    if machine.kfuncs:
        return machine.kfuncs.total()
    table = machine.maps.get("table")  # finding the state of `array` and `chase` is bookkeeping
    return table.lookups + sum(one.lookups for one in table.inner) if table else 0


def _trace_lengths(machine: Interpreter) -> dict[str, int]:
    return {name: len(machine.region(f"value of {name}").trace) for name in machine.maps}


def _working_set(machine: Interpreter, spec: ProgramSpec, before: dict[str, int]) -> list[Access]:
    if spec.workload == "packet" or not spec.accesses:
        return in_frame(machine.frame_trace)
    name = "table" if spec.workload == "lookup" else "working_set"
    if name not in machine.maps:
        return []
    trace = machine.region(f"value of {name}").trace[before[name] :]
    return trace if name == "table" else in_state(spec, trace)


userspace = lazy("xdplab.programs.userspace")  # an emulator, which only a proof of the twin needs

_NATIVE_PACKETS = 3


@dataclass(frozen=True, repr=False)
class Proof:
    """The counts of each method, one entry per packet; null if that method was not asked for.

    ``bytecode``: the object's instructions, executed. ``kernel``: a counting build, run by BPF_PROG_TEST_RUN; of calls
    of a driver's kfuncs, which take no test frames, the kernel's image, executed.
    ``user``: the machine code of the user-space twin, executed by an emulator. ``user_native``: a counting build of it,
    run by this machine. All of them must equal ``accesses``; otherwise there is no Proof.
    """

    accesses: int
    program_hash: str
    bytecode: tuple[AccessCounts, ...]
    kernel: tuple[int, ...] | None = None
    kernel_host: str | None = None
    kernel_way: str = "a counting build"
    user: tuple[AccessCounts, ...] | None = None
    user_native: int | None = None
    user_compiler: str | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """What was looked at."""
        ways = {
            "bytecode, executed instruction by instruction": self.bytecode,
            f"kernel of {self.kernel_host}, by {self.kernel_way}": self.kernel,
            "machine code of the user-space twin, executed by an emulator": self.user,
            "counting build of that twin, run here": self.user_native,
        }
        return tuple(way for way, seen in ways.items() if seen is not None)

    def __repr__(self) -> str:
        ways = many(len(self.ways), "way")
        return f"{self.accesses} of {self.accesses} accesses, {ways}: {'; '.join(self.ways)}"

    def _repr_html_(self) -> str:
        ways = "".join(f"<li>{html.escape(way)}</li>" for way in self.ways)
        packets = html.escape(", ".join(map(str, self.bytecode)))
        head = f"{self.accesses} of {self.accesses} accesses, {many(len(self.ways), 'way')}"
        return f"<details><summary>{head}</summary><ul>{ways}</ul><p>by packet: {packets}</p></details>"


def prove(
    built: BuiltProgram,
    host: Host | None = None,
    *,
    xdpload: str | None = None,
    folder: str | None = None,
    user: bool = False,
) -> Proof:
    """Prove the access count by bytecode; with a host (and xdpload's path and a folder there) also in its kernel.

    ``user`` proves the user-space twin too, if it has one, as this machine's ``cc`` compiles it. Raises ProgramError if
    any of them disagrees. The result is kept as ``proof.json`` in the program's directory.
    """
    spec = built.program
    if isinstance(spec, UserProgram):
        raise ProgramError(f"{spec.name} is a user's own program: its number of accesses is not known")
    user = user and spec.in_user_space
    bytecode = tuple(count_bytecode(built.image, spec))
    kernel = _in_kernel(built, spec, host, xdpload, folder) if host else None
    twin, native = _in_user_space(built, spec) if user else (None, None)
    proof = Proof(
        accesses=spec.accesses,
        program_hash=built.hash,
        bytecode=bytecode,
        kernel=kernel,
        kernel_host=host.name if host else None,
        kernel_way="its image, executed" if built.image.reads_metadata else Proof.kernel_way,
        user=twin,
        user_native=native,
        user_compiler=compiler_version("cc") if user else None,
    )
    built.add("proof.json", json.dumps(asdict(proof), indent=1) + "\n")
    return proof


def prove_user(library: bytes, spec: ProgramSpec) -> tuple[AccessCounts, ...]:
    """Prove a ``workload.so`` compiled anywhere, such as on the DUT: its machine code is executed and counted."""
    return tuple(userspace.count_user(library, spec))


def _in_kernel(
    built: BuiltProgram, spec: ProgramSpec, host: Host, xdpload: str | None, folder: str | None
) -> tuple[int, ...]:
    if xdpload is None or folder is None:
        raise ProgramError("a proof in a host's kernel needs xdpload's path and a folder on that host")
    where = f"the kernel of {host.name}"
    if built.image.reads_metadata:
        calls = kernel_calls(built)
        require_count(spec, [calls], where)
        return (calls,)
    both = count_in_kernel(host, xdpload, built, folder)
    counts = [value & LOOKUPS for value in both]
    require_count(spec, counts, where)
    # Each CPU has a walk of its own: a packet may be the first on its CPU.
    possible = set(islice(hits_by_packet(spec), len(both))) if spec.misses else {0}
    if wrong := {value >> HITS_FROM for value in both} - possible:
        raise ProgramError(f"{where}: {wrong.pop()} lookups of {spec.name} find an entry, not {sorted(possible)}")
    return tuple(counts)


def _in_user_space(built: BuiltProgram, spec: ProgramSpec) -> tuple[tuple[AccessCounts, ...], int]:
    with tempfile.TemporaryDirectory(prefix="xdplab-user-") as name:
        library = userspace.compile_user(spec, Path(name))
        counts = prove_user(library.read_bytes(), spec)
        built.add("workload_user.txt", userspace.disassemble_user(library))
    native = userspace.count_natively(spec, _NATIVE_PACKETS)
    require_count(spec, [native / _NATIVE_PACKETS], "the counting build in user space")
    return counts, native


def require_count(spec: ProgramSpec, counts: Sequence[float], where: str) -> None:
    """Raise ProgramError unless each count per packet is the N that the program promises."""
    wrong = next((count for count in counts if count != spec.accesses), None)
    if wrong is not None:
        raise ProgramError(f"{where}: {spec.name} promises {spec.accesses} accesses per packet and counts {wrong:g}")
