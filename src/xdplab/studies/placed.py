"""What the sessions of the studies share: a block is a place, which is up in it with the study's tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from xdplab.labs import Lab
from xdplab.studies.guests import free_lab, place_of
from xdplab.studies.places import Place, PlaceFacts, harden_words


class PlacedSession:
    """Measures trials at one place at a time: a study enters it in ``enter_block``, and has ``measure``.

    ``stack`` closes with the block; ``tool`` is the path of the study's command at the place.
    """

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._jit: tuple[bool, ExitStack] | None = None
        self.place: Place | None = None
        self.tool = ""

    def enter(self, name: str, tool: Path | None, modules: Iterable[str] = (), files: Iterable[Path] = ()) -> Place:
        """Bring a place up for this block, and put the study's tool there. Raises as `place_of` does."""
        tools = [tool] if tool else []
        self.place = self.stack.enter_context(place_of(name, modules, [*tools, *files]))
        self.tool = self.place.put(tool, mode=0o755) if tool else ""
        return self.place

    def enter_lab(self, name: str) -> Lab:
        """Bring a lab up for this block, whose DUT is the place. Raises as `free_lab` does."""
        lab = self.stack.enter_context(free_lab(name))
        release = lab.dut.run(["uname", "-r"]).text.strip()
        self.place = Place(name, lab.dut, lab.clock or "time", release, f"{lab.label}, Linux {release}")
        return lab

    def leave_block(self) -> None:
        try:
            self.compile_bpf(None)
        finally:
            self.stack.close()
            self.place = None

    def compile_bpf(self, enabled: bool | None) -> None:
        """Compile BPF at the place, or interpret it, until another trial wants it otherwise; None restores the setting.

        A guest that counts took 8 s to switch on a busy machine. Raises as `Place.jit` does.
        """
        if self._jit is not None and self._jit[0] == enabled:
            return
        if self._jit is not None:
            (_, before), self._jit = self._jit, None
            before.close()
        if enabled is not None and self.place is not None:
            held = ExitStack()
            held.enter_context(self.place.jit(enabled))
            self._jit = enabled, held

    def at(self, facts: PlaceFacts, harden: int | None = None) -> Place:
        """Return the place of this block, and record it with a trial's setting of net.core.bpf_jit_harden."""
        assert self.place is not None  # the runner enters the block first
        self.place.record_place(facts)
        if harden is not None:
            facts.label = f"{facts.label}, {harden_words(harden)}"
        return self.place

    def call(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
        """Return what the study's tool prints. Raises HostError."""
        assert self.place is not None
        return self.place.work([self.tool, *argv], stdin).require().stdout
