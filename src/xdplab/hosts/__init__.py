"""Hosts: run, start, put and get on one machine, local or over SSH."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xdplab.hosts.base import Host, Process, Result

if TYPE_CHECKING:
    from xdplab.hosts.local import LocalHost
    from xdplab.hosts.ssh import SshAddress, SshHost

__all__ = ["Host", "LocalHost", "Process", "Result", "SshAddress", "SshHost"]


def __getattr__(name: str) -> Any:
    """Load a kind of host when it is first used: paramiko takes longer than most commands."""
    if name in __all__:
        module = "local" if name == "LocalHost" else "ssh"
        return getattr(importlib.import_module(f"xdplab.hosts.{module}"), name)
    raise AttributeError(f"module 'xdplab.hosts' has no attribute {name!r}")
