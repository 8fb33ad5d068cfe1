"""The keeper of one virtual lab: QEMU, its console, the guest's signs of life, and a socket for the lab's owner.

Runs as the owner and as a script, standard library only. It reads what to run as JSON from standard input, says one
line (``{"ready": …}`` or ``{"error": …}``) and goes on in the background. QEMU dies with it, however it ends. What
clients may ask is what they may ask of a netns lab's keeper, but ``ssh``: a guest's hosts have ports.
"""

import argparse
import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs import netns_keeper
else:  # the package itself would bring in all of pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import netns_keeper

Answer = dict[str, Any]

SILENT_S = 60.0
"""Seconds without an answer after which a guest is taken for hung."""
ANSWER_S = 5.0
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)")
_LAST_WORDS = re.compile(rb"(?:Kernel panic[^\n\r]*|xdplab: guest: [^\n\r]*)")


class Console:
    """The guest's console: kept in a file from its first line on, and asked for its last words."""

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

    def note(self, words: str) -> None:
        self.file.write(f"\nxdplab: {words}\n".encode())

    def last_words(self) -> str:
        """Return why the guest ended, as far as the console tells."""
        told = _LAST_WORDS.findall(self.text)
        lines = told or [line for line in self.text.splitlines() if line.strip()][-1:]
        return lines[0].decode(errors="replace").strip() if lines else "its console said nothing"


class Guest:
    """QEMU as a process that dies with this one, the guest's port, and QEMU's monitor."""

    def __init__(self, wanted: Answer) -> None:
        self.socket, control = socket.socketpair()
        self.monitor, monitor = socket.socketpair()
        made = {"{control}": str(control.fileno()), "{monitor}": str(monitor.fileno())}
        made["{initrd}"] = f"/proc/self/fd/{wanted['initrd']}"
        argv = wanted["argv"]
        for name, value in made.items():
            argv = [word.replace(name, value) for word in argv]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(control.fileno(), monitor.fileno(), wanted["initrd"]),
        )
        os.close(wanted["initrd"])
        for end in (control, monitor):
            end.close()

    def forwards(self) -> dict[int, int]:
        """Return the loopback port that leads to each port inside, as QEMU's monitor tells."""
        self.monitor.settimeout(ANSWER_S)
        lines = self.monitor.makefile("rw")
        for command in ({"execute": "qmp_capabilities"}, _human("info usernet")):
            lines.write(json.dumps(command) + "\n")
        lines.flush()
        for line in lines:
            said = json.loads(line).get("return")
            if isinstance(said, str):
                return {int(inside): int(outside) for outside, inside in _FORWARD.findall(said)}
        raise netns_keeper.KeeperError("QEMU's monitor does not tell which ports it forwards")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _human(line: str) -> Answer:
    return {"execute": "human-monitor-command", "arguments": {"command-line": line}}


class VmKeeper(netns_keeper.Keeper):
    """Keeps a guest instead of two namespaces."""

    def __init__(self, options: argparse.Namespace, wanted: Answer) -> None:
        super().__init__(options)
        del self.actions["ssh"]
        self.wanted = wanted
        self.known: Answer = {}
        self.heard = time.monotonic()
        self.guest: Guest | None = None

    def make(self) -> None:
        try:
            self.listener.bind(self.options.address.replace("@", "\0", 1))
        except OSError as error:
            raise netns_keeper.NameTakenError(f"the lab's name is taken: {error.strerror}") from error
        started = time.monotonic()
        self.guest = Guest(self.wanted)
        self.console = Console(_descriptor(self.guest.process), Path(self.wanted["console"]))
        self.known = self._await_guest(started + self.wanted["start_s"])
        self.known["boot_s"] = round(time.monotonic() - started, 2)
        ports = self.guest.forwards()
        for name, inside in self.wanted["ports"].items():
            self.known["hosts"][name]["port"] = ports[inside]
        if self.lease_until is not None:
            self.lease_until = time.monotonic() + netns_keeper.LEASE_S
        self.listener.listen(64)

    def _await_guest(self, until: float) -> Answer:
        """Return what the guest says of itself once its lab is up, the console kept in the meantime."""
        assert self.guest is not None
        said = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self.console.stream, selectors.EVENT_READ)
            ready.register(self.guest.socket, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                keys = {key.fileobj for key, _ in ready.select(max(until - time.monotonic(), 0.0))}
                if not keys:
                    raise self._failed(f"the guest was not up in {self.wanted['start_s']:g} s")
                if self.console.stream in keys and not self.console.take():
                    raise self._failed("the guest ended while it came up")
                if self.guest.socket in keys:
                    said += self.guest.socket.recv(1 << 16)
        answer: Answer = json.loads(said)
        if "error" in answer:
            raise self._failed("the guest's lab did not come up")
        return answer

    def _failed(self, what: str) -> netns_keeper.KeeperError:
        self.console.note(what)
        return netns_keeper.KeeperError(f"{what}: {self.console.last_words()}", f"its console: {self.console.path}")

    def serve(self) -> None:
        assert self.guest is not None
        self.selector.register(self.console.stream, selectors.EVENT_READ, self.listen_console)
        self.selector.register(self.guest.socket, selectors.EVENT_READ, self.listen_guest)
        self.heard = time.monotonic()
        if self.wanted["ping_s"]:
            threading.Thread(target=self.watch, args=(self.guest,), daemon=True).start()
        super().serve()

    def listen_console(self, _stream: Any) -> None:
        if not self.console.take():
            self.console.note(f"the guest has ended by itself: {self.console.last_words()}")
            self.going = False

    def listen_guest(self, connection: socket.socket) -> None:
        said = connection.recv(1 << 12)
        self.heard = time.monotonic()
        if not said or b"error" in said:
            self.selector.unregister(connection)  # the console tells why

    def watch(self, guest: Guest) -> None:
        """Ask for a sign of life every few seconds, and end a guest that gives none."""
        while guest.process.poll() is None:
            if time.monotonic() - self.heard > SILENT_S:
                self.console.note(f"the guest hangs: no sign of life for {SILENT_S:g} s")
                guest.process.kill()
                return
            with contextlib.suppress(OSError):  # it reads nothing: the silence is what counts
                guest.socket.send(b"?", socket.MSG_DONTWAIT)
            time.sleep(self.wanted["ping_s"])

    def end(self) -> None:
        self.listener.close()
        if self.guest is not None:
            self.guest.kill()
        super().end()

    def hello(self, connection: socket.socket, asked: Answer) -> Answer:
        answer: Answer = super().hello(connection, asked)
        answer |= self.wanted["known"]
        return answer | self.known


def _descriptor(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def keep(options: argparse.Namespace, wanted: Answer, say: Any) -> None:
    keeper = VmKeeper(options, wanted)
    try:
        keeper.make()
        say({"ready": True})
        keeper.serve()
    except netns_keeper.KeeperError as error:
        say(error.answer)
    finally:
        keeper.end()


def main() -> None:
    wanted = json.load(sys.stdin)
    options = argparse.Namespace(address=wanted["address"], uid=wanted["uid"], lease=wanted["lease"], queues=0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    netns_keeper.in_background(lambda say: keep(options, wanted, say))


if __name__ == "__main__":
    main()
