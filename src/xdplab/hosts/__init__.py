"""Hosts: run, start, put and get on one machine, local (`local`) or over SSH (`ssh`)."""

from xdplab.hosts.base import Host, Process, Result

__all__ = ["Host", "Process", "Result"]
