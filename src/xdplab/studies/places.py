"""The places where a study measures (this machine, or a lab of one host), and the meaning of their clocks."""

from __future__ import annotations

import functools
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import (
    HiddenSettingError,
    HostError,
    LabError,
    LabInUseError,
    MissingToolError,
    ResultsWarning,
    UnsupportedError,
)
from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab, require_name, use_lab
from xdplab.labs.base import MITIGATED, Clock
from xdplab.labs.vm import foreign, kernels
from xdplab.labs.vm.architectures import MARK, Architecture, parted
from xdplab.later import later

if TYPE_CHECKING:
    from xdplab.deploy import native
    from xdplab.labs.vm import headers, libraries
else:  # only another architecture needs them
    native = later("xdplab.deploy.native")
    headers, libraries = later("xdplab.labs.vm.headers"), later("xdplab.labs.vm.libraries")

HOST = "host"
_JIT = "net.core.bpf_jit_enable"
_PATIENCE = {"time": 1, "instructions": 20}
_GUEST_DIR = "/tmp/xdplab-study"
_ANSWER_S = 30.0
_LOOK_S = 0.5
MOST_GUESTS = 4
"""Number of counting guests of one kernel side by side; a further study waits for one of them."""

WAITS: ContextVar[Callable[[str | None], None]] = ContextVar("WAITS", default=lambda why: warn(why))
"""Called when a study waits, with the reason, and with None when it continues. A run sets it to record the wait."""


def warn(why: str | None) -> None:
    if why is not None:
        warnings.warn(f"waiting: {why}", ResultsWarning, stacklevel=2)


# The setting affects the whole machine: a study that needs its current value shares the lock, a study that changes it
# holds the lock alone. A process that can open a lock can hold it for ever: so only root can open it. An ordinary user
# changes nothing and holds nothing.
_HOLD_SETTING = """
setting=$1 wanted=$2 lock=$3
(umask 022; mkdir -p "${lock%/*}") 2>/dev/null
if refused=$( (umask 077; : >>"$lock") 2>&1 ); then chmod 600 "$lock" && exec 9>>"$lock" || exit 3
elif [ "$(id -u)" = 0 ]; then echo "$refused" >&2; exit 3
else lock=; fi
take() {
    [ -z "$lock" ] || flock "$1" -n 9 || until echo waiting; flock "$1" -w 1 9; do :; done
}
take -s
if [ "$(sysctl -n "$setting")" != "$wanted" ]; then
    [ -z "$lock" ] || flock -u 9
    take -x
    before=$(sysctl -n "$setting") || exit 3
    let_go() { sysctl -q -w "$setting=$before"; }
    sysctl -q -w "$setting=$wanted"
fi
sysctl -n "$setting"
"""
_LOCK = "/run/xdplab/bpf_jit_enable.lock"
_HARDEN, _HARDEN_LOCK = "net.core.bpf_jit_harden", "/run/xdplab/bpf_jit_harden.lock"


def harden_words(level: int) -> str:
    """Return how labels name a value of net.core.bpf_jit_harden."""
    return f"bpf_jit_harden {level}"


LOCK_S = 600.0
"""How long to wait for another study that holds the other setting."""


@dataclass
class PlaceFacts:
    """A trial's facts about its place; a study adds further facts."""

    kernel_release: str | None = None
    clock: Clock | None = None
    label: str | None = None


@dataclass(frozen=True)
class Place:
    """``clock``: the meaning of a nanosecond here: time, or one instruction (a guest under ``-icount``).

    ``label`` is for figures and tables; it names the kernel and the clock.
    """

    name: str
    host: Host
    clock: Clock
    release: str
    label: str
    around: Mapping[str, str] = field(default_factory=dict)
    """What its numbers depend on that it cannot be asked itself, by name."""

    def told(self, facts: PlaceFacts) -> None:
        """Record the place of a trial."""
        facts.kernel_release, facts.clock, facts.label = self.release, self.clock, self.label

    @property
    def patience(self) -> int:
        """How many seconds outside a second of work may take: a guest that counts instructions is emulated."""
        return _PATIENCE[self.clock]

    def put(self, path: Path, *, mode: int = 0o644) -> str:
        """Return the path of a file of this machine at the place; the file is copied into a guest."""
        if isinstance(self.host, LocalHost):
            return str(path)
        target = f"{_GUEST_DIR}/{path.name}"
        self.host.put(path, target, mode=mode)
        return target

    def module(self, name: str) -> bytes:
        """Return the file of a kernel module that the place can load. Raises UnsupportedError if it has none."""
        found = self.host.run(["modinfo", "-F", "filename", "-k", self.release, name], check=False)
        path = found.text.strip()
        if not found.ok or not path.startswith("/"):
            raise UnsupportedError(f"{self.label}: there is no module {name}")
        return self.host.get(path)

    @contextmanager
    def jit(self, enabled: bool) -> Iterator[None]:
        """Compile or interpret BPF within this block; the setting is read back. Waits for another study that holds it.

        Raises UnsupportedError if the kernel has no interpreter or no JIT; HiddenSettingError, which ends a run, if
        the setting cannot be seen; HostError if another study holds it for too long.
        """
        if self.jit_setting() is None and not enabled:
            yield
            return
        with self._set(_JIT, "1" if enabled else "0", _NO_CHOICE[enabled]):
            yield

    @contextmanager
    def hardened(self, level: int | None) -> Iterator[None]:
        """Set net.core.bpf_jit_harden within this block; None leaves it. Raises as `jit` does."""
        if level is None:
            yield
            return
        with self._set(_HARDEN, str(level), "its kernel has no JIT"):
            yield

    @contextmanager
    def _set(self, setting: str, wanted: str, no_choice: str) -> Iterator[None]:
        obtained, until = wanted, time.monotonic() + LOCK_S

        def hear(line: str) -> None:
            nonlocal obtained
            if line != "waiting":
                obtained = line
            elif time.monotonic() < until:
                WAITS.get()(f"another study holds {setting} of {self.label}")
            else:
                raise HostError(
                    f"{self.label}: another study has held {setting} for {LOCK_S:g} s",
                    remedy="run the studies one after the other",
                )

        arguments = (setting, wanted, _LOCK if setting == _JIT else _HARDEN_LOCK)
        holder = Holder(setting, _HOLD_SETTING, arguments, answer_s=_ANSWER_S * self.patience)
        with Held(self.host, holder, hear):
            WAITS.get()(None)
            if obtained != wanted:
                raise UnsupportedError(f"{self.label}: {setting} stays {obtained}: {no_choice}")
            yield

    def jit_setting(self) -> str | None:
        """Return the setting; None if the kernel has no such setting: it was built without a JIT.

        Raises HiddenSettingError in a network namespace that does not show it: of a machine's own settings, as the
        budget of its softirqs is one, only the first namespace has files.
        """
        done = self.host.run(["sysctl", "-n", _JIT], check=False)
        if done.ok:
            return done.text.strip()
        if not self.host.run(["sysctl", "-n", "net.core.netdev_budget"], check=False).ok:
            raise HiddenSettingError(
                f"{self.label}: the setting {_JIT} is not visible in this network namespace",
                remedy="measure in the machine's own network namespace, or in a guest",
            )
        return None


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


_WITH_GUEST = ("vm", "uml")
_NO_CHOICE = {False: "its kernel has no interpreter (CONFIG_BPF_JIT_ALWAYS_ON)", True: "its kernel has no JIT"}


def is_foreign(name: str) -> bool:
    """Tell whether the place is a guest of another architecture, ``vm:6.1@arm64``."""
    return MARK in name


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


def linked_tool(name: str, tool: str, cache: str) -> Path:
    """Build a C tool that uses libbpf for a place, by this machine's compiler or a cross compiler; return its path.

    Every lab's guest has this machine's root; one of another architecture boots with the tool and its libraries.
    Raises MissingToolError naming the packages, LabError, HostError.
    """
    architecture = architecture_of(name)
    if architecture is None:
        return Path(native.build_tool(LocalHost(), tool, cache))
    compiler, there = architecture.compiler(), libraries.folder(architecture)
    return Path(native.build_tool(LocalHost(), tool, cache, compiler=compiler, libraries=there))


def measures_apart(name: str) -> bool:
    """Tell whether a place may measure while others do: a guest that counts instructions, or gives answers, may.

    The times of this machine, of user-mode Linux and of a guest under KVM would be disturbed.
    """
    kind, _, rest = name.partition(":")
    return name not in (HOST, "compile", "") and kind != "uml" and not rest.endswith(":kvm")


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


_CAP_NET_ADMIN, _CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = (1 << number for number in (12, 21, 38, 39))
_TOGETHER = _CAP_BPF | _CAP_NET_ADMIN | _CAP_PERFMON
"""These three, or CAP_SYS_ADMIN alone, let a user load network and tracing programs; see capabilities(7)."""


def require_rights(names: Iterable[str], option: str) -> None:
    """Raise UnsupportedError if this machine is among the places and this user may not load programs into its kernel.

    Otherwise no program would be accepted, and each trial would report that as a result. ``option``: names a guest.
    """
    if HOST not in names:
        return
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    if not held & _CAP_SYS_ADMIN and held & _TOGETHER != _TOGETHER:
        raise UnsupportedError(
            "this user may not load BPF programs into this machine's kernel",
            remedy=f"use sudo, or measure in a guest: {option}",
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
    kernel, way, asked = rest.partition(":")
    if kind != "vm" or (way and asked != foreign.WAY):
        raise LabError(f"{name}: a guest of another architecture counts, and no more", remedy="write vm:KERNEL@ARCH")
    return kernel


@contextmanager
def _foreign(name: str, modules: Sequence[str], tools: Sequence[Path]) -> Iterator[Place]:
    programs = {f"tools/{tool.name}": tool.read_bytes() for tool in tools}
    programs |= _libraries(architecture_of(name), [programs[at] for at in programs])
    with foreign.booted(_foreign_kernel(name), modules, programs) as (guest, kernel, around):
        around |= _packages(architecture_of(name)) if len(programs) > len(tools) else {}
        release = guest.run(["uname", "-r"]).text.strip()
        there = {one: foreign.module(kernel, one) for one in modules}
        label = _label(name, release, "instructions")
        yield ForeignPlace(name, guest, "instructions", release, label, around, there, programs)


def _libraries(architecture: Architecture | None, programs: Iterable[bytes]) -> dict[str, bytes]:
    """Return what these programs are started with, by path; other files ask for nothing."""
    assert architecture is not None
    found: dict[str, bytes] = {}
    for program in programs:
        if libraries.is_program(program):
            found |= libraries.needed(program, libraries.folder(architecture))
    return found


def _packages(architecture: Architecture | None) -> dict[str, str]:
    assert architecture is not None
    return {"libraries": (libraries.folder(architecture) / libraries.PACKAGES).read_text().strip().replace("\n", "; ")}


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
