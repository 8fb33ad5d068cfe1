"""A program for the port's host: prints what the kernel announces of an interface's XDP. Imports nothing of xdplab.

    python3 -I announced.py INTERFACE

One JSON object: ``features`` by name, ``zc_max_segs``, ``rx_metadata``, ``tx_metadata``; null where the kernel does not
say. The family is netdev of generic netlink (Documentation/netlink/specs/netdev.yaml), from Linux 6.3 on.
"""

import json
import socket
import struct
import sys
from collections.abc import Iterator

NETLINK_GENERIC, GENL_ID_CTRL, NLM_F_REQUEST, NLMSG_ERROR = 16, 16, 1, 2
CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 3, 1, 2
DEV_GET, IFINDEX, FEATURES, ZC_MAX_SEGS, RX_METADATA, XSK_FEATURES = 1, 1, 3, 4, 5, 6
FEATURE_BITS = ("basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg")
RX_BITS, TX_BITS = ("timestamp", "hash", "vlan-tag"), ("timestamp", "checksum", "launch-time-fifo")


def ask(sock: socket.socket, family: int, command: int, attribute: int, value: bytes) -> dict[int, bytes]:
    """Return the attributes of the answer. Raises OSError with the kernel's number."""
    padded = value.ljust(-(-len(value) // 4) * 4, b"\0")
    body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), attribute) + padded
    sock.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST, 1, 0) + body)
    reply = sock.recv(65536)
    length, kind = struct.unpack_from("=IH", reply)
    if kind == NLMSG_ERROR:
        raise OSError(-struct.unpack_from("=i", reply, 16)[0], "refused")
    return dict(attributes(reply[20:length]))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += -(-length // 4) * 4


def bits(answer: dict[int, bytes], attribute: int, names: tuple[str, ...]) -> "list[str] | None":
    if attribute not in answer:
        return None
    (value,) = struct.unpack("=Q", answer[attribute])
    return [name for at, name in enumerate(names) if value >> at & 1]


def announced(interface: str) -> dict[str, object]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as sock:
        try:
            family = ask(sock, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")
            (number,) = struct.unpack("=H", family[CTRL_ATTR_FAMILY_ID])
            index = struct.pack("=I", socket.if_nametoindex(interface))
            answer = ask(sock, number, DEV_GET, IFINDEX, index)
        except OSError:
            answer = {}
    segments = answer.get(ZC_MAX_SEGS)
    return {
        "features": bits(answer, FEATURES, FEATURE_BITS),
        "zc_max_segs": struct.unpack("=I", segments)[0] if segments else None,
        "rx_metadata": bits(answer, RX_METADATA, RX_BITS),
        "tx_metadata": bits(answer, XSK_FEATURES, TX_BITS),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(announced(sys.argv[1])) + "\n")
