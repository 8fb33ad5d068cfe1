"""The keeper of one virtual lab: QEMU, and the ports of the loopback interface that lead to the guest's hosts.

Runs as the owner and as a script, standard library only. What clients may ask is what they may ask of a netns lab's
keeper, but ``ssh``: a guest's hosts have ports.
"""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs import guest_keeper, netns_keeper
else:  # the package itself would bring in all of pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import guest_keeper
    import netns_keeper

ANSWER_S = 5.0
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)")


class Qemu:
    """QEMU as a process that dies with this one, the guest's port, and QEMU's monitor."""

    def __init__(self, wanted: guest_keeper.Answer, **given: list[int]) -> None:
        """``given``: descriptors for QEMU, by the name they have in braces in its arguments."""
        self.socket, control = socket.socketpair()
        self.monitor, monitor = socket.socketpair()
        made = {"{control}": str(control.fileno()), "{monitor}": str(monitor.fileno())}
        made["{initrd}"] = f"/proc/self/fd/{wanted['initrd']}"
        made |= {f"{{{name}}}": ":".join(map(str, numbers)) for name, numbers in given.items()}
        argv = wanted["argv"]
        for name, value in made.items():
            argv = [word.replace(name, value) for word in argv]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(control.fileno(), monitor.fileno(), wanted["initrd"], *itertools.chain(*given.values())),
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


def _human(line: str) -> guest_keeper.Answer:
    return {"execute": "human-monitor-command", "arguments": {"command-line": line}}


class VmKeeper(guest_keeper.GuestKeeper):
    """Keeps a QEMU guest."""

    def start(self) -> Qemu:
        del self.actions["ssh"]
        self.qemu = Qemu(self.wanted)
        return self.qemu

    def reach(self) -> None:
        self.known |= self.wanted["guest"]
        self.waiting: list[socket.socket] = []
        self.actions["link"] = self.link
        self.pulse = self.qemu.socket
        self.ports = self.qemu.forwards()
        self.add_ports()

    def add_ports(self) -> None:
        for name, port in self.wanted["ports"].items():
            if name in self.known["hosts"]:
                self.known["hosts"][name]["port"] = self.ports[port]

    def link(self, connection: socket.socket, _asked: guest_keeper.Answer) -> guest_keeper.Answer | None:
        """Have the guest make the hosts with the link between them, which only some of its users need."""
        if "dut" in self.known["hosts"]:
            return {"ok": True}
        if not self.waiting:
            self.pulse.send(b"link\n")
        self.waiting.append(connection)
        return None

    def answered(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        said = json.loads(line)
        if "error" not in said:
            guest = self.known["hosts"]["guest"]  # whose keys open what has none of its own
            self.known["hosts"] |= {name: guest | host for name, host in said["hosts"].items()}
            self.add_ports()
        for connection in self.waiting:
            self.reply(connection, said if "error" in said else {"ok": True})
        self.waiting.clear()


if __name__ == "__main__":
    guest_keeper.main(VmKeeper)
