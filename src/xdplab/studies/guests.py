"""Guests that studies measure in: found, waited for and booted, and what is built here for their kernels; and what the
sessions of the studies share: a block is a place, which is up in it with the study's tool.

Of the studies only this module knows how guests are made (`labs.vm`, `labs.uml`).
"""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from xdplab.errors import HostError, LabError, LabInUseError, MissingToolError, UnsupportedError
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab, require_name, use_lab
from xdplab.labs.base import HOST, MITIGATED, OWN_KERNEL, Clock
from xdplab.labs.vm import console, counted, kernels
from xdplab.labs.vm.architectures import Architecture, parted
from xdplab.lazy import lazily
from xdplab.resources import cache_root
from xdplab.run.waiting import WAITS
from xdplab.studies.places import Place, PlaceFacts, harden_words, is_foreign

with lazily():  # only some studies build something for a guest
    from xdplab.deploy import native
    from xdplab.labs.guests import modules as trees
    from xdplab.labs.uml import package as uml_source
    from xdplab.labs.vm import headers


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


MOST_GUESTS = 4
"""Number of counting guests of one kernel side by side; a further study waits for one of them."""

CountedGuest = counted.CountedGuest
GuestContent = counted.GuestContent
DUT_MAC, TG_MAC = counted.DUT_MAC, counted.TG_MAC
_COUNTER = "costplugin"
MODULES = Path("/lib/modules")
_LOOK_S = 0.5
_WITH_GUEST = ("vm", "uml")


@dataclass(frozen=True)
class ForeignPlace(Place):
    """A guest of another architecture. It is this study's alone, so that no other can want its settings otherwise."""

    modules: Mapping[str, bytes] = field(default_factory=dict)
    programs: Mapping[str, bytes] = field(default_factory=dict)
    """What it has booted with, by path."""

    def module(self, name: str) -> bytes:
        return self.modules[name]

    def put(self, path: Path, *, mode: int = 0o644) -> str:
        at = f"tools/{path.name}"
        return f"/{at}" if at in self.programs else super().put(path, mode=mode)

    @contextmanager
    def _set(self, setting: str, wanted: str, no_choice: str) -> Iterator[None]:
        before = self.host.run(["sysctl", "-n", setting], check=False).text.strip()
        self.host.run(["sysctl", "-w", f"{setting}={wanted}"], check=False)
        if (obtained := self.host.run(["sysctl", "-n", setting], check=False).text.strip()) != wanted:
            raise UnsupportedError(f"{self.label}: {setting} stays {obtained}: {no_choice}")
        try:
            yield
        finally:
            self.host.run(["sysctl", "-w", f"{setting}={before}"], check=False)


def architecture_of(name: str) -> Architecture | None:
    """Return a place's architecture; None if it is this machine's."""
    return parted(_foreign_kernel(name))[1] if is_foreign(name) else None


def compiler_of(name: str) -> str | None:
    """Return the compiler of programs for a place's architecture; None if it is this machine's.

    Raises MissingToolError naming the packages.
    """
    architecture = architecture_of(name)
    return architecture.compiler() if architecture else None


@functools.cache
def module_refusal(name: str) -> str | None:
    """Return why no module can be built here for a guest of another architecture; None if one can.

    Its headers are fetched if they are not in the cache.
    """
    try:
        headers.tree(_foreign_kernel(name))
    except LabError as error:
        return str(error)
    return None


def driver(tool: str, place: str = HOST, *, libbpf: bool = True) -> Path:
    """Build a C tool for a place, by this machine's compiler or a cross compiler; return its path.

    Every lab's guest has this machine's root; one of another architecture boots with the tool and its libraries, if
    it is to use ``libbpf``.
    Raises MissingToolError naming the packages, LabError, HostError.
    """
    architecture = architecture_of(place)
    if architecture is None:
        return Path(native.build_tool(LocalHost(), tool, _cache()))
    compiler, folder = architecture.compiler(), headers.folder(architecture) if libbpf else None
    return Path(native.build_tool(LocalHost(), tool, _cache(), compiler=compiler, libraries=folder))


def _cache() -> str:
    return str(cache_root() / "native")


def build_tree(place: str) -> trees.BuildTree:
    """Return the build tree of a place's kernel, fetched where it is a guest's.

    Raises UnsupportedError if no module can be built for it here, MissingToolError naming the packages.
    """
    kind, _, rest = place.partition(":")
    if kind == HOST:
        return _own_tree(platform.release())
    try:
        return uml_source.tree() if kind == "uml" else headers.tree(rest.partition(":")[0].removesuffix(MITIGATED))
    except MissingToolError:
        raise
    except LabError as error:  # such as headers made by a newer compiler than this machine has
        raise UnsupportedError(error.message, remedy=error.remedy) from error


def uml_tests_module() -> Path:
    """Return the kernel's module test_bpf for user-mode Linux. Raises as `build_tree`, LabError and ProgramError."""
    return uml_source.tests_module()


def _own_tree(release: str) -> trees.BuildTree:
    path = MODULES / release / "build"
    if not path.is_dir():
        raise UnsupportedError(
            f"this machine has no headers of its kernel {release} to build a module with",
            remedy=f"in Debian: apt install linux-headers-{release}",
        )
    machine = platform.machine()
    arch = {"x86_64": "x86", "aarch64": "arm64"}.get(machine, machine)
    return trees.BuildTree(release, release, path.resolve(), arch, "gcc")


def require_places(names: Iterable[str], *, any_architecture: bool = False) -> None:
    """Raise LabError for an invalid place, or a place without a guest, before anything runs.

    ``any_architecture``: the study can measure a guest of another architecture.
    """
    for name in names:
        if name == HOST:
            continue
        if any_architecture and is_foreign(name):
            _require_foreign(name)
            continue
        try:
            require_name(name)
        except LabError as error:
            raise LabError(f"--place {name}: {error.message}", remedy=error.remedy) from error
        if name.partition(":")[0] not in _WITH_GUEST:
            raise LabError(
                f"--place {name}: a study measures this machine, or in a guest", remedy=f"{HOST}, vm:KERNEL:count, uml"
            )


def _require_foreign(name: str) -> None:
    """Raise LabError for a guest of another architecture that is not to be had here, its QEMU included."""
    try:
        _, architecture = parted(_foreign_kernel(name))
        if architecture is not None:
            architecture.tool()
        kernels.require_available(_foreign_kernel(name))
    except LabError as error:
        raise LabError(f"--place {name}: {error.message}", remedy=error.remedy) from error


def _foreign_kernel(name: str) -> str:
    """Return the kernel's name in ``vm:6.1@arm64`` and ``vm:6.1@arm64:count``. Raises LabError."""
    kind, _, rest = name.partition(":")
    kernel, way, wanted_way = rest.partition(":")
    if kind != "vm" or (way and wanted_way != console.WAY):
        raise LabError(f"{name}: a guest of another architecture counts, and no more", remedy="write vm:KERNEL@ARCH")
    return kernel


@contextmanager
def _foreign(name: str, modules: Sequence[str], tools: Sequence[Path]) -> Iterator[Place]:
    programs = {f"tools/{tool.name}": tool.read_bytes() for tool in tools}
    programs |= _libraries(architecture_of(name), [programs[at] for at in programs])
    with console.booted(_foreign_kernel(name), modules, programs) as (guest, kernel, around):
        around |= _packages(architecture_of(name)) if len(programs) > len(tools) else {}
        release = guest.run(["uname", "-r"]).text.strip()
        files = {one: console.module(kernel, one) for one in modules}
        label = _label(name, release, "instructions")
        yield ForeignPlace(name, guest, "instructions", release, label, around, files, programs)


def _libraries(architecture: Architecture | None, programs: Iterable[bytes]) -> dict[str, bytes]:
    """Return what these programs are started with, by path; other files ask for nothing."""
    assert architecture is not None
    needed: dict[str, bytes] = {}
    for program in programs:
        if headers.is_program(program):
            needed |= headers.needed(program, [headers.folder(architecture) / "lib"])
    return needed


def _packages(architecture: Architecture | None) -> dict[str, str]:
    assert architecture is not None
    return {"libraries": (headers.folder(architecture) / headers.PACKAGES).read_text().strip().replace("\n", "; ")}


@contextmanager
def place_of(name: str, modules: Iterable[str] = (), tools: Iterable[Path] = ()) -> Iterator[Place]:
    """Give the place: ``host``, or a lab's name such as ``vm:6.1:count`` or ``uml``, which is up in this block.

    ``modules`` are what the study loads, ``tools`` what it runs, and files that these read: a guest of another
    architecture sees no file but what it boots with.

    Several guests may count instructions side by side: if one is in use, the study gets another. For a place that
    measures time, the study waits, and `WAITS` is called. Raises UnsupportedError for a lab whose clock means nothing,
    or if this machine lacks its tool, LabError if none can be brought up.
    """
    if name == HOST:
        release = platform.release()
        yield Place(name, LocalHost(), "time", release, f"this machine, Linux {release}")
        return
    if is_foreign(name):
        with _foreign(name, tuple(modules), tuple(tools)) as place:
            yield place
        return
    _, _, way = name.removeprefix("vm:").partition(":")
    others = [f"{name}:{number}" for number in range(2, MOST_GUESTS + 1)] if way == "count" else []
    with free_lab(name, *others) as lab:
        if lab.clock is None:
            raise UnsupportedError(f"{name}: {lab.label}", remedy=f"{name.removesuffix(':functional')}:count counts")
        yield _in(name, lab, lab.clock)


@contextmanager
def counted_place(
    name: str, programs: Iterable[str], files: Mapping[str, bytes], folder: Path
) -> Iterator[tuple[Place, CountedGuest]]:
    """Give a guest whose instructions are counted, with C tools and files inside: ``vm:KERNEL``, ``vm:KERNEL@arm64``.

    ``folder`` is for what is counted. Raises as `counted.booted` does, HostError for a tool that does not build.
    """
    plugin = driver(_COUNTER)
    tools = {tool: driver(tool, name) for tool in programs}
    with counted.booted(name.removeprefix("vm:"), counted.GuestContent(plugin, tools, files), folder) as guest:
        release = guest.kernel.release
        place = Place(name, guest.host, "instructions", release, _label(name, release, "instructions"), guest.around)
        yield place, guest


def built_workload(source: str) -> Path:
    """Compile a workload for user space, as the AF_XDP application loads it. Raises HostError."""
    return Path(native.build_workload(LocalHost(), source, _cache()))


def require_kernel(name: str) -> None:
    """Raise LabError for a kernel of a guest that is invalid, or not to be had here."""
    kernels.require_name(name)
    kernels.require_available(name)


def adopt_kernel(image: Path, modules: Path | None) -> str:
    """Take a kernel that the user built into the cache; return its name. Raises LabError if it is no kernel."""
    return kernels.adopt(image, modules).name


def counting_kernel(word: str, *, to_be_had: bool = True) -> str:
    """Return the name of a kernel for `counted_place`: ``6.12``, ``6.12@arm64``, or FILE[,MODULES] of a user's own.

    Raises LabError for one that is invalid, or not ``to_be_had`` here, MissingToolError naming what another
    architecture's needs.
    """
    image, _, modules = word.partition(",")
    if "/" in image or Path(image).is_file():
        return kernels.adopt(Path(image), Path(modules) if modules else None, counted.MODULES).name
    _, architecture = parted(word)
    if architecture is None:
        kernels.require_name(word)
    else:
        counted.require_architecture(word, architecture)
        architecture.tool()
        architecture.compiler()
    if to_be_had:
        kernels.require_available(word)
    return word


def kernel_release(name: str) -> str:
    """Return ``uname -r`` of a kernel in the cache, such as of a user's own; the name of one that is not there yet."""
    return next((kernel.release for kernel in kernels.cached() if kernel.name == name), name)


def own_kernel_version(name: str) -> str | None:
    """Return the version string and SHA-256 of a user's own kernel; None for a distribution's."""
    return kernels.kernel(name).packages[0] if name.startswith(OWN_KERNEL) else None


def kernel_source(kernel: str, folder: str) -> dict[str, bytes]:
    """Return the files of a folder of Debian's source of exactly that kernel. Raises LabError without them."""
    kernels.kernel(kernel)
    return headers.folder_of(kernel, folder)


@contextmanager
def free_lab(*names: str) -> Iterator[Lab]:
    """Give the first of these labs that no other run uses, locked; if there is none, wait, and call `WAITS`.

    Another study in the same guest would be counted too, and each would switch the other's JIT. Raises UnsupportedError
    if this machine lacks the tool for such a lab: other places still measure.
    """
    with ExitStack() as stack:
        while (lab := next(filter(None, (_locked(name, stack) for name in names)), None)) is None:
            WAITS.get()(f"{names[0]} is in use by another run")
            time.sleep(_LOOK_S)
        WAITS.get()(None)
        yield lab


def _locked(name: str, stack: ExitStack) -> Lab | None:
    """Return the lab, held by the ``stack``; None if another run uses it."""
    try:
        with ExitStack() as trying:
            lab = trying.enter_context(use_lab(name))
            trying.enter_context(lab.lock())
            stack.enter_context(trying.pop_all())
    except LabInUseError:
        return None
    except MissingToolError as error:
        raise UnsupportedError(f"{name}: {error.message}", remedy=error.remedy) from error
    return lab


def _in(name: str, lab: Lab, clock: Clock) -> Place:
    guest = lab.host("guest")
    release = guest.run(["uname", "-r"]).text.strip()
    if not release:
        raise HostError(f"{name}: its kernel does not report its release")
    return Place(name, guest, clock, release, _label(name, release, clock))


def _label(name: str, release: str, clock: Clock) -> str:
    kind = name.partition(":")[0]
    worth = "instructions counted" if clock == "instructions" else "time"
    guarded = ", mitigations on" if MITIGATED in name else ""
    return f"{kind}, Linux {release}, {worth}{guarded}"


def tool_in(lab: Lab, host: Host, name: str) -> str:
    """Return the path of one of `native`'s tools on a host of ``lab``: compiled there, or here for hosts without
    compilers. Raises HostError."""
    folder = f"{lab.work_dir(host)}/native"
    if lab.native_dir is None:
        return native.build_tool(host, name, folder)
    host.put(Path(native.build_tool(LocalHost(), name, str(lab.native_dir))), f"{folder}/{name}", mode=0o755)
    return f"{folder}/{name}"
