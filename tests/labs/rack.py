"""A netns lab's hosts as if they were two servers: an inventory file whose proxies lead to their sshds."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from xdplab.labs import Lab, control
from xdplab.labs.netns import lab as netns

# Connects its standard input and output to the sshd of a netns lab's host (standard library only: it starts at once).
PIPE = """
import os, selectors, socket, sys
ours = socket.socket(socket.AF_UNIX)
ours.connect(sys.argv[1])
ours.sendall(b'{"do": "ssh", "host": "%s"}' % sys.argv[2].encode() + bytes([10]))
while ours.recv(1) != bytes([10]):
    pass
theirs = ours.fileno()
poll = selectors.DefaultSelector()
poll.register(0, selectors.EVENT_READ)
poll.register(theirs, selectors.EVENT_READ)
into = {0: theirs, theirs: 1}
try:
    while True:
        for key, _ in poll.select():
            data = os.read(key.fd, 65536)
            if not data:
                os._exit(0)
            while data:
                data = data[os.write(into[key.fd], data):]
except ConnectionError:
    os._exit(0)
"""


def rack(lab: Lab, folder: Path, name: str = "rack") -> dict[str, Any]:
    """Return the content of an inventory that leads to ``lab``; its keys lie in ``folder``."""
    uid, instance = control.owner(), lab.name.partition(":")[2]
    connection = netns.KEEPERS.connect(uid, instance)
    hosts = connection.ask("hello")["hosts"]
    connection.close()
    content: dict[str, Any] = {"arrangement": "shared", "work_dir": f"/tmp/xdplab/{name}"}
    for role in ("dut", "tg"):
        key = folder / f"{name}-{role}.key"
        key.touch(0o600)
        key.write_text(hosts[role]["client_key"])
        content[role] = {
            "host": role,
            "key": key.name,
            "host_key": hosts[role]["host_key"],
            "proxy": [sys.executable, "-I", "-S", "-c", PIPE, str(netns.KEEPERS.address(uid, instance)), role],
            "interface": {"name": hosts[role]["interface"], "mac": hosts[role]["mac"]},
            "cpus": sorted(os.sched_getaffinity(0)),
        }
    return content


def written(content: dict[str, Any], folder: Path, name: str = "rack") -> str:
    """Write an inventory and return the lab's name for --lab."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)
