"""The lock of a server's port: a file on the host, where other controllers see it; it is released when its holder ends.

The holder is a shell on the host, at the end of the controller's connection. The controller sends it a line every few
seconds, and it stores the time of each on the host. A hanging holder keeps the lock but stores no new time: then
`steal` takes the lock.
"""

from __future__ import annotations

import contextlib
import os
import time

from xdplab.errors import HostError, LabError
from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder

BEAT_S = 5.0
SILENT_S = 60
"""Seconds without a note after which a lock may be stolen."""
LET_GO_S = 40.0
"""Seconds that a host may take to see that our own lost connection is dead."""
LOOK_S = 1.0

# $1 the lock, $2 who, $3 seconds of silence after which it is stolen, or never. Ports of one name in two network
# namespaces of a host are two ports: the file's name carries the namespace's number. Built-in commands only, once it is
# held: nothing is started on the host while a window is measured. Only a process that has the lock open is killed.
# Whoever can open a lock can hold it for ever: no other user can.
_LOCK = """
space=$(stat -L -c %i /proc/self/ns/net) || exit 1
set -- "${1%.lock}.$space.lock" "$2" "$3"
umask 077; exec 9>>"$1" && chmod 600 "$1" || exit 1
if ! flock -n 9; then
    silent=$(($(date +%s) - $(stat -c %Y "$1.beat" 2>/dev/null || echo 0)))
    read -r holder <"$1.pid"
    if [ "$3" != never ] && [ "$silent" -ge "$3" ] && [ "/proc/$holder/fd/9" -ef "$1" ]; then
        kill -s KILL "$holder"
        flock -w 5 9 || { echo "taken $silent $(cat "$1.who")"; exit; }
    else
        echo "taken $silent $(cat "$1.who")"
        exit
    fi
fi
echo "$2" >"$1.who"; echo $$ >"$1.pid"; echo >"$1.beat"
lock=$1
beat() { echo >"$lock.beat"; }
"""


class PortLock:
    """One port, held until `close`. Each holder has a unique token, by which it recognises its own lost lock."""

    def __init__(self, host: Host, path: str, who: str, *, steal: bool = False) -> None:
        """Raises LabError naming the holder, and how long it has been silent."""
        self._host, self._path = host, path
        self._who = f"{who} on {os.uname().nodename}"
        self._held = self._take("never" if not steal else str(SILENT_S))

    def _take(self, silent: str) -> Held:
        """Take it, also from a holder that has been ``silent`` for so many seconds."""
        self._host.run(["mkdir", "-p", "-m", "755", self._path.rpartition("/")[0]])
        holder = Holder(f"the lock {self._path}", _LOCK, (self._path, self._who, silent), beat_s=BEAT_S)
        return Held(self._host, holder, _refuse)

    def regain(self) -> None:
        """Take it again after its connection was lost. Raises LabError if another holder has it meanwhile."""
        try:
            self._held.require()
        except HostError:
            self._held = self._again()

    def _again(self) -> Held:
        """Until the host notices that the old connection is dead, that connection still holds the lock."""
        until = time.monotonic() + LET_GO_S
        while True:
            try:
                return self._take("never")
            except _Taken as taken:
                if taken.who != self._who or time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Release it; harmless if the connection is gone."""
        with contextlib.suppress(HostError):
            self._held.close()


def _refuse(line: str) -> None:
    """Raise the error for what the script prints of a lock that another holder has."""
    _, silent_s, who = line.split(" ", 2)
    raise _Taken(who, int(silent_s))


class _Taken(LabError):
    """Another holder has the lock."""

    def __init__(self, who: str, silent_s: int) -> None:
        self.who = who
        silent = f", silent for {silent_s} s" if silent_s >= SILENT_S else ""
        way = "it is dead or hangs: --steal takes the lab from it" if silent else "wait for it"
        super().__init__(f"a run is going on in this lab: {who}{silent}", remedy=f"{way}, or use another lab")
