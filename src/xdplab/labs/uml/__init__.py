"""The lab in a user-mode Linux: times of the BPF interpreter and of kernel modules, without root."""

from xdplab.labs.guests import arrangement
from xdplab.labs.kept import require_name
from xdplab.labs.uml.lab import DEFAULT, KEEPERS, UmlLab, open_lab, up

__all__ = ["DEFAULT", "KEEPERS", "UmlLab", "arrangement", "down", "open_lab", "require_name", "status", "up"]

down, status = KEEPERS.down, KEEPERS.status
