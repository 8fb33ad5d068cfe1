"""A link of two netns hosts whose DUT's end is the primary of a netkit pair (Linux 6.7 on).

Runs as a part of keepers' scripts, standard library only. A netkit takes no XDP program, sends no live frames, and the
frames of an AF_XDP socket lack what a redirect needs (their network header). So the TG keeps a veth, whose peer hands
each frame on to the netkit and back: TG vg0 – vf0 ⇄ nk0 – vd0 DUT. A bridge does so, as generic XDP passes by what tc
has redirected. Linux runs a program of the primary that is attached for its peer as nk0 sends: on the sender's CPU.

Messages as in rtnetlink(7) and linux/if_link.h: iproute2 before 6.7 knows no netkit.
"""

import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdplab.labs.keeper import KeeperError
    from xdplab.labs.netns import host as netns_host
    from xdplab.labs.netns import keeper as netns_keeper
else:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from keeper import KeeperError
    from netns import host as netns_host
    from netns import keeper as netns_keeper

PEER = "nk0"
"""The TG's end of the netkit."""

# The bridge learns no address: a program may send frames back with those that they came with. Only a veth with GRO
# receives live frames.
MIDDLE = f"""
ip -batch - <<END && ethtool -K vf0 gro on
link add {{tg}} type veth peer vf0
link add br0 type bridge mcast_snooping 0
link set vf0 master br0
link set {PEER} master br0
link set vf0 type bridge_slave learning off
link set {PEER} type bridge_slave learning off
link set vf0 up
link set {PEER} up
link set br0 up
END
"""
REMEDY = "Linux 6.7 and newer have netkit, if built with CONFIG_NETKIT"

RTM_NEWLINK, NEW_ONE = 16, 0x605  # request, acknowledged, created, not there yet
IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_PID = 3, 18, 19
INFO_KIND, INFO_DATA = 1, 2
NETKIT_PEER_INFO, NETKIT_MODE, L2 = 1, 5, 0
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
WORDS_AT = 16 + 4 + 16 + 4  # behind the headers of answer, error, request and attribute


class NetkitKeeper(netns_keeper.NetnsKeeper):
    """Keeps two namespaces with such a link."""

    def join(self, ends: dict[str, str], first_index: int) -> None:
        """Make the link; ``ends`` has the names of its ends. Raises KeeperError with the kernel's words."""
        dut, tg = (self.hosts[name].process.pid for name in ("dut", "tg"))
        make_pair((ends["dut"], first_index, dut), (PEER, first_index + 1, tg))
        lines = MIDDLE.format(tg=ends["tg"])
        try:
            netns_host.command("nsenter", "--target", str(tg), "--net", "sh", "-c", lines)
        except RuntimeError as error:
            raise KeeperError(f"no link to the netkit: {error}") from None

    def second_link(self, _connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
        """There is none. Raises KeeperError where it is asked for."""
        if request.get("make"):
            raise KeeperError("a lab with a netkit has one link", "plan `directions` for another lab")
        return {}


def make_pair(primary: tuple[str, int, int], peer: tuple[str, int, int]) -> None:
    """Make a netkit pair of mode L2, each end (name, index, a process in its namespace). Raises KeeperError."""
    data = _attribute(NETKIT_MODE, struct.pack("I", L2)) + _attribute(NETKIT_PEER_INFO, _end(*peer))
    kind = _attribute(INFO_KIND, b"netkit\0") + _attribute(INFO_DATA, data)
    body = _end(*primary) + _attribute(IFLA_LINKINFO, kind)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK):
            kernel.setsockopt(SOL_NETLINK, option, 1)
        kernel.send(struct.pack("IHHII", 16 + len(body), RTM_NEWLINK, NEW_ONE, 1, 0) + body)
        answer = kernel.recv(1 << 16)
    if error := struct.unpack_from("i", answer, 16)[0]:
        words = answer[WORDS_AT:].partition(b"\0")[0].decode() or os.strerror(-error)
        raise KeeperError(f"no netkit pair: {words}", REMEDY)


def _end(name: str, index: int, process: int) -> bytes:
    link = struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)
    return link + _attribute(IFLA_IFNAME, f"{name}\0".encode()) + _attribute(IFLA_NET_NS_PID, struct.pack("I", process))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
