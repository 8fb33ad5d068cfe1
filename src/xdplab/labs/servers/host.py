"""A server of an inventory as a `Host`: through a proxy command and through sudo if the inventory says so."""

from __future__ import annotations

import shlex
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import paramiko

from xdplab.errors import HostError
from xdplab.hosts.lifeline import SILENCE_S
from xdplab.hosts.ssh import SshAddress, SshHost
from xdplab.labs.servers.inventory import Machine

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
