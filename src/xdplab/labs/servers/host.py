"""A server of an inventory as a `Host`: through a proxy command, and through sudo if the inventory says so.

Also the commands that a run executes as root on a server, and the sudoers drop-in that allows exactly these. A user
with this drop-in has root's power there: shells run scripts, `tee` writes files, `make` compiles code that then runs as
root. It prevents other commands, logins and options by mistake, and documents on the server what a run needs.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import HostError
from xdplab.hosts.lifeline import SILENCE_S
from xdplab.hosts.paramiko_alone import paramiko
from xdplab.hosts.process import KILL_AFTER_S
from xdplab.hosts.ssh import KILL_GROUP, TELL_GROUP, SshAddress, SshHost
from xdplab.labs.servers.inventory import Inventory, Machine, TrafficMachine

RETURNS_S = 900.0
"""Seconds in which a server that is lost may come back: a reboot with memory tests takes ten minutes."""

SUDO = ("sudo", "-n", "--")


class SudoHost(SshHost):
    """A host whose user is not root: every command and every file goes through sudo."""

    def channel(self, argv: Sequence[str]) -> paramiko.Channel:
        return super().channel([*SUDO, *argv])


def reach(name: str, machine: Machine) -> SshHost:
    """Connect to a server. Raises HostError for an unknown or changed host key, a refused login, or sudo's refusal."""
    address = SshAddress(
        machine.host,
        user=machine.user,
        port=machine.port,
        key=Path(machine.key),
        host_key=machine.host_key,
        known_hosts=Path(machine.known_hosts) if machine.known_hosts else None,
        connect=(lambda: _through(name, machine.proxy)) if machine.proxy else None,
        silence_s=SILENCE_S,
        returns_s=RETURNS_S,
    )
    host = (SudoHost if machine.sudo else SshHost)(name, address)
    if machine.sudo:
        _require_sudo(host, machine)
    return host


def _through(name: str, proxy: Sequence[str]) -> socket.socket:
    """Return one end of a socket whose other end is the proxy command's standard input and output."""
    ours, its = socket.socketpair()
    try:
        # In its own session: Ctrl-C must not reach it, because xdplab's last messages must still pass.
        subprocess.Popen(list(proxy), stdin=its.fileno(), stdout=its.fileno(), start_new_session=True)
    except OSError as error:
        ours.close()
        raise HostError(f"{name}: proxy `{shlex.join(proxy)}`: {error.strerror}") from error
    finally:
        its.close()
    return ours


def _require_sudo(host: SshHost, machine: Machine) -> None:
    result = host.run(["true"], check=False)
    if not result.ok:
        host.close()
        raise HostError(
            f"{host.name}: sudo refuses: {result.error_text}",
            remedy=f"`xdplab lab sudoers INVENTORY` prints what {machine.host} needs in /etc/sudoers.d/xdplab; "
            "an update may need it anew",
        )


@dataclass(frozen=True)
class RootCommand:
    """``why``: its purpose in a run. ``only``: the condition under which it is needed; "" for each run."""

    name: str
    why: str
    only: str = ""


DPDK, TUNE = "the TG has MoonGen or testpmd", "`doctor --tune`"
COMMANDS = (
    RootCommand("bash", "the watchdog that puts a device back, the lock of a port"),
    RootCommand("bpftool", "its version, for the manifest"),
    RootCommand("cat", "reads settings, counters and saved states; recorders wait on it"),
    RootCommand("cc", "its version, which is part of the name of what it builds"),
    RootCommand("chmod", "makes built tools executable"),
    RootCommand("clang", "its version, for the manifest"),
    RootCommand("env", "runs make and perf in a separate environment"),
    RootCommand("ethtool", "queues, rings, offloads, coalescing, pause and RSS, read and set"),
    RootCommand("grep", "reads governors, mitigations and the steering of queues"),
    RootCommand("ip", "reads and sets links; shows the attached XDP program"),
    RootCommand("ls", "PCI devices and their interfaces"),
    RootCommand("lscpu", "the CPUs, for the manifest"),
    RootCommand("make", "its version; `env … make` builds xdplab's C tools"),
    RootCommand("mkdir", "folders in the work directory"),
    RootCommand("mktemp", "makes a folder to build in"),
    RootCommand("modprobe", "DPDK's driver of the port", DPDK),
    RootCommand("mv", "moves built tools into place"),
    RootCommand("perf", "its version; events by CPU"),
    RootCommand("readlink", "the driver of a PCI device"),
    RootCommand("rm", "removes saved states and folders that are no longer needed"),
    RootCommand("sar", "its version, for the manifest"),
    RootCommand("sh", "writes files and reads them back; reads counters together; places softirq threads"),
    RootCommand("ss", "finds the port that carries the SSH connection"),
    RootCommand("systemctl", "stops and starts irqbalance", TUNE),
    RootCommand("tar", "unpacks xdplab's C sources"),
    RootCommand("tee", "writes values to /sys and /proc"),
    RootCommand("test", "checks whether a file exists"),
    RootCommand("true", "checks whether sudo works"),
    RootCommand("uname", "kernel and machine"),
)
TOOLS = ("xdpload", "xdpgen", "afxdp_user", "reader")
"""Tools that are built in the work directory and run by their paths."""

_SHELL = "/usr/bin/sh"
_LONGEST = 1024  # of a regular expression in sudoers


def sudoers(inventory: Inventory) -> dict[str, str]:
    """Return the drop-in of each server whose user is not root, by its address. It needs sudo 1.9.10 or newer."""
    machines = {machine.host: machine for machine in (inventory.dut, inventory.tg) if machine.sudo}
    return {host: drop_in(machine, inventory.work_dir) for host, machine in machines.items()}


def drop_in(machine: Machine, work_dir: str) -> str:
    """Return the text of /etc/sudoers.d/xdplab for one server."""
    names = "|".join([*(command.name for command in COMMANDS), f"{_literal(work_dir)}/[^ ]+/({'|'.join(TOOLS)})"])
    if isinstance(machine, TrafficMachine) and machine.generator.kind == "moongen":
        names += f"|{_literal(work_dir)}/[^ ]+/moongen[.]sh"
    started = (
        f"^-c {_literal(TELL_GROUP)} xdplab timeout --kill-after={KILL_AFTER_S:g} [0-9]+[.][0-9]+ ({names})( .*)?$"
    )
    ended = f"^-c {_literal(KILL_GROUP)} xdplab [0-9]+ [0-9]*$"
    assert max(map(len, (started, ended))) <= _LONGEST
    return (
        "# What xdplab runs as root: visudo -f /etc/sudoers.d/xdplab. Each command is started below a `timeout` that\n"
        "# ends it at its deadline, and ended as a group.\n"
        f"{machine.user} ALL=(root) NOPASSWD: {_SHELL} {started}\n"
        f"{machine.user} ALL=(root) NOPASSWD: {_SHELL} {ended}\n"
    )


def _literal(text: str) -> str:
    """Return a regular expression for a text. A dollar sign ends one in sudoers, a number sign the line."""
    return re.sub(r"[^\w/ -]", lambda match: "." if match[0] in "\"'#$" else f"[{match[0]}]", text)


def page() -> str:
    """Return the table for the docs."""
    lines = ["| command | why | only where |", "| --- | --- | --- |"]
    lines += [f"| `{command.name}` | {command.why} | {command.only} |" for command in COMMANDS]
    lines += [f"| `{tool}` | built in the work directory, run by its path | |" for tool in TOOLS]
    return "\n".join(lines) + "\n"
