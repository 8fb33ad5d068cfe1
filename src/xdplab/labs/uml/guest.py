"""PID 1 of a user-mode Linux: one host, ``guest``, and an sshd for each stream that its serial line brings.

It turns the machine into a host first: /dev, accounts, mounts, keys. Runs as a script, standard library only. Its first
line is JSON with all that the keeper outside must know.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tty
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.guests import mux
    from xdplab.labs.keeper import KeeperError
    from xdplab.labs.netns import host as netns_host
    from xdplab.labs.netns import keeper as netns_keeper
    from xdplab.labs.uml import xstate
else:  # importing the package itself would load pandas
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from guests import mux
    from keeper import KeeperError
    from netns import host as netns_host
    from netns import keeper as netns_keeper
    from uml import xstate

CODE = {str(path) for path in (Path(__file__).parents[1], Path(sys.executable).parents[1], Path(sys.base_prefix))}
"""The scripts that the guest runs, and their Python."""
AUTOLOADED = ("veth",)
"""Modules loaded here, because the modprobe that the kernel itself starts lacks `xstate.ENVIRONMENT` and dies."""
STANDARD_STREAMS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def become_host(hostname: str) -> dict[str, str]:
    """Turn this machine's initial namespaces into a host; return its public key and the private key for login."""
    os.environ["PATH"] = netns_host.PATH
    netns_host.ENVIRONMENT |= {name: os.environ[name] for name in xstate.ENVIRONMENT if name in os.environ}
    code = {path: os.open(path, os.O_PATH) for path in CODE}
    netns_host.mount_private()
    for path, held in code.items():
        _show_again(path, held)
    netns_host.replace_root_account()
    netns_host.settle(hostname)
    subprocess.run(["modprobe", "-a", *AUTOLOADED], check=False)
    Path(netns_host.WORK_DIR, "native").symlink_to(netns_host.BUILT)
    return netns_host.make_keys(hostname)


def _show_again(path: str, held: int) -> None:
    """Bind-mount a folder of the code again where a tmpfs now hides it: a checkout may lie below /tmp."""
    if not Path(path).exists():
        Path(path).mkdir(parents=True)
        # --no-canonicalize: the hidden folder has no path that could be resolved.
        netns_host.command("mount", "--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{held}", path)
    os.close(held)


def prepare() -> None:
    """Do the part of a distribution's init that a host needs."""
    for name, target in STANDARD_STREAMS.items():
        Path("/dev", name).symlink_to(f"/proc/self/{target}")
    for name in ("shm", "pts"):
        Path("/dev", name).mkdir(exist_ok=True)
    _readable_accounts()


def _readable_accounts() -> None:
    """Replace machine files that the guest's user may not read by the guest's own."""
    for path, root_line in netns_host.ROOT_ACCOUNT.items():
        try:
            Path(path).read_bytes()
        except PermissionError:
            Path(path).unlink()
            Path(path).write_text(root_line + "\n")


HOST, LINE, PULSE = "guest", "/dev/ttyS0", 0


def main() -> None:
    line = os.open(LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    try:
        sshd = netns_keeper.find_sshd()
        prepare()
        facts = become_host(HOST)
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
