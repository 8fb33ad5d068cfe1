"""A place where a study measures (this machine, or a guest), the meaning of its clock, and its settings of BPF."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from xdplab.errors import HiddenSettingError, HostError, UnsupportedError
from xdplab.hosts import Host, Result
from xdplab.hosts.held import Held, Holder
from xdplab.hosts.local import LocalHost
from xdplab.labs.base import ARCHITECTURE_MARK, HOST, Clock
from xdplab.labs.rights import FOR_PROGRAMS, missing_rights
from xdplab.run.waiting import WAITS

_JIT = "net.core.bpf_jit_enable"
_PATIENCE = {"time": 1, "instructions": 20}
DEADLINE_S = 120.0
"""Of one call of a tool, where a second of work takes a second."""
_GUEST_DIR = "/tmp/xdplab-study"
_ANSWER_S = 30.0

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

    def record_place(self, facts: PlaceFacts) -> None:
        facts.kernel_release, facts.clock, facts.label = self.release, self.clock, self.label

    @property
    def patience(self) -> int:
        """How many seconds outside a second of work may take: a guest that counts instructions is emulated."""
        return _PATIENCE[self.clock]

    def work(self, argv: Sequence[str], stdin: bytes = b"") -> Result:
        """Return how a call of a tool ended that measures. Raises HostError where it does not end in time."""
        return self.host.run(argv, stdin=stdin, deadline_s=DEADLINE_S * self.patience, check=False)

    def put(self, path: Path, *, mode: int = 0o644) -> str:
        """Return the path of a file of this machine at the place; the file is copied into a guest."""
        if isinstance(self.host, LocalHost):
            return str(path)
        target = f"{_GUEST_DIR}/{path.name}"
        self.host.put(path, target, mode=mode)
        return target

    def module(self, name: str) -> bytes:
        """Return the file of a kernel module that the place can load. Raises UnsupportedError if it has none."""
        result = self.host.run(["modinfo", "-F", "filename", "-k", self.release, name], check=False)
        path = result.text.strip()
        if not result.ok or not path.startswith("/"):
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


_NO_CHOICE = {False: "its kernel has no interpreter (CONFIG_BPF_JIT_ALWAYS_ON)", True: "its kernel has no JIT"}


def is_foreign(name: str) -> bool:
    """Tell whether the place is a guest of another architecture, ``vm:6.1@arm64``."""
    return ARCHITECTURE_MARK in name


def counts(name: str) -> bool:
    """Tell whether a place counts instructions."""
    return name.endswith(":count") or is_foreign(name)


def measures_apart(name: str) -> bool:
    """Tell whether a place may measure while others do: a guest that counts instructions, or gives answers, may.

    The times of this machine, of user-mode Linux and of a guest under KVM would be disturbed.
    """
    kind, _, rest = name.partition(":")
    return name not in (HOST, "compile", "") and kind != "uml" and not rest.endswith(":kvm")


def require_rights(names: Iterable[str], option: str) -> None:
    """Raise UnsupportedError if this machine is among the places and this user may not load programs into its kernel.

    Otherwise no program would be accepted, and each trial would report that as a result. ``option``: names a guest.
    """
    if HOST not in names:
        return
    lacking = missing_rights(["CAP_SYS_ADMIN"]) and missing_rights(FOR_PROGRAMS)
    if lacking:
        raise UnsupportedError(
            f"this user may not load BPF programs into this machine's kernel: {lacking}",
            remedy=f"use sudo, or measure in a guest: {option}",
        )
