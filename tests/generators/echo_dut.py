"""A slow DUT in user space with exact faults: returns test frames, and does to frame i what its argument says.

Usage: echo_dut.py INTERFACE FAULTS SECONDS; FAULTS is a JSON object from a fault to the remainders of i modulo 10 that
suffer it; "late": [a, b] returns frame a with frame b; "advance": n adds i times n to frame i's number, as if so many
frames more had been sent. "print" returns nothing and prints every frame as hex instead.
"""

import json
import socket
import sys
import time

ALL_PROTOCOLS = 3
UDP_PORT = (50220).to_bytes(2, "big")


def returned(frame: bytes, faults: set[str]) -> list[bytes]:
    """Return what comes back of one frame."""
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
    return [bytes(back)] * (2 if "duplicate" in faults else 1)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


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
        if "swap" in faults:  # comes back behind the next one
            held = back
            continue
        for one in back + held:
            link.send(one)
        held = []


main()
