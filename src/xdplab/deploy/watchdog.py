"""If the controller disappears, the host puts its device back by itself: by a script that lies there, and a watchdog.

The script holds plain commands, because nothing of ours is left to run them. It cannot verify as `restore` does. What
its last commands were refused, with the tools' words, lies beside it for whoever comes next (`said_path`).
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
"""Seconds without a word from the controller after which it counts as gone; a closed connection counts at once."""

BEATS = 6
"""How often it hears of us within its patience."""
LIFE_S = 14 * 86400.0
ANSWER_S = 30.0  # a guest under emulation, on a busy machine

# What the dead controller's other tools hold (a program, sockets) is let go within this time.
_RELEASE_S = 1

_SCRIPT = """\
#!/bin/sh
# {interface} as it was: written by xdplab before it changed anything. Running it twice is harmless.
# It prints what it could not do.
here="$(cat /proc/sys/kernel/random/boot_id /sys/class/net/{name}/ifindex /sys/class/net/{name}/address | xargs)"
[ "$here" = {identity} ] || exit 0
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

# Ends quietly when told; otherwise acts, unless a later one has taken over. It says that it lives when asked.
# A later one waits for a deed that has begun: what it sets afterwards stays set.
_WATCHDOG = """
umask 077; : >>"$3.lock" && chmod 600 "$3.lock"  # whoever can open a lock can hold it for ever
{ flock 9 && echo "$1" >"$3"; } 9>"$3.lock" && echo watching
while read -r -t "$4" word; do [ "$word" = done ] && exit 0; echo watching; done
sleep "$5"
{ flock 9; [ "$(cat "$3")" = "$1" ] && sh "$2" >"$2.said" 2>&1; } 9>"$3.lock"
"""


def restore_script(interface: str, identity: str, values: Mapping[str, Value], table: Sequence[Setting]) -> str:
    """Return a shell script that sets ``values`` of the device that has this identity, and of no other."""
    lines = [_line(command) for setting in table for command in _commands(setting, interface, values)]
    return _SCRIPT.format(
        interface=interface,
        name=shlex.quote(interface),
        identity=shlex.quote(identity),
        forward="\n".join(lines) or ":",
        backward="\n".join(reversed(lines)) or ":",
    )


def _commands(setting: Setting, interface: str, values: Mapping[str, Value]) -> list[Command]:
    """One value per command: a driver refuses a whole line for one word it does not like."""
    own = [(key.partition(".")[2], value) for key, value in values.items() if key.partition(".")[0] == setting.prefix]
    return [command for name, value in own for command in setting.commands(interface, {name: value})]


def _line(command: Command) -> str:
    source = f"printf %s {shlex.quote(command.stdin)} | " if command.stdin else ""
    return f"    {source}put {shlex.join(command.argv)}"


def script_path(interface: str, state_dir: str) -> str:
    """Return where a device's script lies on its host."""
    return str(PurePosixPath(state_dir) / f"device-{interface}.sh")


def said_path(interface: str, state_dir: str) -> str:
    """Return where a host keeps what a watchdog could not put back, a line each."""
    return f"{script_path(interface, state_dir)}.said"


class Watchdog:
    """Watches over one device that `remember` has remembered, as a process on its host.

    A thread tells it that we live, however long one trial or one search takes. ``require`` asks whether it does, too:
    one that has acted has changed the device. ``dismiss`` ends it without a deed, once the device is as it was.
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
        with contextlib.suppress(HostError):  # `require` says so, to those whom it concerns
            while not self._closing.wait(every_s):
                self.require()

    def require(self) -> None:
        """Raise HostError unless it still watches: else it has reset the device, and what is measured is not as set."""
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
                f"{self._host.name}: the watchdog over {self._interface} is gone, and has put the device back: {why}",
                remedy="the trial is tried again; `xdplab resume` goes on with a run",
            )

    def dismiss(self) -> None:
        """End it; harmless where the connection is gone (then it acts)."""
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
