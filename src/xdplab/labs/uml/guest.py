"""PID 1 of a user-mode Linux: one host, ``guest``, and an sshd for each stream that its serial line brings.

Runs as a script, standard library only. Its first line is JSON with all that the keeper outside must know.
"""

import json
import os
import selectors
import signal
import socket
import sys
import tty
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.guests import mux
    from xdplab.labs.keeper import KeeperError
    from xdplab.labs.netns import host as netns_host
    from xdplab.labs.netns import keeper as netns_keeper
    from xdplab.labs.uml import inside
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from guests import mux
    from keeper import KeeperError
    from netns import host as netns_host
    from netns import keeper as netns_keeper
    from uml import inside

HOST, LINE, PULSE = "guest", "/dev/ttyS0", 0


def main() -> None:
    line = os.open(LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    try:
        sshd = netns_keeper.find_sshd()
        inside.prepare()
        facts = inside.become_host(HOST)
    except (KeeperError, OSError, RuntimeError) as error:
        print(f"xdplab: guest: {error}", flush=True)  # noqa: T201  the console is all that is left
        os.write(line, json.dumps({"error": str(error)}).encode() + b"\n")
        return
    hosts = {HOST: facts}
    os.write(line, json.dumps({"cpus": [0], "queues": 0, "hosts": hosts}).encode() + b"\n")
    serve(line, sshd)


def serve(line: int, sshd: str) -> None:
    """Answer what the line brings, until this machine is ended from outside."""
    signal.signal(signal.SIGCHLD, netns_host.reap)
    selector = selectors.DefaultSelector()

    def opened(number: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        if number == PULSE:
            selector.register(ours, selectors.EVENT_READ, echo)
        else:
            netns_host.start_sshd(sshd, ours.fileno())
            ours.close()
        return theirs

    mux.Mux(line, selector, opened)
    while True:
        for key, _ in selector.select():
            key.data(key.fileobj)


def echo(end: socket.socket) -> None:
    end.send(end.recv(64))


if __name__ == "__main__":
    main()
