"""A host's kernel settings that a run changes: real-time throttling, the fair server, and the network's.

They are restored however the run ends.

A SCHED_FIFO sender may run for 950 of each 1,000 ms (`sched_rt_runtime_us`), and from Linux 6.12 on each CPU's fair
server also reserves 50 ms for other tasks. Both affect the whole machine: the last of the runs that switched them off
restores them. A process on the host keeps them off and restores them when its input closes, which happens however this
program ends. If that process is killed, a file has the former values and their boot: the next run, or `xdplab restore`,
restores them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdplab.errors import HostError
from xdplab.hosts import BASH, Host
from xdplab.hosts.held import Held, Holder

SWITCHES = {
    "/proc/sys/kernel/sched_rt_runtime_us": "-1",
    "/sys/kernel/debug/sched/fair_server/cpu*/runtime": "0",
}
"""Files of the kernel (a pattern may match none), and the value that switches each off."""

LOCKED = "locked"
"""The record for a file that root cannot read in a locked-down kernel: the file stays unchanged."""

FOLDER = "/var/lib/xdplab/throttling"
"""A folder of root, shared by all labs of a machine, because their /run and /tmp are private."""

# Locks: `guard` for a change; `holders` is shared by all processes that hold the switches off. Only root can open them,
# because a process that can open a lock can hold it for ever.
_SCRIPT = """
task=$1 folder=$2; shift 2
boot=$(cat /proc/sys/kernel/random/boot_id)
umask 022; mkdir -p "${folder%/*}"; umask 077
mkdir -p "$folder" && chmod 700 "$folder" && exec 8>>"$folder/guard" 9>>"$folder/holders" || exit 3
put_back() {
    [ -f "$folder/before" ] || return 1
    { read -r then; [ "$then" = "$boot" ] && while read -r file was; do printf %s "$was" >"$file"; done
    } <"$folder/before"
    rm -f "$folder/before"
}
flock 8
left=nothing
flock -n 9 && put_back && left=found
[ "$task" = put_back ] && { echo "$left"; exit 0; }
files=() offs=()
while [ $# -gt 1 ]; do
    for file in $1; do
        [ -f "$file" ] || continue
        if [ -n "$(cat "$file" 2>/dev/null)" ]; then files+=("$file") offs+=("$2"); else echo "$file $2 locked"; fi
    done
    shift 2
done
if [ ! -f "$folder/before" ]; then
    # On a full disk nothing is switched off.
    { echo "$boot" && for file in "${files[@]}"; do echo "$file $(cat "$file")" || exit 3; done
    } >"$folder/before.new" && mv "$folder/before.new" "$folder/before" || exit 3
fi
flock -s 9
let_go() { flock 8; flock -n 9 && put_back; flock -u 9; flock -u 8; }
for i in "${!files[@]}"; do
    printf %s "${offs[$i]}" >"${files[$i]}"
    echo "${files[$i]} ${offs[$i]} $(cat "${files[$i]}")"
done
flock -u 8
"""


@contextmanager
def unthrottled(
    host: Host, *, folder: str = FOLDER, switches: dict[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Hold the switches of ``host`` off in this block; gives the current value of each file.

    Raises HostError if one of them cannot be switched off.
    """
    arguments = [text for switch in (SWITCHES if switches is None else switches).items() for text in switch]
    values: dict[str, str] = {}

    def take(line: str) -> None:
        file, off, values[file] = line.split(" ")
        if values[file] not in (off, LOCKED):
            raise HostError(
                f"{host.name}: {file} stays {values[file]}: real-time throttling cannot be switched off",
                remedy="remove `throttling: off` from the plan",
            )

    with Held(host, Holder("the switch of real-time throttling", _SCRIPT, ("hold", folder, *arguments)), take):
        yield values


def put_back(host: Host, *, folder: str = FOLDER) -> bool:
    """Restore what a killed run left switched off. Returns whether there was anything; harmless during a run.

    Raises HostError.
    """
    return host.run([*BASH, _SCRIPT, "bash", "put_back", folder]).text.strip() == "found"


# Some files cannot be read, or only be written, and a device may be gone. `ip_forward` sets others: hence the rounds.
_SYSCTLS = """
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
    """Put the host's IPv4 and IPv6 settings, such as forwarding, back when the block ends: commands of a plan change
    them.

    Raises HostError naming what it cannot put back.
    """
    with Held(host, Holder("the former network settings", _SYSCTLS)):
        yield
