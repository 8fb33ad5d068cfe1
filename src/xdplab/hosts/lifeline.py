"""Both ends of a connection notice when the other is gone, even if no packet says so.

A process on the host, under the connection's own sshd, is sent a line every few seconds and sends it back. Where none
comes for `SILENCE_S`, it ends that sshd: every command of the connection then finds its input closed, and lets go of
what it holds (programs, locks, devices). Where nothing comes back for as long, our end closes the connection: whoever
waits for an answer is told.
"""

from __future__ import annotations

import contextlib
import threading

import paramiko

from xdplab.errors import HostError

SILENCE_S = 15.0
"""Seconds of silence after which either end considers the other gone."""
BEAT_S = 3.0

# Built-in commands only, once it stands: nothing is started on the host while a window is measured. A machine that
# stood still itself has both at once, the end of its patience and a line that waits: hence the second look. The sshd is
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
    """Return the command to run on the host, as the user who logged in."""
    return ["bash", "-c", _HOST_END, "xdplab-lifeline", f"{silence_s:g}"]


class Lifeline:
    """Our end: beats in a thread of its own until the connection, or this, is closed."""

    def __init__(self, host: str, channel: paramiko.Channel, silence_s: float = SILENCE_S) -> None:
        """``channel`` runs `host_end`. Raises HostError if it cannot."""
        self._channel = channel
        self._closing = threading.Event()
        channel.settimeout(silence_s)
        try:
            said = channel.recv(200)
        except (OSError, paramiko.SSHException) as error:
            said = str(error).encode()
        if said != b"alive\n":
            words = (said + channel.recv_stderr(400)).decode(errors="replace").strip()
            raise HostError(f"{host}: no lifeline: {words or 'it said nothing'}", remedy="is `bash` installed there?")
        for work in (self._beat, self._listen):
            threading.Thread(target=work, name=f"lifeline of {host}", daemon=True).start()

    def _beat(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while not self._closing.wait(BEAT_S):
                self._channel.sendall(b"alive\n")

    def _listen(self) -> None:
        """Wait for each answer in a thread of its own: sending a beat may block once the other end reads no more."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while self._channel.recv(200):
                pass
        if not self._closing.is_set():
            self._channel.get_transport().close()

    def close(self) -> None:
        """Stop the beats: the connection is being closed."""
        self._closing.set()
