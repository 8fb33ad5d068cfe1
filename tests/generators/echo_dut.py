"""A slow DUT in user space with exact faults: it returns test frames with the faults that its argument names.

Usage: echo_dut.py INTERFACE FAULTS SECONDS; FAULTS is a JSON object from a fault to the values of i modulo 10 that have
it. "late": [a, b] returns frame a with frame b; "advance": n adds i times n to frame i's number, as if that many more
frames had been sent; "hostile" also returns one of each kind of frame that is nearly a test frame. "print" returns
nothing and prints every frame as hex instead, "times" also when the kernel received it, in ns.
"""

import errno
import json
import socket
import struct
import sys
import time

ALL_PROTOCOLS = 3
UDP_PORT = (50220).to_bytes(2, "big")
TIMESTAMPNS = 35
PACKET, AUXDATA, VLAN_VALID = 263, 8, 1 << 4  # of linux/if_packet.h
VLAN, IPV6 = b"\x81\x00", b"\x86\xdd"


def received(link: socket.socket) -> tuple[bytes, int, int]:
    """Return a frame, where it came from, and when, in ns; the kernel keeps its VLAN tag beside it."""
    came = 0
    frame, ancillary, _, address = link.recvmsg(2048, 256)
    for level, kind, data in ancillary:
        if (level, kind) == (PACKET, AUXDATA):
            status, tag, protocol = struct.unpack_from("=I12xHH", data)
            if status & VLAN_VALID:
                frame = frame[:12] + struct.pack("!HH", protocol, tag) + frame[12:]
        if (level, kind) == (socket.SOL_SOCKET, TIMESTAMPNS):
            seconds, ns = struct.unpack_from("=qq", data)
            came = seconds * 10**9 + ns
    return frame, address[2], came


def ip_at(frame: bytes) -> int:
    return 18 if frame[12:14] == VLAN else 14


def udp_at(frame: bytes) -> int:
    return ip_at(frame) + (40 if frame[ip_at(frame) - 2 : ip_at(frame)] == IPV6 else 20)


def internet_sum(data: bytes) -> int:
    """Return the sum of RFC 1071: 0xffff over what holds its own right checksum."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp_sum(frame: bytes) -> int:
    """Return the sum over an IPv6 frame's pseudo header, UDP header and payload."""
    at = udp_at(frame)
    return internet_sum(frame[ip_at(frame) + 8 : at] + struct.pack("!I3xB", len(frame) - at, 17) + frame[at:])


def with_udp_sum(frame: bytes) -> bytes:
    at = udp_at(frame) + 6
    bare = frame[:at] + bytes(2) + frame[at + 2 :]
    return frame[:at] + ((0xFFFF ^ udp_sum(bare)) or 0xFFFF).to_bytes(2, "big") + frame[at + 2 :]


def nearly(frame: bytes) -> dict[str, bytes]:
    """Return frames that are nearly the test frame ``frame``, which has a tag or is of IPv6, by name."""
    ip, udp = ip_at(frame), udp_at(frame)
    found = {
        "one byte long": frame + b"\0",
        "other type": bytes(changed(frame, ip - 2, b"\x88\xb5")),
        "UDP length": bytes(changed(frame, udp + 4, b"\0\1")),
        "other run": bytes(changed(frame, payload_at(frame) + 2, bytes([frame[payload_at(frame) + 2] ^ 1]))),
    }
    if ip == 18:
        found["other tag"] = bytes(changed(frame, 14, bytes([frame[14] ^ 1])))
        found["other tag protocol"] = bytes(changed(frame, 12, b"\x88\xa8"))
        found["tag taken off"] = frame[:12] + frame[16:]
    if udp - ip == 40:
        found |= {
            "no IPv6": bytes(changed(frame, ip, b"\x40")),
            "IPv6 length": bytes(changed(frame, ip + 4, b"\0\1")),
            "next header": bytes(changed(frame, ip + 6, b"\x06")),
            "UDP checksum": bytes(changed(frame, udp + 6, bytes([frame[udp + 6] ^ 1]))),
            "no UDP checksum": bytes(changed(frame, udp + 6, b"\0\0")),
            "last byte": frame[:-1] + bytes([frame[-1] ^ 1]),
        }
    else:
        found["IP checksum"] = bytes(changed(frame, ip + 10, bytes([frame[ip + 10] ^ 1])))
        found["fragment"] = bytes(changed(frame, ip + 6, b"\x20\0"))
    return found


def payload_at(frame: bytes) -> int:
    """Return where a test frame's magic is."""
    return (udp_at(frame) + 8 + 6 + 7) // 8 * 8 - 6


def rewritten(frame: bytes) -> bytes:
    """Return the frame with another hop limit and destination, and another priority in its tag, as a router may."""
    ip = ip_at(frame)
    if ip == 18:
        frame = bytes(changed(frame, 14, bytes([frame[14] | 0xE0])))
    if udp_at(frame) - ip == 40:
        return with_udp_sum(bytes(changed(frame, ip + 7, b"\x3f" + frame[ip + 8 : ip + 39] + b"\x77")))
    header = changed(frame[ip - 14 :], 22, b"\x3f")
    return frame[: ip - 14] + with_sum(header)


def resized(frame: bytes) -> bytes:
    """Return an IPv4 frame with the size of another one of the simple IMIX; its lengths and its checksum match."""
    size = {60: 590, 590: 1514, 1514: 60}[len(frame)]
    frame = frame[:size].ljust(size, b"\0")
    frame = bytes(changed(frame, 38, (size - 34).to_bytes(2, "big")))
    return with_sum(changed(frame, 16, (size - 14).to_bytes(2, "big")))


def returned(frame: bytes, faults: set[str]) -> list[bytes]:
    """Return the frames that come back for one frame."""
    back = bytearray(frame[6:12] + frame[:6] + frame[12:])
    if "other_run" in faults:
        back[45] ^= 1
    if "no_magic" in faults:
        back[42] ^= 0xFF
    if "foreign" in faults:
        back[36:38] = b"\x00\x09"
        back[42] ^= 0xFF
    if "drop" in faults:
        return []
    if "rewritten" in faults:
        return [rewritten(bytes(back))]
    if "resized" in faults:
        return [bytes(back), resized(bytes(back))]
    if "nearly" in faults:
        return [bytes(back), *nearly(bytes(back)).values()]
    if "hostile" in faults:
        return [bytes(back), *hostile(bytes(back)).values()]
    return [bytes(back)] * (2 if "duplicate" in faults else 1)


def with_sum(frame: bytearray) -> bytes:
    """Return the frame with the right IP header checksum (RFC 1071), over the header length that it states."""
    frame[24:26] = b"\0\0"
    frame[24:26] = (internet_sum(frame[14 : 14 + 4 * (frame[14] & 15)]) ^ 0xFFFF).to_bytes(2, "big")
    return bytes(frame)


def changed(frame: bytes, at: int, new: bytes) -> bytearray:
    return bytearray(frame[:at] + new + frame[at + len(new) :])


def hostile(frame: bytes) -> dict[str, bytes]:
    """Return frames that are nearly the test frame ``frame``, by name: most have its magic, run id and number."""
    ip_bytes = int.from_bytes(frame[16:18], "big")
    wrong_sum = int.from_bytes(frame[24:26], "big") ^ 1
    options = bytearray(frame[:34] + bytes(4) + frame[34:])
    options[14] = 0x46
    options[16:18] = (ip_bytes + 4).to_bytes(2, "big")
    return {
        "runt": frame[:20],
        "one byte short": frame[:59],
        "truncated payload": frame[:60],
        "one byte long": frame + b"\0",
        "jumbo": frame + bytes(1514 - len(frame)),
        "jumbo, lengths say so": with_sum(changed(frame, 16, (1500).to_bytes(2, "big"))) + bytes(1514 - len(frame)),
        "vlan": frame[:12] + b"\x81\x00\x00\x05" + frame[12:],
        "first fragment": with_sum(changed(frame, 20, b"\x20\x00")),
        "later fragment": with_sum(changed(frame, 20, b"\x00\x08")),
        "options": with_sum(options),
        "options in the length": with_sum(changed(frame, 14, b"\x46")),
        "header too short": changed(frame, 14, b"\x44"),
        "no IPv4": bytes(changed(frame, 12, b"\x86\xdd")),
        "no UDP": with_sum(changed(frame, 23, b"\x06")),
        "wrong checksum": bytes(changed(frame, 24, wrong_sum.to_bytes(2, "big"))),
        "IP length too long": with_sum(changed(frame, 16, (ip_bytes + 1).to_bytes(2, "big"))),
        "IP length 0": with_sum(changed(frame, 16, b"\0\0")),
        "UDP length too long": bytes(changed(frame, 38, b"\xff\xff")),
        "UDP length 0": bytes(changed(frame, 38, b"\0\0")),
        "foreign magic": bytes(changed(frame, 42, b"\xde\xad")),
        "other run": bytes(changed(frame, 44, bytes([frame[44] ^ 1]))),
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def send(link: socket.socket, frame: bytes) -> None:
    """Send a frame; wait while the link's ring is full."""
    while True:
        try:
            link.send(frame)
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            time.sleep(0.001)


def main() -> None:
    interface, faults_text, seconds = sys.argv[1:]
    by_fault = json.loads(faults_text)
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    link.setsockopt(PACKET, AUXDATA, 1)
    link.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
    link.bind((interface, ALL_PROTOCOLS))
    say("ready")
    end = time.monotonic() + float(seconds)
    number, held = 0, []
    late_from, late_with = by_fault.pop("late", (-1, -1)) if isinstance(by_fault, dict) else (-1, -1)
    advance = by_fault.pop("advance", 0) if isinstance(by_fault, dict) else 0
    late: list[bytes] = []
    while (left := end - time.monotonic()) > 0:
        link.settimeout(min(left, 0.02))
        try:
            frame, way, came = received(link)
        except TimeoutError:
            frame, came = b"", 0
        if len(frame) < 60 or way == socket.PACKET_OUTGOING or frame[udp_at(frame) + 2 : udp_at(frame) + 4] != UDP_PORT:
            continue
        if by_fault in ("print", "times"):
            say(frame.hex() + (f" {came}" if by_fault == "times" else ""))
            continue
        if advance:
            sequence = int.from_bytes(frame[56:60], "big") + number * advance
            frame = frame[:56] + (sequence % (1 << 32)).to_bytes(4, "big") + frame[60:]
        faults = {name for name, remainders in by_fault.items() if number % 10 in remainders}
        back = returned(frame, faults)
        if number == late_from:
            late, back = back, []
        if number == late_with:
            back += late
        number += 1
        if "swap" in faults:  # comes back after the next one
            held = back
            continue
        for one in back + held:
            send(link, one)
        held = []


if __name__ == "__main__":
    main()
