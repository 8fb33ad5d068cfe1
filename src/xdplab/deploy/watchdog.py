"""If the controller disappears, the host restores its device by itself, with a script and a watchdog.

The script has plain commands, because no xdplab code is left to run. It cannot verify as `restore` does. The messages
of commands that failed are stored beside it for the next run (`unrestored_path`).
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from xdplab.deploy.settings import Command, Setting, Value
from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder

PATIENCE_S = 1800
"""Seconds of silence after which the controller counts as gone; after a closed connection it does at once."""

BEATS = 6
"""How many beats the controller sends within that time."""

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

# A later watchdog takes the device over; it waits for a restore that has begun, so that its own settings stay. A disk
# that has become full or read-only keeps this one from telling what it could not restore, but not from restoring.
# Whoever can open a lock can hold it for ever: no other user can.
_WATCHDOG = """
token=$1 script=$2 owner=$3 release=$4
mkdir -p "${owner%/*}"; umask 077
exec 9>>"$owner.lock" && chmod 600 "$owner.lock" && flock 9 && echo "$token" >"$owner" && flock -u 9 || exit 1
let_go() {
    sleep "$release"
    flock 9; [ "$(cat "$owner")" = "$token" ] || exit
    if (: >"$script.said"); then exec >"$script.said" 2>&1; else exec >/dev/null 2>&1; fi
    sh "$script"
}
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
    settings = [
        (key.partition(".")[2], value) for key, value in values.items() if key.partition(".")[0] == setting.prefix
    ]
    each = [command for name, value in settings for command in setting.commands(interface, {name: value})]
    return (
        [*setting.commands(interface, dict(settings)), *each]
        if setting.prefix == "channels" and len(settings) > 1
        else each
    )


def _line(command: Command) -> str:
    source = f"printf %s {shlex.quote(command.stdin)} | " if command.stdin else ""
    return f"    {source}put {shlex.join(command.argv)}"


def script_path(interface: str, state_dir: str) -> str:
    """Return the path of a device's script on its host."""
    return str(PurePosixPath(state_dir) / f"device-{interface}.sh")


def unrestored_path(interface: str, state_dir: str) -> str:
    """Return the path of the file in which a host lists what its watchdog could not restore, one per line."""
    return f"{script_path(interface, state_dir)}.said"


def watch(host: Host, interface: str, state_dir: str, *, patience_s: int = PATIENCE_S) -> Held:
    """Hold the former state of a device that `remember` has remembered, until the device is restored.

    It is dismissed then. A watchdog that has let go has changed the device: `Held.require` tells.
    """
    owner = str(PurePosixPath(state_dir) / f"device-{interface}.owner")
    arguments = (secrets.token_hex(8), script_path(interface, state_dir), owner, str(_RELEASE_S))
    what = f"the former state of {interface}"
    return Held(host, Holder(what, _WATCHDOG, arguments, beat_s=patience_s / BEATS, silence_s=patience_s))
