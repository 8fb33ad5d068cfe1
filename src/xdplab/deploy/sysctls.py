"""What a plan's commands change in a host's network settings, such as forwarding, is put back after the run.

A process in the host's network namespace remembers the values and writes those back that differ when its input closes,
which happens however this program ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdplab.errors import HostError
from xdplab.hosts import Host

_ANSWER_S = 30.0
_HOLD_S = 14 * 86400.0

# Some files cannot be read, or only be written, and a device may be gone. `ip_forward` sets others: hence the rounds.
_SCRIPT = """
cd /proc/sys/net && export LC_ALL=C || exit 3
now() { grep -rs '' ipv4 ipv6 | sort; }
before=$(now)
changed() { comm -13 <(now) <(echo "$before") | while IFS=: read -r file was; do
    [ -w "$file" ] && echo "$file:$was"
done; }
put_back() {
    for round in 1 2 3; do
        changed | while IFS=: read -r file was; do printf '%s\\n' "$was" 2>/dev/null >"$file"; done
    done
    left=$(changed)
    [ -z "$left" ] || { echo "not put back: $left" >&2; exit 1; }
}
trap put_back EXIT
trap 'exit 0' TERM HUP INT
echo held
cat >/dev/null
"""


@contextmanager
def kept_sysctls(host: Host) -> Iterator[None]:
    """Put the host's IPv4 and IPv6 settings back when the block ends. Raises HostError naming what it cannot."""
    holder = host.start(["bash", "-c", _SCRIPT], deadline_s=_HOLD_S)
    try:
        if holder.read_line(_ANSWER_S) != "held":
            raise HostError(f"{host.name}: its network settings cannot be read: {holder.wait(_ANSWER_S).error_text}")
        yield
    finally:
        holder.close_stdin()
        ended = holder.wait(_ANSWER_S)
    if not ended.ok:
        raise HostError(f"{host.name}: network settings are not as before the run: {ended.error_text[-400:]}")
