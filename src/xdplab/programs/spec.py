"""The specification of a program: N accesses of a workload, or a user's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from xdplab.errors import PlanError
from xdplab.lazy import lazily

with lazily():
    from xdplab import compiler
    from xdplab.plan import factors, maps

if TYPE_CHECKING:
    from xdplab.plan import ProgramFactors

ACCESSING = ("array", "packet", "chase", "lookup")
HINTS = ("rx_hash", "rx_timestamp", "rx_vlan_tag")
"""Workloads whose access is a call of this kfunc (bpf_xdp_metadata_…): of the driver, which may refuse."""
WORKLOADS = ACCESSING + HINTS
OPS = ("read", "write")
FORMS = ("bounded", "loop", "unrolled")
MAP_TYPES = ("percpu_array", "array", "hash", "percpu_hash", "lru_hash", "lpm_trie", "lpm_trie_v6", "hash_of_maps")
ACTIONS = ("tx", "redirect")

OUT_PORT = "out_port"
"""The constant of a redirecting program that has the number of the port to which it forwards."""
WORD_BYTES = 8
SLOT_BYTES = 64
BLOCK = 32
"""Most accesses in a row, in the forms ``bounded`` and ``unrolled``."""
DEFAULT_WORKING_SET_BYTES = 32768
_MAX_WORKING_SET_BYTES = 1 << 29  # the verifier's BPF_MAX_VAR_SIZ
_MIN_WORKING_SET_BYTES = {"array": BLOCK * WORD_BYTES, "lookup": BLOCK * WORD_BYTES, "chase": 2 * SLOT_BYTES}
_MAX_ACCESSES = 1 << 24
_MAX_ENTRIES = 1_000_000


@dataclass(frozen=True)
class ProgramSpec:
    """A generated program: exactly ``accesses`` accesses per packet, then MACs swapped and XDP_TX.

    With ``action`` redirect, the last step is XDP_REDIRECT to the port whose number the loader puts into `OUT_PORT`.

    With ``frags`` it takes frames in several buffers. With ``hook`` tc it sees the kernel's packets behind XDP, all
    buffers of which it makes one where it needs them, and TC_ACT_REDIRECT to the same port stands for XDP_TX.

    ``working_set_bytes``, ``map_type`` and ``hit`` take their defaults where the workload has them, and are null
    elsewhere. A lookup's map has ``entries``, or as many values as its working set; of the keys that are looked up in
    turn, ``hit`` per cent have an entry.
    Raises PlanError naming the field.
    """

    workload: str = "array"
    accesses: int = 0
    op: str = "read"
    form: str = "bounded"
    working_set_bytes: int | None = None
    map_type: str | None = None
    action: str = "tx"
    frags: bool = False
    entries: int | None = None
    hit: int | None = None
    hook: str = "xdp"

    def __post_init__(self) -> None:
        for name, allowed in (("workload", WORKLOADS), ("op", OPS), ("form", FORMS), ("action", ACTIONS)):
            _one_of(name, getattr(self, name), allowed)
        if not _is_whole(self.accesses) or not 0 <= self.accesses <= _MAX_ACCESSES:
            raise PlanError(f"accesses: {self.accesses!r} is not a whole number from 0 to {_MAX_ACCESSES}")
        if self.workload in HINTS and self.op != "read":
            raise PlanError(f"op: {self.op!r}: workload {self.workload} only reads")
        is_lookup = self.workload == "lookup"
        self._settle("entries", is_lookup, None)
        has_set = self.workload in ("array", "chase", "lookup") and self.entries is None
        self._settle("working_set_bytes", has_set, DEFAULT_WORKING_SET_BYTES)
        self._settle("map_type", is_lookup, MAP_TYPES[0])
        self._settle("hit", is_lookup, 100)
        self._check_working_set()
        if self.map_type is not None and self.hit is not None:
            self._check_lookups(self.map_type, self.hit)

    def _settle(self, name: str, applies: bool, default: Any) -> None:
        value = getattr(self, name)
        if value is not None and not applies:
            raise PlanError(f"{name}: workload {self.workload} has none", remedy="leave it out")
        if value is None and applies:
            object.__setattr__(self, name, default)

    def _check_lookups(self, map_type: str, hit: int) -> None:
        _one_of("map_type", map_type, MAP_TYPES)
        for name, value, low, high in (("entries", self.entries, 1, _MAX_ENTRIES), ("hit", hit, 0, 100)):
            if value is not None and not (_is_whole(value) and low <= value <= high):
                raise PlanError(f"{name}: {value!r} is not a whole number from {low} to {high}")
        if why := maps.why_no_lookup(map_type, self.table_entries, hit):
            raise PlanError(why)

    def _check_working_set(self) -> None:
        size = self.working_set_bytes
        if size is None:
            return
        least = _MIN_WORKING_SET_BYTES[self.workload]
        if not _is_whole(size) or not least <= size <= _MAX_WORKING_SET_BYTES:
            raise PlanError(
                f"working_set_bytes: {size!r} is not a whole number from {least} to {_MAX_WORKING_SET_BYTES}"
                f" for workload {self.workload}"
            )
        if self.workload == "lookup" and size % WORD_BYTES:
            raise PlanError(f"working_set_bytes: {size} is no multiple of the {WORD_BYTES} bytes of a value")
        if self.workload != "lookup" and size & (size - 1):
            below = 1 << (size.bit_length() - 1)
            raise PlanError(
                f"working_set_bytes: {size} is not a power of two, which {self.workload} needs",
                remedy=f"take {below} or {2 * below}",
            )

    @property
    def name(self) -> str:
        """A word for titles and file names."""
        kind = f"{self.workload}-{self.map_type}" if self.map_type else self.workload
        size = f"-of-{self.entries}" if self.entries else ""
        misses = f"-hit-{self.hit}" if self.misses else ""
        return f"{kind}-{self.op}-{self.accesses}{size}{misses}"

    @property
    def table_entries(self) -> int:
        """How many entries a lookup's map has."""
        return self.entries or (self.working_set_bytes or 0) // WORD_BYTES

    @property
    def misses(self) -> bool:
        """Whether some of the looked-up keys have no entry."""
        return self.hit not in (None, 100)

    @property
    def block(self) -> int:
        """How many accesses are made in a row, between two looks at where the walk stands."""
        if self.form == "loop":
            return 1
        return min(BLOCK, self.table_entries) if self.workload == "lookup" else BLOCK

    @property
    def in_user_space(self) -> bool:
        """Whether its workload has a twin there."""
        return self.workload in ACCESSING[:3] or (self.map_type in maps.IN_USER_SPACE and not self.misses)

    @property
    def section(self) -> str:
        return self.hook if self.hook == "tc" else "xdp.frags" if self.frags else "xdp"

    @property
    def kernel(self) -> str:
        """The template that makes it: without accesses every workload is the baseline."""
        name = "metadata" if self.workload in HINTS else self.workload
        return name if self.accesses else "baseline"

    @property
    def has_state(self) -> bool:
        """Whether it continues where the last packet stopped."""
        return self.kernel not in ("baseline", "packet")

    def canonical(self) -> dict[str, Any]:
        """Return every field, in a fixed order."""
        return asdict(self)


@dataclass(frozen=True)
class UserProgram:
    """A user's own XDP program: a C file (or a BPF object), measured unchanged; its N is null.

    ``action`` is what it does to the test frames and says which counters make the verdict. ``function`` chooses one of
    several programs. ``maps`` has a plan's entries by map. ``setup`` are commands for the DUT after it is attached,
    ``setup_files`` the files that they name, ``frames`` is a pcap to send instead of the test frames.

    Raises PlanError naming the field.
    """

    file: str
    section: str = "xdp"
    action: str = "tx"
    rodata: Mapping[str, Any] = field(default_factory=dict)
    setup: tuple[tuple[str, ...], ...] = ()
    frames: str | None = None
    function: str | None = None
    cflags: tuple[str, ...] = ()
    maps: Mapping[str, Any] = field(default_factory=dict)
    pinned: str = "anew"
    setup_files: Mapping[str, str] = field(default_factory=dict)
    hook: str = "xdp"

    def __post_init__(self) -> None:
        _one_of("action", self.action, get_args(factors.Action))
        try:
            factors.constants(self.rodata)
            maps.checked_maps(dict(self.maps))
            flags = compiler.flags_of(self.cflags)
        except ValueError as error:
            raise PlanError(f"program: {error}") from None
        object.__setattr__(self, "cflags", tuple(compiler.placed(flags, (Path(), Path(self.file).parent))))
        object.__setattr__(self, "rodata", dict(sorted(self.rodata.items())))
        object.__setattr__(self, "setup", tuple(tuple(argv) for argv in self.setup))
        for name, path in (("file", self.file), ("frames", self.frames)):
            if path is not None and not Path(path).is_file():
                raise PlanError(f"program.{name}: there is no file {path}")
        if Path(self.file).suffix != ".c" and not self.is_object:
            raise PlanError(
                f"program.file: {self.file} is neither C (*.c) nor a BPF object",
                remedy="a C file's name ends in .c; an object is ELF, as clang -target bpf makes it",
            )

    @property
    def is_object(self) -> bool:
        """Whether the file is compiled already: by its ending, or by its first bytes, as Rust's have none."""
        if Path(self.file).suffix in (".c", ".o"):
            return self.file.endswith(".o")
        with Path(self.file).open("rb") as file:
            return file.read(4) == b"\x7fELF"

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return Path(self.file).name.split(".")[0]

    @property
    def accesses(self) -> None:
        """Whether its number of accesses is unproved."""
        return

    def canonical(self) -> dict[str, Any]:
        """Return the fields that a plan writes, in a fixed order; a point's mode decides the hook."""
        return {name: value for name, value in asdict(self).items() if name != "hook"}


def program_of(program: ProgramFactors) -> ProgramSpec | UserProgram:
    """Turn a point's program factors into what `programs` builds. Raises PlanError."""
    if program.file is not None:
        return UserProgram(
            file=program.file,
            section=program.section,
            action=program.action,
            rodata=dict(program.rodata),
            setup=program.setup,
            frames=program.frames,
            function=program.function,
            cflags=program.cflags,
            maps=maps.as_given(program.maps),
            pinned=program.pinned,
            setup_files=dict(program.setup_files),
            hook=program.hook,
        )
    return ProgramSpec(
        workload=program.workload or "array",
        accesses=program.accesses or 0,
        op=program.op or "read",
        form=program.form or "bounded",
        working_set_bytes=program.working_set_bytes,
        map_type=program.map_type,
        action=program.action or "tx",
        frags=program.frags == "on" and program.hook == "xdp",
        hook=program.hook,
        entries=program.entries,
        hit=program.hit,
    )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PlanError(f"{name}: {value!r} is none of {', '.join(allowed)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
