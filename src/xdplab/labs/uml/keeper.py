"""The keeper of one user-mode Linux: its process, and its one serial line, which carries every connection to it.

Runs as the owner and as a script, standard library only. Clients have the requests of a keeper, and ``ssh``.
"""

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.guests import keeper as guest_keeper
    from xdplab.labs.guests import mux
    from xdplab.labs.keeper import Answer
    from xdplab.labs.uml import xstate
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from guests import keeper as guest_keeper
    from guests import mux
    from keeper import Answer
    from uml import xstate

PULSE = 0
"""The stream that the guest echoes; the others are SSH connections."""

FIRST = ("sh", "-c", 'ulimit -c 0; "$@"; exit', "sh")
"""A shell is the PID namespace's first process: as PID 1 the kernel could not abort, and would hang after a panic."""


CONFINED = (sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("confined.py")))


class Uml:
    """The kernel as a process, in its own namespaces: its helpers end with it, and it cannot write this machine's
    files."""

    def __init__(self, wanted: Answer) -> None:
        self.socket, line = socket.socketpair()
        argv = [word.replace("{line}", str(line.fileno())) for word in wanted["argv"]]
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        space = ["setpriv", "--pdeathsig", "KILL", "unshare", *user, "--mount", "--pid", "--fork", "--kill-child"]
        self.process = subprocess.Popen(
            [*space, *FIRST, *CONFINED, wanted["own_dir"], *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(line.fileno(),),
            preexec_fn=xstate.hide if xstate.is_too_long() else None,  # this process has one thread
        )
        line.close()


class UmlKeeper(guest_keeper.GuestKeeper):
    """Keeps a user-mode Linux."""

    def start(self) -> Uml:
        self.actions["ssh"] = self.ssh
        return Uml(self.wanted)

    def reach(self) -> None:
        assert self.guest is not None
        self.numbers = itertools.count(PULSE)
        self.line = mux.Mux(self.guest.socket.detach(), self.selector)
        self.pulse = self.open_stream()

    def open_stream(self) -> socket.socket:
        """Return the outside end of a new stream into the guest."""
        ours, theirs = socket.socketpair()
        self.line.attach(next(self.numbers), theirs)
        return ours

    def ssh(self, connection: socket.socket, request: Answer) -> Answer | None:
        if str(request.get("host")) not in self.facts["hosts"]:
            return {"error": f"this lab has no host {request.get('host')!r}"}
        self.reply(connection, {"ok": True})
        self.hand_off(connection)
        self.line.attach(next(self.numbers), connection)
        return None


if __name__ == "__main__":
    guest_keeper.main(UmlKeeper)
