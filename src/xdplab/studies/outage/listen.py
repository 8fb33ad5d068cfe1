"""A program for the DUT: keeps test frames as they pass to the stack, and prints what came. Imports nothing of xdplab.

    python3 -I listen.py INTERFACE MAGIC SLOTS

A ring of the kernel (PACKET_RX_RING of packet(7)) has a slot for each frame: nothing runs here while frames come. After
a line on standard input it prints the runs of frames whose numbers follow each other and whose mark is the same:
[first, last, mark, held], in the order they came. ``held`` is the most, in ns, by which the time between a frame of the
run and the frame that came before it is longer here than for the sender, so that its pauses are not in it. It takes
frames to any address; the kernel undoes that at its end.
"""

import json
import mmap
import socket
import struct
import sys

SLOT_BYTES, BLOCK_BYTES = 256, 65536
SOL_PACKET, ADD_MEMBERSHIP, RX_RING, STATISTICS, VERSION = 263, 1, 5, 6, 10  # linux/if_packet.h
PROMISCUOUS, TPACKET_V2, STATUS_USER = 1, 1, 1
ETH_P_IP = 0x0800
HEAD = struct.Struct("=IIIHHII")  # status, len, snaplen, mac, net, sec, nsec of struct tpacket2_hdr
MARK_AT, MAGIC_AT, STAMP_AT, NUMBER_AT = 11, 42, 48, 56  # native/common/payload.h


def main(interface: str, magic: int, slots: int) -> None:
    """Listen until standard input has a line or ends."""
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    listener.setsockopt(SOL_PACKET, VERSION, TPACKET_V2)
    blocks = -(-slots * SLOT_BYTES // BLOCK_BYTES)
    ring = (BLOCK_BYTES, blocks, SLOT_BYTES, blocks * BLOCK_BYTES // SLOT_BYTES)
    listener.setsockopt(SOL_PACKET, RX_RING, struct.pack("=IIII", *ring))
    index = socket.if_nametoindex(interface)
    listener.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, struct.pack("=iHH8x", index, PROMISCUOUS, 0))
    memory = mmap.mmap(listener.fileno(), blocks * BLOCK_BYTES)
    listener.bind((interface, ETH_P_IP))
    say({"type": "listening", "slots": ring[3]})
    if sys.stdin.readline():
        _, dropped = struct.unpack("=II", listener.getsockopt(SOL_PACKET, STATISTICS, 8))
        say({"type": "heard", "dropped": dropped, "runs": runs(memory, magic)})


def say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def runs(memory: mmap.mmap, magic: int) -> list[list[int]]:
    """Return the runs of test frames in a ring that has not yet begun anew."""
    heard: list[list[int]] = []
    before = None
    for slot in range(0, len(memory), SLOT_BYTES):
        status, _, _, mac, _, sec, nsec = HEAD.unpack_from(memory, slot)
        if not status & STATUS_USER:
            break
        (seen,) = struct.unpack_from("!I", memory, slot + mac + MAGIC_AT)
        if seen != magic:
            continue
        (number,) = struct.unpack_from("!I", memory, slot + mac + NUMBER_AT)
        (sent,) = struct.unpack_from("=Q", memory, slot + mac + STAMP_AT)
        mark, way = memory[slot + mac + MARK_AT], sec * 1_000_000_000 + nsec - sent
        held = 0 if before is None else max(0, way - before)
        before = way
        last = heard[-1] if heard else None
        if last and number == last[1] + 1 and mark == last[2]:
            last[1], last[3] = number, max(last[3], held)
        else:
            heard.append([number, number, mark, held])
    return heard


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3]))
