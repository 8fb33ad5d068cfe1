"""A slow DUT in user space with exact faults: it returns test frames with the faults that its argument names.

Usage: echo_dut.py INTERFACE FAULTS SECONDS; FAULTS is a JSON object from a fault to the values of i modulo 10 that have
it. "late": [a, b] returns frame a with frame b; "advance": n adds i times n to frame i's number, as if that many more
frames had been sent; "hostile" also returns one of each kind of frame that is nearly a test frame. "print" returns
nothing and prints every frame as hex instead.
"""

import errno
import json
import socket
import sys
import time

ALL_PROTOCOLS = 3
UDP_PORT = (50220).to_bytes(2, "big")


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
    if "hostile" in faults:
        return [bytes(back), *hostile(bytes(back)).values()]
    return [bytes(back)] * (2 if "duplicate" in faults else 1)


def with_sum(frame: bytearray) -> bytes:
    """Return the frame with the right IP header checksum (RFC 1071), over the header length that it states."""
    frame[24:26] = b"\0\0"
    header = frame[14 : 14 + 4 * (frame[14] & 15)]
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[24:26] = (total ^ 0xFFFF).to_bytes(2, "big")
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
            frame, address = link.recvfrom(2048)
        except TimeoutError:
            frame = b""
        if len(frame) < 60 or address[2] == socket.PACKET_OUTGOING or frame[36:38] != UDP_PORT:
            continue
        if by_fault == "print":
            say(frame.hex())
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
