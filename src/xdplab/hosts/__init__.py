"""Hosts: run, start, put and get on one machine, local or over SSH."""

from xdplab.hosts.base import Host, Process, Result
from xdplab.hosts.local import LocalHost

__all__ = ["Host", "LocalHost", "Process", "Result"]
