"""QEMU's monitor, as far as a guest's keeper needs it. Standard library only.

Source of the protocol: interop/qmp-spec.txt of QEMU's documentation (one JSON object per line; events come in between).
"""

import json
import socket
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs.keeper import KeeperError
else:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from keeper import KeeperError

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
