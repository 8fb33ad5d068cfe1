"""A host with a user who is not root, the machine's real sudo, and an sshd over TCP."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xdplab.hosts import Host
from xdplab.labs import Lab

USER, UID = "lab", 61234
SUDO = Path("/usr/bin/sudo")
DUT, TG = "198.51.100.1", "198.51.100.2"
ALL = f"{USER} ALL=(root) NOPASSWD: /usr/bin/sh\n"
SSHD = (
    f"exec /usr/sbin/sshd -D -e -f /run/sshd/sshd_config -o ListenAddress={DUT} -o PidFile=none -o AllowUsers={USER} "
    '-o SetEnv="PATH=/usr/local/bin:/usr/bin:/bin"'
)

# Connects its standard input and output to the DUT's port 22, from inside the TG (standard library only).
RELAY = f"""
import os, socket, threading
s = socket.create_connection(({DUT!r}, 22))
def up():
    while data := os.read(0, 65536): s.sendall(data)
    s.shutdown(1)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536): os.write(1, data)
"""


@contextlib.contextmanager
def account(host: Host, sudoers: str = ALL) -> Iterator[None]:
    """Give a netns host the user `USER`, with the rights in ``sudoers``; the rest of sudoers is the machine's."""
    lines = {"passwd": f"{USER}:x:{UID}:{UID}::/tmp:/bin/sh", "shadow": f"{USER}:*:19000:0:99999:7:::"}
    before = {name: host.get(f"/etc/{name}") for name in lines}
    for name, line in lines.items():  # the lab binds them over the machine's, so only the host has them
        host.run(["tee", f"/etc/{name}"], stdin=before[name] + f"{line}\n".encode())
    rules = SUDO.exists()
    if rules:
        host.run(["mount", "-t", "tmpfs", "-o", "mode=755", "sudoers", "/etc/sudoers.d"])
        host.put(sudoers.encode(), "/etc/sudoers.d/lab", mode=0o440)
    try:
        yield
    finally:
        if rules:
            host.run(["umount", "/etc/sudoers.d"])
        for name, content in before.items():
            host.run(["tee", f"/etc/{name}"], stdin=content)


@contextlib.contextmanager
def over_tcp(servers: Lab, content: dict[str, Any], *, user: str, device: str = "vd0") -> Iterator[None]:
    """Make an inventory whose DUT is reached as ``user`` over the link under test itself."""
    address = f"ip addr add {DUT}/24 dev {device} && {SSHD}"
    bridge = f"ip link add {device} type bridge && ip link set vd0 master {device} && ip link set {device} up && "
    script = address if device == "vd0" else bridge + address
    server = servers.dut.start(["sh", "-c", script.replace(f"={USER}", f"={user}")], deadline_s=120)
    servers.tg.run(["ip", "addr", "add", f"{TG}/24", "dev", "vg0"])
    ready = (
        f"for i in $(seq 100); do bash -c 'exec 3<>/dev/tcp/{DUT}/22' 2>/dev/null && exit 0; sleep 0.1; done; exit 1"
    )
    servers.tg.run(["sh", "-c", ready])
    lab_run = [sys.executable, "-m", "xdplab", "lab", "run", "--lab", servers.name, "--deadline", "100", "tg", "--"]
    content["dut"] |= {"proxy": [*lab_run, "python3", "-c", RELAY], "user": user, "sudo": user != "root"}
    try:
        yield
    finally:
        server.kill()
        server.wait(5)
        servers.tg.run(["ip", "addr", "flush", "dev", "vg0"])
        servers.dut.run(["ip", "addr", "flush", "dev", "vd0"])
        if device != "vd0":
            servers.dut.run(["ip", "link", "del", device])
