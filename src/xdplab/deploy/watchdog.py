"""If the controller disappears, the host restores its device by itself, with a script and a watchdog.

The script has plain commands, because no xdplab code is left to run. It cannot verify as `restore` does. The messages
of commands that failed are stored beside it for the next run (`said_path`).
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self

from xdplab.deploy.settings import Command, Setting, Value
from xdplab.errors import HostError
from xdplab.hosts.base import Host, Process

PATIENCE_S = 1800
"""Seconds of silence after which the controller counts as gone; after a closed connection it does at once."""

BEATS = 6
"""How many beats the controller sends within that time."""
LIFE_S = 14 * 86400.0
ANSWER_S = 30.0  # a guest under emulation, on a busy machine

# The dead controller's other tools release their program and sockets within this time.
_RELEASE_S = 1

_HEAD = """\
#!/bin/sh
# {interface} as it was: written by xdplab before it changed anything. Running it twice is harmless.
# It prints what it could not do.
here="$(cat /proc/sys/kernel/random/boot_id /sys/class/net/{name}/ifindex /sys/class/net/{name}/address | xargs)"
[ "$here" = {identity} ] || exit 0
"""
_BODY = """\
backward() {{
{backward}
}}
forward() {{
{forward}
}}
# What a driver has switched off by itself: the kernel looks at a wish that has changed, and at no other.
ask_anew() {{
    ethtool -k {name} | sed -n 's/^[[:space:]]*\\([^:]*\\): off \\[requested on\\]$/\\1/p' | while read -r feature; do
        ethtool -K {name} "$feature" off
        ethtool -K {name} "$feature" on
    done >/dev/null 2>&1
}}
put() {{
    words=$("$@" 2>&1 >/dev/null) && return
    case $words in *"parameters changed"*|*unmodified*) return ;; esac  # it is so already
    echo "$*: $words" | head -n 1
}}
{{ backward; forward; ask_anew; }} >/dev/null
sleep 0.2
# The queues of AF_XDP sockets stay taken for seconds while frames flood in.
for again in 1 2 3 4 5 6 7 8; do
    left=$(backward)
    case $left in *"AF_XDP sockets"*) sleep 1 ;; *) break ;; esac
done
[ -z "$left" ] || echo "$left"
"""

# It ends quietly when told; otherwise it restores the device, unless a later watchdog has taken over. It answers when
# asked whether it lives. A later watchdog waits for a restore that has begun, so its own settings stay. A disk that has
# become full or read-only keeps it from telling what it could not restore, but not from restoring.
_WATCHDOG = """
mkdir -p "${3%/*}"; umask 077
exec 9>>"$3.lock" && chmod 600 "$3.lock" || exit 1  # whoever can open a lock can hold it for ever
flock 9 && echo "$1" >"$3" && flock -u 9 && echo watching
while read -r -t "$4" word; do [ "$word" = done ] && exit 0; echo watching; done
sleep "$5"
flock 9; [ "$(cat "$3")" = "$1" ] || exit
if (: >"$2.said"); then exec >"$2.said" 2>&1; else exec >/dev/null 2>&1; fi
sh "$2"
"""


def restore_script(interface: str, identity: str, values: Mapping[str, Value], table: Sequence[Setting]) -> str:
    """Return a shell script that sets ``values`` only on the device that has this identity."""
    head = _HEAD.format(interface=interface, name=shlex.quote(interface), identity=shlex.quote(identity))
    return head + restore_lines(interface, values, table)


def restore_lines(interface: str, values: Mapping[str, Value], table: Sequence[Setting]) -> str:
    """Return the lines of a shell script that set ``values``, on whatever device has this name."""
    lines = [_line(command) for setting in table for command in _commands(setting, interface, values)]
    return _BODY.format(
        name=shlex.quote(interface),
        forward="\n".join(lines) or ":",
        backward="\n".join(reversed(lines)) or ":",
    )


def _commands(setting: Setting, interface: str, values: Mapping[str, Value]) -> list[Command]:
    """Use one value per command: a driver refuses a whole line for one bad value. Numbers of queues come in one line,
    too: one of combined queues beside separate ones can be refused."""
    own = [(key.partition(".")[2], value) for key, value in values.items() if key.partition(".")[0] == setting.prefix]
    each = [command for name, value in own for command in setting.commands(interface, {name: value})]
    return [*setting.commands(interface, dict(own)), *each] if setting.prefix == "channels" and len(own) > 1 else each


def _line(command: Command) -> str:
    source = f"printf %s {shlex.quote(command.stdin)} | " if command.stdin else ""
    return f"    {source}put {shlex.join(command.argv)}"


def script_path(interface: str, state_dir: str) -> str:
    """Return the path of a device's script on its host."""
    return str(PurePosixPath(state_dir) / f"device-{interface}.sh")


def said_path(interface: str, state_dir: str) -> str:
    """Return the path of the file in which a host lists what its watchdog could not restore, one per line."""
    return f"{script_path(interface, state_dir)}.said"


class Watchdog:
    """Watches over one device that `remember` has remembered, as a process on its host.

    A thread sends it beats, however long one trial or one search takes. ``require`` checks that it is alive, because a
    watchdog that has acted has changed the device. ``dismiss`` ends it without action, once the device is restored.
    """

    def __init__(self, host: Host, interface: str, state_dir: str, *, patience_s: int = PATIENCE_S) -> None:
        owner = str(PurePosixPath(state_dir) / f"device-{interface}.owner")
        words = [secrets.token_hex(8), script_path(interface, state_dir), owner, str(patience_s), str(_RELEASE_S)]
        self._host, self._interface = host, interface
        self._process: Process = host.start(["bash", "-c", _WATCHDOG, "bash", *words], deadline_s=LIFE_S)
        if self._process.read_line(ANSWER_S) != "watching":
            raise HostError(f"{host.name}: no watchdog over {interface}: {self._process.wait(1).error_text}")
        self._asking, self._closing = threading.Lock(), threading.Event()
        threading.Thread(target=self._beat, args=(patience_s / BEATS,), daemon=True).start()

    def _beat(self, every_s: float) -> None:
        with contextlib.suppress(HostError):  # `require` reports it to its callers
            while not self._closing.wait(every_s):
                self.require()

    def require(self) -> None:
        """Raise HostError unless it is alive: otherwise it has reset the device during the measurement."""
        with self._asking:
            try:
                self._process.write_line("alive")
                answer = self._process.read_line(ANSWER_S)
            except HostError as error:
                answer, why = None, error.message
            else:
                why = "it has ended"
        if answer != "watching":
            raise HostError(
                f"{self._host.name}: the watchdog over {self._interface} is gone, and has restored the device: {why}",
                remedy="the trial is repeated; `xdplab resume` continues a run",
            )

    def dismiss(self) -> None:
        """End it; harmless if the connection is gone (then it acts)."""
        self._closing.set()
        with contextlib.suppress(HostError):
            self._process.write_line("done")
            self._process.wait(ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
