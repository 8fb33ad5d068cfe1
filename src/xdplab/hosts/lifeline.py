"""Heartbeats: both ends of a connection notice when the other is gone, even if no packet says so.

Every few seconds the controller sends a line to a process on the host, under the connection's own sshd, which sends it
back. If no line arrives for `SILENCE_S`, that process ends the sshd: every command of the connection then finds its
input closed, and releases its programs, locks and devices. If no line comes back for as long, the controller closes the
connection, and every waiting call gets an error.
"""

from __future__ import annotations

import contextlib
import threading

from xdplab.errors import HostError
from xdplab.hosts import BASH
from xdplab.hosts.paramiko_alone import paramiko

SILENCE_S = 15.0
"""Seconds of silence after which either end considers the other gone."""
BEAT_S = 3.0

# After its start it uses only built-in commands: it starts no process on the host while a window is measured. If the
# machine itself was suspended, its time-out ends although a line is waiting: so it checks a second time. The sshd is
# known by its number and its start: once it has ended, another process may have the number.
_HOST_END = """
started() { line=; { read -r line <"/proc/$pid/stat"; } 2>/dev/null; fields=(${line##*) }); now=${fields[19]}; }
pid=$$
while read -r name <"/proc/$pid/comm"; do
    case $name in sshd*|dropbear*) break ;; esac
    while read -r key value; do [ "$key" = PPid: ] && pid=$value; done <"/proc/$pid/status"
    [ "$pid" -gt 1 ] || { echo "no sshd above this command"; exit 1; }
done
started; start=$now
echo alive
while read -r -t "$1" word || { [ $? -gt 128 ] && silent=1 && read -r -t 1 word && silent=; }; do echo "$word"; done
started
[ -z "$silent" ] || [ -z "$start" ] || [ "$now" != "$start" ] || kill -s KILL "$pid"
"""


def host_end(silence_s: float) -> list[str]:
    """Return the command to run on the host as the login user."""
    return [*BASH, _HOST_END, "xdplab-lifeline", f"{silence_s:g}"]


class Lifeline:
    """The controller's end: sends beats in its own thread until the connection, or this, is closed."""

    def __init__(self, host: str, channel: paramiko.Channel, silence_s: float = SILENCE_S) -> None:
        """``channel`` runs `host_end`. Raises HostError if it cannot."""
        self._channel = channel
        self._closing = threading.Event()
        channel.settimeout(silence_s)
        output = b""
        try:
            while not output.endswith(b"alive\n") and (chunk := channel.recv(200)):  # a login shell may greet before
                output += chunk
        except (OSError, paramiko.SSHException) as error:
            output += str(error).encode()
        if not output.endswith(b"alive\n"):
            message = (output + channel.recv_stderr(400)).decode(errors="replace").strip()
            raise HostError(
                f"{host}: no lifeline: {message or 'it printed nothing'}", remedy="is `bash` installed there?"
            )
        for work in (self._beat, self._listen):
            threading.Thread(target=work, name=f"lifeline of {host}", daemon=True).start()

    def _beat(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while not self._closing.wait(BEAT_S):
                self._channel.sendall(b"alive\n")

    def _listen(self) -> None:
        """Wait for each answer in a separate thread: sending a beat may block if the other end no longer reads."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while self._channel.recv(200):
                pass
        if not self._closing.is_set():
            self._channel.get_transport().close()

    def close(self) -> None:
        """Stop the beats: the connection is being closed."""
        self._closing.set()
