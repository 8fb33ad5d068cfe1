"""Hosts: run, start, put and get on one machine, local or over SSH."""

from xdplab.hosts.base import Host, Process, Result
from xdplab.hosts.local import LocalHost
from xdplab.hosts.ssh import SshAddress, SshHost

__all__ = ["Host", "LocalHost", "Process", "Result", "SshAddress", "SshHost"]
