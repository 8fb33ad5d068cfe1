"""Labs with a keeper process: how keepers of one kind are found and started, and the common functions of their labs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdplab.errors import HostError, LabError, LabInUseError, XdplabError
from xdplab.labs import cache, control, keeper_socket
from xdplab.labs.base import LinkEnds
from xdplab.lazy import lazily
from xdplab.run.disk import is_listed
from xdplab.text import SOON_S, duration

with lazily():  # paramiko takes longer to load than most commands
    from xdplab.hosts import ssh
    from xdplab.run import rundir, state, waiting

DEFAULT = "default"
"""The instance of a kind's name alone, where that is no kernel's."""
LOOK_S = 0.05
"""Seconds between two checks of a lab that another process is just making."""
TURN_LOOK_S = 0.005
TURN_S = 7200.0
"""The longest wait of a trial for another lab's trial on the same CPUs; the longest trial has five windows of 600 s."""
MOST_BYTES = 4096
"""Of what the holder of a CPU wrote about itself."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def require_name(instance: str) -> None:
    """Raise LabError for a name that cannot be part of a socket's and an interface's name."""
    if not _NAME.fullmatch(instance):
        raise LabError(f"lab name {instance!r} cannot be used", remedy="letters, digits, . _ - and at most 40")


@dataclass(frozen=True)
class Keepers:
    """The keepers of one kind of lab.

    ``kind`` is the prefix of their sockets' names, ``label`` gives the label of a lab in figures; ``coming_up_s`` is
    the longest start-up time; ``users`` (none: its owner and root) may run one.
    """

    kind: str
    label: Callable[[dict[str, Any]], str]
    coming_up_s: float
    users: Container[int] | None = None

    def title(self, instance: str) -> str:
        """Return the user's name of a lab."""
        return self.kind if instance == DEFAULT else f"{self.kind}:{instance}"

    def ended(self, _instance: str) -> str:
        """Tell how the last lab of that name ended, if known."""
        return ""

    def address(self, uid: int, instance: str) -> Path:
        """Return the path for the socket of a new keeper."""
        return keeper_socket.place_for(uid, self.kind, instance)

    def connect(self, uid: int, instance: str) -> control.Control | None:
        """Return a connection to a keeper, or None if no such lab is up. Raises LabError for an impostor."""
        place = keeper_socket.keepers_of(uid, self.kind).get(instance)
        trusted = (uid, 0) if self.users is None else self.users
        return None if place is None else control.connect_to(place, f"lab {self.title(instance)}", keepers=trusted)

    def connected(self, uid: int, instance: str) -> control.Control:
        """Return a connection to the keeper of a lab that is up. Raises LabError if it is not, and why if it was."""
        connection = self.connect(uid, instance)
        if connection is None:
            self.require_not_another_users(uid, instance)
            name = self.title(instance)
            raise LabError(f"lab {name} is not up{self.ended(instance)}", remedy=f"`xdplab lab up {name}`")
        return connection

    def require_not_another_users(self, uid: int, instance: str) -> None:
        """Raise LabError where another user has a lab of this name up, and this process may see it (root may)."""
        for other in keeper_socket.other_owners(uid):
            if instance in keeper_socket.keepers_of(other, self.kind):
                user = control.user_name(other)
                whose = f"lab {self.title(instance)} is not yours: it is {user}'s"
                raise LabError(whose, remedy=f"name its owner: --for-user {user}")

    def hello(self, uid: int, instance: str) -> dict[str, Any]:
        """Return all that a keeper knows about its lab."""
        with contextlib.closing(self.connected(uid, instance)) as connection:
            return connection.ask("hello")

    def is_up(self, uid: int, instance: str) -> bool:
        """Tell whether the lab is up; wait for a lab that another process is just making."""
        until = time.monotonic() + self.coming_up_s
        while time.monotonic() < until:
            if (connection := self.connect(uid, instance)) is not None:
                connection.close()
                return True
            if instance not in keeper_socket.keepers_of(uid, self.kind):
                return False
            time.sleep(LOOK_S)
        raise LabError(f"lab {self.title(instance)}: it has been coming up for {self.coming_up_s:g} s and still is not")

    def came_up(self, uid: int, instance: str, done: subprocess.CompletedProcess[str]) -> bool:
        """Tell from a new keeper's output whether the lab was made (False if another process was faster).

        Raises LabError with the keeper's message.
        """
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            message = done.stderr.strip()[-300:] or f"it ended with exit code {done.returncode} and said nothing"
            raise LabError(f"the lab's keeper did not start: {message}") from None
        if answer.get("taken") and self.is_up(uid, instance):
            return False
        if "error" in answer:
            raise LabError(f"lab {self.title(instance)}: {answer['error']}", remedy=answer.get("remedy"))
        return True

    def down(self, instance: str, uid: int) -> bool:
        """Take a lab down. Returns whether it was up; its processes are gone then. Raises LabError for another
        user's."""
        connection = self.connect(uid, instance)
        if connection is None:
            self.require_not_another_users(uid, instance)
            return False
        with contextlib.closing(connection):
            connection.ask("down")
            connection.wait_gone()
        return True

    def status(self, uid: int) -> list[dict[str, Any]]:
        """Return a row for each of a user's labs of this kind that are up."""
        rows = []
        for instance in keeper_socket.keepers_of(uid, self.kind):
            if (connection := self.connect(uid, instance)) is not None:
                with contextlib.closing(connection), contextlib.suppress(control.WentDownError):
                    rows.append(self._row(instance, connection.ask("hello")))
        return rows

    def _row(self, instance: str, facts: dict[str, Any]) -> dict[str, Any]:
        secret = "client_key"
        shown = {name: {k: v for k, v in host.items() if k != secret} for name, host in facts["hosts"].items()}
        row = {"lab": self.title(instance), "kind": self.kind, "label": self.label(facts)}
        return {**row, "way": None, "why": None, **facts, "hosts": shown}


class KeeperLab:
    """A lab as a client of its keeper: it can lock the lab, keep it up and connect to its hosts."""

    keepers: Keepers
    another: str
    """The name to use for another lab of this kind while this one is in use."""

    def __init__(self, instance: str, uid: int, facts: dict[str, Any]) -> None:
        self._instance, self._uid, self._facts = instance, uid, facts
        self._made: list[ssh.SshHost] = []
        self.name = self.keepers.title(instance)

    @contextlib.contextmanager
    def lock(self, who: str | None = None, *, steal: bool = False) -> Iterator[None]:
        """Hold the lab. ``steal`` is not needed: a process of this machine holds the lock, which ends with it."""
        holding = self._keeper()
        try:
            if other := holding.ask("lock", who=who or f"process {os.getpid()}").get("locked_by"):
                raise LabInUseError(
                    f"lab {self.name}: a run is going on in this lab: {other}",
                    remedy=f"wait for it, or use another lab: --lab {self.another}",
                )
            yield
        finally:
            holding.close()

    def turn(self, tell: Callable[[str | None], None]) -> contextlib.AbstractContextManager[None]:
        return alone_on(self._machine_cpus, f"lab {self.name}", tell)

    @property
    def _machine_cpus(self) -> Iterable[int]:
        """The CPUs of this machine that the lab may use: those of its keeper, which its children inherit."""
        return map(int, self._facts["machine_cpus"])

    def second_link(self, *, make: bool = True) -> LinkEnds | None:
        return None

    def regain(self) -> None:
        """The keeper is on this machine, and holds the lock as long as this process lives."""

    @property
    def label(self) -> str:
        return self.keepers.label(self._facts)

    @property
    def leased(self) -> bool:
        return bool(self._facts["leases"])

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        with contextlib.closing(self._keeper()) as lease:
            lease.ask("lease")
            try:
                yield
            finally:
                with contextlib.suppress(LabError):  # it is already down
                    if not lease.ask("release").get("kept"):
                        lease.wait_gone()

    def close(self) -> None:
        for host in self._made:
            host.close()

    def _keeper(self) -> control.Control:
        return self.keepers.connected(self._uid, self._instance)

    def _reach(self, name: str) -> ssh.SshHost:
        self._made.append(ssh.SshHost(name, self._address(name)))
        return self._made[-1]

    def _address(self, name: str) -> ssh.SshAddress:
        """Return the connector of a host: a connection to the keeper that becomes one to its sshd."""
        facts = self._facts["hosts"][name]

        def connect() -> socket.socket:
            connection = self._keeper()
            connection.ask("ssh", host=name)
            return connection.detach()

        return ssh.SshAddress(name, key=facts["client_key"], host_key=facts["host_key"], connect=connect)


@contextlib.contextmanager
def alone_on(cpus: Iterable[int], who: str, tell: Callable[[str | None], None]) -> Iterator[None]:
    """Hold CPUs of this machine exclusively among the user's processes; ``who`` begins the messages.

    Otherwise two real-time senders on one CPU would stop each other. Users also wait for root, and nobody for another
    user: a lock that others can open, they can hold for ever. Raises HostError after `TURN_S`.
    """
    with contextlib.ExitStack() as held:
        for cpu in sorted(cpus):  # the same order for all avoids a deadlock
            _hold(cpu, held, who, tell)
        yield


def _hold(cpu: int, held: contextlib.ExitStack, who: str, tell: Callable[[str | None], None]) -> None:
    lock = _lock_of(cpu)
    held.callback(os.close, lock)
    began, waited = time.monotonic(), False
    while _root_holds(cpu) or not _locked(lock):
        if not waited and time.monotonic() > began + SOON_S:
            other = "a lab of root's" if _root_holds(cpu) else _words_of_holder(os.pread(lock, MOST_BYTES, 0))
            tell(f"{who}: {other} measures on CPU {cpu}")
            waited = True
        if time.monotonic() > began + TURN_S:
            raise HostError(
                f"{who}: another lab has measured on CPU {cpu} for {TURN_S:g} s",
                remedy="wait for its run, or end it",
            )
        time.sleep(TURN_LOOK_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, _held_for(), 0)
    if waited:
        tell(None)


def _lock_of(cpu: int) -> int:
    folder = keeper_socket.ROOT if os.geteuid() == 0 else cache.cache_dir() / "cpus"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / f"cpu{cpu}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise HostError(f"no lock can be made in {folder}: {error.strerror}") from error


def _root_holds(cpu: int) -> bool:
    """Tell a user whether root measures on a CPU; root learns it from the lock itself."""
    try:
        return os.geteuid() != 0 and is_listed(keeper_socket.ROOT / f"cpu{cpu}.lock")
    except OSError:  # root has measured nothing yet
        return False


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held_for() -> bytes:
    """Return what the holder of a CPU writes for those who wait for it: the folder of its run."""
    run = waiting.MEASURED.get()
    return b"" if run is None else os.fsencode(run.path.resolve())


def _words_of_holder(written: bytes) -> str:
    """Return who holds what this process waits for, by what the holder wrote: user, run, since when, time to go."""
    try:
        run = rundir.RunDirectory.open(Path(os.fsdecode(written))) if written else None
        left_s = None if run is None else state.read_state(run).eta_s
    except (OSError, XdplabError):  # it has gone meanwhile
        return "another lab"
    if run is None:
        return "another lab"
    return waiting.words_of(run) + ("" if left_s is None else f", which has {duration(left_s)} to go,")
