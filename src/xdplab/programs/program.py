"""A program in a notebook: its source, instructions and proof are made when they are first asked for."""

from __future__ import annotations

import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.programs.spec import WORKLOADS, ProgramSpec, UserProgram
from xdplab.resources import cache_root

with lazily():
    from xdplab.programs import build, proof

if TYPE_CHECKING:
    from xdplab.programs.build import BuiltProgram
    from xdplab.programs.proof import Proof

_SHOWN_LINES = 400


def cache_directory() -> Path:
    """Return where compiled programs are kept."""
    return cache_root() / "programs"


class Text(str):
    """Text that a notebook shows unchanged, line by line."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = self.splitlines()
        rest = f"\n… {len(lines) - _SHOWN_LINES} more lines" if len(lines) > _SHOWN_LINES else ""
        return f"<pre>{html.escape(chr(10).join(lines[:_SHOWN_LINES]))}{rest}</pre>"


class Program:
    """A generated program or a user's own; it is compiled on first use."""

    def __init__(self, spec: ProgramSpec | UserProgram, cache_dir: Path | None = None) -> None:
        self.spec = spec
        self._cache_dir = cache_dir

    @cached_property
    def built(self) -> BuiltProgram:
        """The object and its directory. Raises ProgramError with the compiler's words."""
        return build.build(self.spec, self._cache_dir or cache_directory())

    @property
    def name(self) -> str:
        """A word for titles."""
        return self.spec.name

    @property
    def source(self) -> Text:
        return Text((self.built.directory / "program.c").read_text())

    @property
    def disassembly(self) -> Text:
        """The object's BPF instructions."""
        return Text((self.built.directory / "disassembly.txt").read_text())

    @cached_property
    def proof(self) -> Proof | None:
        """The proof by bytecode; null for a user's own program."""
        return None if isinstance(self.spec, UserProgram) else proof.prove(self.built)

    def __repr__(self) -> str:
        return f"Program({self._facts()})"

    def _facts(self) -> str:
        count = "N not proved (a user's program)"
        if self.proof is not None:
            one = self.proof.bytecode[0]
            seen = f"{one.loads} loads, {one.stores} stores" + (
                f", {one.lookups} {'calls' if self.built.image.reads_metadata else 'lookups'}" if one.lookups else ""
            )
            count = f"N = {self.proof.accesses} proved: {seen} per packet"
        return f"{self.name}: {count}; {len(self.built.image.insns)} instructions; {self.built.hash}"

    def _repr_html_(self) -> str:
        has_source = (self.built.directory / "program.c").is_file()
        source = f"<details><summary>source</summary>{self.source._repr_html_()}</details>" if has_source else ""
        return f"<p>{html.escape(self._facts())}</p>{source}"


def program(what: str, *, cache_dir: Path | None = None, **fields: Any) -> Program:
    """Return a program by workload (``array``, ``packet``, ``chase``, ``lookup``) or by the path of a C file.

    ``fields`` are those of `ProgramSpec` or of `UserProgram`. Raises PlanError naming the field.
    """
    if what not in WORKLOADS and not Path(what).is_file():
        raise PlanError(f"{what!r} is neither a workload nor a file", remedy=f"workloads are {', '.join(WORKLOADS)}")
    kind: type[ProgramSpec | UserProgram] = ProgramSpec if what in WORKLOADS else UserProgram
    unknown = fields.keys() - kind.__dataclass_fields__.keys()
    if unknown:
        names = ", ".join(list(kind.__dataclass_fields__)[1:])
        raise PlanError(f"program {what!r} has no field {sorted(unknown)[0]!r}", remedy=f"its fields are {names}")
    return Program(kind(what, **fields), cache_dir)
