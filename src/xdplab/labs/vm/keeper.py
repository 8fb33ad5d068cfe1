"""The keeper of one virtual lab: QEMU, and the ports of the loopback interface that lead to the guest's hosts.

Runs as the owner and as a script, standard library only. Clients have the requests of a keeper, and ``link``
(make the hosts with the link): a guest's hosts have ports. QEMU's monitor speaks the protocol of interop/qmp-spec.txt
of QEMU's documentation (one JSON object per line; events come in between).
"""

import base64
import functools
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs.guests import keeper as guest_keeper
    from xdplab.labs.keeper import Answer, KeeperError
    from xdplab.labs.vm import saved
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from guests import keeper as guest_keeper
    from keeper import Answer, KeeperError
    from vm import saved

ANSWER_S = 30.0
_LOOK_S = 0.01


class MonitorError(KeeperError):
    """QEMU refused a command; the message is its own."""


class Monitor:
    """A connection to QEMU's monitor, which answers one command at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(ANSWER_S)
        self.connection = connection
        self.lines = connection.makefile("r")
        self.execute("qmp_capabilities")

    def execute(self, command: str, *, descriptor: int | None = None, **arguments: Any) -> Any:
        """Return the answer to a command, given a descriptor if it wants one. Raises MonitorError."""
        request = json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"
        try:
            socket.send_fds(self.connection, [request], [] if descriptor is None else [descriptor])
            for line in self.lines:
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise MonitorError(f"QEMU, {command}: {answer['error']['desc']}")
        except OSError as error:
            raise MonitorError(f"QEMU, {command}: {error}") from error
        raise MonitorError(f"QEMU, {command}: it has ended")

    def human(self, line: str) -> str:
        """Return the answer of the human monitor, which has more commands."""
        arguments: dict[str, Any] = {"command-line": line}
        return str(self.execute("human-monitor-command", **arguments))

    def once(self, question: str, *, not_in: Container[str]) -> str:
        """Return the ``status`` of an answer as soon as it is none of these. Raises MonitorError."""
        until = time.monotonic() + ANSWER_S
        while (status := str(self.execute(question)["status"])) in not_in:
            if time.monotonic() > until:
                raise MonitorError(f"QEMU, {question}: still {status} after {ANSWER_S:g} s")
            time.sleep(_LOOK_S)
        return status


MOST_BYTES_S = 1 << 40
"""Bytes that QEMU may write per second while it saves: no limit."""
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)")


class Qemu:
    """QEMU, as a process that dies with this one, the guest's port, and QEMU's monitor."""

    def __init__(self, wanted: Answer, state: socket.socket | None = None, **given: list[int]) -> None:
        """``state``: where a saved state will come from; ``given``: descriptors, by the name they have in argv."""
        self.socket, control = socket.socketpair()
        self.door, monitor = socket.socketpair()
        descriptors = {"{control}": str(control.fileno()), "{monitor}": str(monitor.fileno())}
        descriptors["{initrd}"] = f"/proc/self/fd/{wanted['initrd']}"
        descriptors |= {f"{{{name}}}": ":".join(map(str, numbers)) for name, numbers in given.items()}
        argv = wanted["argv"]
        for name, value in descriptors.items():
            argv = [word.replace(name, value) for word in argv]
        states = [] if state is None else [state.fileno()]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv, *itertools.chain(*(("-incoming", f"fd:{n}") for n in states))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(control.fileno(), monitor.fileno(), wanted["initrd"], *states, *itertools.chain(*given.values())),
        )
        for end in (control, monitor):
            end.close()

    @functools.cached_property
    def monitor(self) -> Monitor:
        return Monitor(self.door)

    def forwards(self) -> dict[int, int]:
        """Return the loopback port that leads to each port inside."""
        output = self.monitor.human("info usernet")
        return {int(inside): int(outside) for outside, inside in _FORWARD.findall(output)}

    def save(self, state: saved.Saved) -> None:
        """Save the guest's state; the guest is stopped meanwhile. Raises SavedError, but lets the guest continue even
        then."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(ANSWER_S)
            self.monitor.execute("stop")
            self.monitor.execute("migrate-set-parameters", **{"max-bandwidth": MOST_BYTES_S})
            self.monitor.execute("getfd", descriptor=theirs.fileno(), fdname="state")
            self.monitor.execute("migrate", uri="fd:state")
            theirs.close()
            try:
                state.keep(ours, self.has_saved)
            finally:
                ours.close()  # otherwise QEMU would wait for a reader
                self.has_saved()
                self.monitor.execute("cont")

    def has_saved(self) -> bool:
        """Wait until QEMU has ended saving, and tell whether it saved everything."""
        return self.monitor.once("query-migrate", not_in=("setup", "active", "device")) == "completed"

    def go_on(self) -> None:
        """Let the guest resume from the loaded state. Raises SavedError."""
        if (status := self.monitor.once("query-status", not_in=("inmigrate",))) != "paused":
            raise saved.SavedError(f"QEMU says {status}")
        self.monitor.execute("cont")


class VmKeeper(guest_keeper.GuestKeeper):
    """Keeps a QEMU guest."""

    def start(self) -> Qemu:
        return self.set_going()

    def set_going(self) -> Qemu:
        """Start QEMU from a saved state, if there is a good one."""
        self.state = saved.Saved(Path(self.wanted["state"])) if self.wanted["state"] else None
        self.came = "booted"
        if self.state is not None and self.state.path.exists():
            try:
                return self.restore(self.state)
            except (saved.SavedError, MonitorError) as error:
                self.state.discard()
                self.came = f"booted, because the saved state could not be used: {error}"
        self.qemu = self.run()
        return self.qemu

    def run(self, state: socket.socket | None = None) -> Qemu:
        """Start QEMU with its inputs."""
        return Qemu(self.wanted, state)

    def restore(self, state: saved.Saved) -> Qemu:
        """Start QEMU from a saved state. Raises SavedError or MonitorError if that does not work."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(ANSWER_S)
            self.qemu = self.run(theirs)
            theirs.close()
            try:
                state.load(ours)
                self.qemu.go_on()
            except (saved.SavedError, MonitorError) as error:
                self.qemu.process.kill()
                line = self.qemu.process.communicate()[0].decode(errors="replace").split("\n")[0]
                raise saved.SavedError(": ".join(filter(None, (line, str(error))))) from error
        self.came = "restored"
        return self.qemu

    def come_up(self) -> Answer:
        """Bring the guest to the state that all guests of its kernel share, then give it its identity."""
        if self.came != "restored":
            message = self.hear()
            if self.state is not None:
                self.save(self.state, message["notices_restore"])
        self.qemu.socket.sendall(f"{time.time():.0f}\n".encode() + base64.b64decode(self.wanted["files"]))
        try:
            return super().come_up() | {"came_up": self.came}
        except KeeperError:
            if self.state is not None:
                self.state.discard()  # whatever the fault was, the saved state must not cause it in the next guest
            raise

    def save(self, state: saved.Saved, notices_restore: bool) -> None:
        """Save the guest's state for the next one, or return why not; a guest also comes up without it."""
        try:
            if not notices_restore:  # no vmgenid (before 5.18): two guests would draw the same random numbers
                raise saved.SavedError("its kernel would not notice that the state is resumed twice")
            self.qemu.save(state)
        except saved.SavedError as error:
            self.came += f"; no state is kept for the next one: {error}"

    def reach(self) -> None:
        os.close(self.wanted["initrd"])
        self.facts |= self.wanted["guest"]
        self.waiting: list[socket.socket] = []
        self.actions["link"] = self.link
        self.pulse = self.qemu.socket
        self.ports = self.qemu.forwards()
        self.add_ports()

    def add_ports(self) -> None:
        for name, port in self.wanted["ports"].items():
            if name in self.facts["hosts"]:
                self.facts["hosts"][name]["port"] = self.ports[port]

    def link(self, connection: socket.socket, _request: Answer) -> Answer | None:
        """Make the guest create the hosts and their link, which only some users need."""
        if "dut" in self.facts["hosts"]:
            return {"ok": True}
        if not self.waiting:
            self.pulse.send(b"link\n")
        self.waiting.append(connection)
        return None

    def answered(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        message = json.loads(line)
        if "error" not in message:
            guest = self.facts["hosts"]["guest"]  # whose keys also open hosts without their own
            self.facts["hosts"] |= {name: guest | host for name, host in message["hosts"].items()}
            self.add_ports()
        for connection in self.waiting:
            self.reply(connection, message if "error" in message else {"ok": True})
        self.waiting.clear()


if __name__ == "__main__":
    guest_keeper.main(VmKeeper)
