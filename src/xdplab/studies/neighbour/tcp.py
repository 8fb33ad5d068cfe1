"""TCP through the link: addresses that last as long as this program, iperf3 at both ends, and what it prints.

Latency is TCP's own smoothed round-trip time, which iperf3 reads from the sender's kernel (tcpi_rtt). It is taken while
little is sent, so that no queue stands: at 10 Mbit/s, in writes of two segments, each of which is acknowledged at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from xdplab.deploy.settings import FEATURES, read
from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.proc import STAT, parse_link, parse_procstat
from xdplab.formats.reading import as_list, as_object, count_field, json_of, number_field, refuse, text_field
from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder
from xdplab.labs.base import Lab

TOOL = "iperf3"
DUT_ADDRESS, TG_ADDRESS = "198.18.43.1", "198.18.43.2"
"""Of the range that is kept for measuring devices (RFC 2544, RFC 6890): no host has one of its own."""
FULL, PACED, BEFORE, AFTER = "full.json", "paced.json", "stat-before.txt", "stat-after.txt"
"""The raw files of a trial."""
RTT_S = 1
"""iperf3 takes whole seconds, and 0 for ever."""
_PACED = ("--interval", "0.1", "--bitrate", "10M", "--length", "2896", "--no-delay")
CONNECT_MS = 3000
_MORE_S = 15.0
_OFFLOADS = {"tso": "tx-tcp-segmentation", "gso": "gso", "gro": "gro", "lro": "lro"}
"""Their short names, and those of `deploy.settings`."""

_ADDRESS = """\
mine=$1 other=$2 port=$3 mac=$4
let_go() { ip neighbor del "$other" dev "$port"; ip address del "$mine/30" dev "$port"; }
ip link set dev "$port" up && ip address add "$mine/30" dev "$port" || exit 3
ip neighbor replace "$other" lladdr "$mac" dev "$port" nud permanent || exit 3
"""
_SERVER = """\
exec 8< <(exec taskset --cpu-list "$2" iperf3 --server --bind "$1" --forceflush 2>&1)
server=$!
let_go() { kill "$server" 2>/dev/null; true; }
line=
until [[ $line == *listening* ]]; do IFS= read -r -t 5 line <&8 || { echo "$line" >&2; exit 3; }; done
"""


@dataclass(frozen=True)
class Transfer:
    """One run of iperf3: what the receiver got in how many seconds of its clock, and the sender's view."""

    received_bytes: int
    seconds: float
    rtt_us: int
    retransmits: int
    congestion: str


def parse_iperf3(data: bytes | str) -> Transfer:
    """Return what `iperf3 --json` of a client printed. Raises FormatError; HostError with iperf3's own error."""
    whole = as_object(json_of(data, TOOL), TOOL)
    if "error" in whole:
        raise HostError(f"{TOOL}: {text_field(whole, 'error', TOOL)}")
    end = as_object(whole.get("end"), TOOL)
    received, streams = as_object(end.get("sum_received"), TOOL), as_list(end.get("streams"), TOOL)
    if len(streams) != 1:
        refuse(TOOL, "not one stream")
    sender = as_object(as_object(streams[0], TOOL).get("sender"), TOOL)
    return Transfer(
        received_bytes=count_field(received, "bytes", TOOL),
        seconds=number_field(received, "seconds", TOOL),
        rtt_us=count_field(sender, "mean_rtt", TOOL),
        retransmits=count_field(sender, "retransmits", TOOL),
        congestion=text_field(end, "sender_tcp_congestion", TOOL),
    )


def require_tool(lab: Lab) -> None:
    """Raise UnsupportedError naming the host that lacks iperf3, and its package."""
    for host in (lab.dut, lab.tg):
        if not host.run([TOOL, "--version"], check=False).ok:
            raise UnsupportedError(
                f"{host.name}: there is no {TOOL}, which sends TCP", remedy=f"apt install {TOOL} (`xdplab doctor`)"
            )


def hold_addresses(lab: Lab, stack: ExitStack) -> None:
    """Give both ends an address, and each other's MAC, until the stack closes or this program ends."""
    ends: tuple[tuple[Host, tuple[str, ...]], ...] = (
        (lab.dut, (DUT_ADDRESS, TG_ADDRESS, lab.dut_interface, lab.tg_mac)),
        (lab.tg, (TG_ADDRESS, DUT_ADDRESS, lab.tg_interface, lab.dut_mac)),
    )
    for host, arguments in ends:
        stack.enter_context(Held(host, Holder("the address of its port", _ADDRESS, arguments)))


def transfer(lab: Lab, seconds: int, keep: Callable[[str, bytes], object]) -> None:
    """Send from the TG to the DUT: as fast as TCP can, between two readings of the DUT's CPUs, then little, for the
    round-trip time. ``keep`` gets each raw file. Raises HostError if a transfer does not come to its end;
    UnsupportedError if it did not come through the DUT's port.
    """
    cpus = lab.cpus()
    server = Holder(f"{TOOL}'s server", _SERVER, (DUT_ADDRESS, _listed(cpus.dut)))
    client = ["taskset", "--cpu-list", _listed(cpus.tg), TOOL, "--client", DUT_ADDRESS, "--bind", TG_ADDRESS]
    client += ["--json", "--connect-timeout", str(CONNECT_MS), "--time"]

    def send(name: str, for_s: int, *options: str) -> int:
        done = lab.tg.run([*client, str(for_s), *options], deadline_s=for_s + _MORE_S, check=False)
        keep(name, done.stdout)
        if done.timed_out:
            raise HostError(f"{lab.tg.name}: TCP came to a standstill")
        return parse_iperf3(done.stdout or done.require().stdout).received_bytes

    before = _port_bytes(lab)
    with Held(lab.dut, server):
        keep(BEFORE, _stat(lab.dut))
        received = send(FULL, seconds)
        keep(AFTER, _stat(lab.dut))
        send(PACED, RTT_S, *_PACED)
    require_through_port(lab, _port_bytes(lab) - before, received)


def require_through_port(lab: Lab, port_bytes: int, received_bytes: int) -> None:
    """Raise UnsupportedError if the DUT's port had less than TCP received: between ports of one network namespace
    the kernel sends through lo, past the program.
    """
    if port_bytes < received_bytes:
        raise UnsupportedError(
            f"{lab.name}: TCP received {received_bytes} bytes, of which {lab.dut_interface} had {port_bytes}",
            remedy="put the two ports into two network namespaces, or on two machines",
        )


def _port_bytes(lab: Lab) -> int:
    shown = lab.dut.run(["ip", "-s", "-j", "link", "show", "dev", lab.dut_interface])
    return parse_link(shown.stdout).rx.bytes


def _listed(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def _stat(host: Host) -> bytes:
    return host.run(["cat", STAT]).stdout


def busy_ticks(stat: bytes) -> int:
    """Return the ticks in which CPUs worked: all of them, as softirq work for the port may be on a sender's CPU."""
    return sum(row.busy for row in parse_procstat(stat))


def offloads(host: Host, interface: str) -> str:
    """Return which of an interface's offloads of TCP are on: they change with what is attached natively to a veth."""
    features = read(FEATURES, host, interface)
    return " ".join(name for name, feature in _OFFLOADS.items() if features.get(feature)) or "none"
