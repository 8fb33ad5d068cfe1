"""Labs in QEMU guests: real kernels of a distribution, the netns lab inside."""

from xdplab.labs.vm.lab import DEFAULT, VmLab, arrangement, down, open_lab, status, up

__all__ = ["DEFAULT", "VmLab", "arrangement", "down", "open_lab", "status", "up"]
