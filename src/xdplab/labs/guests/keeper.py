"""The keeper of one guest: a process with a console that reports when it is up, and then shows that it is alive.

Imported by scripts that run as the owner, standard library only. Such a script reads its configuration as JSON from
standard input, prints one line (``{"ready": …}`` or ``{"error": …}``) and continues in the background. However it ends,
the guest dies with it.
"""

import contextlib
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from xdplab.labs import keeper as lab_keeper
    from xdplab.labs.keeper import Answer
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import keeper as lab_keeper
    from keeper import Answer

SILENT_S = 60.0
"""Seconds without an answer after which a guest counts as hung."""
_LAST_WORDS = re.compile(rb"(?:Kernel panic[^\n\r]*|xdplab: guest: [^\n\r]*)")


class GuestProcess(Protocol):
    """The guest's process, and the socket on which the guest first describes itself in one JSON line."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket


class Console:
    """The guest's console: stored in a file, and quoted in errors."""

    def __init__(self, stream: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.stream, self.path = stream, path
        self.file = path.open("wb", buffering=0)
        self.text = b""

    def take(self) -> bool:
        """Take in what has come. Returns whether there may be more."""
        chunk = os.read(self.stream, 1 << 16)
        self.file.write(chunk)
        self.text = (self.text + chunk)[-(1 << 16) :]
        return bool(chunk)

    def note(self, text: str) -> None:
        self.file.write(f"\nxdplab: {text}\n".encode())

    def last_words(self) -> str:
        """Return why the guest ended, as far as the console shows it."""
        notes = _LAST_WORDS.findall(self.text)
        lines = notes or [line for line in self.text.splitlines() if line.strip()][-1:]
        return lines[0].decode(errors="replace").strip() if lines else "its console said nothing"


class GuestKeeper(lab_keeper.Keeper):
    """Keeps a guest. A kind of guest adds `start` and `reach`."""

    pulse: socket.socket
    """The connection on which the guest answers beats."""

    def __init__(self, wanted: Answer) -> None:
        super().__init__(wanted["socket"], wanted["uid"], lease=wanted["lease"])
        self.wanted = wanted
        self.facts: Answer = {}
        self.heard = time.monotonic()
        self.guest: GuestProcess | None = None
        self.received = b""

    def start(self) -> GuestProcess:
        raise NotImplementedError

    def reach(self) -> None:
        """Make its hosts reachable, once it is up, and find its `pulse`."""
        raise NotImplementedError

    def come_up(self) -> Answer:
        """Return the guest's description of itself once it is up."""
        return self.hear()

    def build(self) -> None:
        started = time.monotonic()
        self.until = started + self.wanted["start_s"]
        self.guest = self.start()
        self.console = Console(_descriptor(self.guest.process), Path(self.wanted["console"]))
        self.facts = self.come_up()
        self.facts["boot_s"] = round(time.monotonic() - started, 2)
        self.reach()

    def hear(self) -> Answer:
        """Return the guest's next line while it comes up; store the console meanwhile."""
        assert self.guest is not None
        door, data = self.guest.socket, b""
        with selectors.DefaultSelector() as ready:
            ready.register(self.console.stream, selectors.EVENT_READ)
            ready.register(door, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                keys = {key.fileobj for key, _ in ready.select(max(self.until - time.monotonic(), 0.0))}
                if not keys:
                    raise self._failed(f"the guest was not up in {self.wanted['start_s']:g} s")
                if self.console.stream in keys and not self.console.take():
                    raise self._failed("the guest ended while it came up")
                if door in keys:
                    data += door.recv(1 << 16)
        answer: Answer = json.loads(data)
        if "error" in answer:
            raise self._failed("the guest's lab did not come up")
        return answer

    def _failed(self, what: str) -> lab_keeper.KeeperError:
        self.console.note(what)
        return lab_keeper.KeeperError(f"{what}: {self.console.last_words()}", f"its console: {self.console.path}")

    def serve(self) -> None:
        assert self.guest is not None
        self.selector.register(self.console.stream, selectors.EVENT_READ, self.listen_console)
        self.selector.register(self.pulse, selectors.EVENT_READ, self.listen_pulse)
        self.heard = time.monotonic()
        if self.wanted["ping_s"]:
            threading.Thread(target=self.watch, args=(self.guest,), daemon=True).start()
        super().serve()

    def listen_console(self, _stream: Any) -> None:
        if not self.console.take():
            self.console.note(f"the guest has ended by itself: {self.console.last_words()}")
            self.going = False

    def listen_pulse(self, connection: socket.socket) -> None:
        data = connection.recv(1 << 12)
        self.heard = time.monotonic()
        if not data:
            self.selector.unregister(connection)  # the console shows why
        self.received += data
        *lines, self.received = self.received.split(b"\n")
        for line in lines:
            self.answered(line)

    def answered(self, line: bytes) -> None:
        """Handle a line of the guest that is not an answer to a beat."""

    def watch(self, guest: GuestProcess) -> None:
        """Send a beat every few seconds, and end a guest that does not answer."""
        while guest.process.poll() is None:
            if time.monotonic() - self.heard > SILENT_S:
                self.console.note(f"the guest hangs: no sign of life for {SILENT_S:g} s")
                guest.process.kill()
                return
            with contextlib.suppress(OSError):  # it does not read: the time-out ends it
                self.pulse.send(b"?\n", socket.MSG_DONTWAIT)
            time.sleep(self.wanted["ping_s"])

    def remove(self) -> None:
        if self.guest is not None:
            self.guest.process.kill()
            self.guest.process.wait()

    def hello(self, connection: socket.socket, request: Answer) -> Answer:
        facts: Answer = self.wanted["known"]
        return super().hello(connection, request) | facts | self.facts


def _descriptor(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def main(kind: Callable[[Answer], GuestKeeper]) -> None:
    """Keep the guest that standard input describes."""
    wanted = json.load(sys.stdin)
    lab_keeper.keep(lambda: kind(wanted))
