"""What a plan's commands change in a host's network settings, such as forwarding, is put back after the run.

A process in the host's network namespace remembers the values and writes those back that differ when its input closes,
which happens however this program ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder

# Some files cannot be read, or only be written, and a device may be gone. `ip_forward` sets others: hence the rounds.
_SCRIPT = """
cd /proc/sys/net || exit 3
now() { grep -rs '' ipv4 ipv6 | sort; }
before=$(now)
changed() { comm -13 <(now) <(echo "$before") | while IFS=: read -r file was; do
    [ -w "$file" ] && echo "$file:$was"
done; }
let_go() {
    for round in 1 2 3; do
        changed | while IFS=: read -r file was; do printf '%s\\n' "$was" 2>/dev/null >"$file"; done
    done
    left=$(changed)
    [ -z "$left" ] || { echo "$left" >&2; exit 1; }
}
"""


@contextmanager
def kept_sysctls(host: Host) -> Iterator[None]:
    """Put the host's IPv4 and IPv6 settings back when the block ends. Raises HostError naming what it cannot."""
    with Held(host, Holder("the former network settings", _SCRIPT)):
        yield
