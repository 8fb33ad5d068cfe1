"""Metadata of sent frames: the kernel reads ours and writes into them; what is made of what a device would write.

No machine here has a device that stamps what it sends. By copy, the kernel itself computes a requested checksum, and
writes a time of its own when the frame is done: both prove the layout, with real rings.
"""

import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from tests.compiled import made, tool_source

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness instead of the tool's main, built like the tool."""
    work = tool_source("xdpgen", tmp_path_factory.mktemp("metadata"))
    shutil.copy(HERE / "metadata.c", work)
    made(work, "TOOL=metadata", "NOT_LINKED=main.c afxdp_queue.c rings.c", "CFLAGS=-O2 -g")
    return work / "metadata"


def lines(binary: Path, *words: str, stdin: bytes = b"") -> list[list[str]]:
    done = subprocess.run([binary, *words], input=stdin, capture_output=True, timeout=60, check=True)
    return [line.split() for line in done.stdout.decode().splitlines()]


def in_a_namespace(binary: Path, asks: str) -> dict[str, str]:
    """Send one frame over a veth of a namespace that ends with the command."""
    link = "ip link add va type veth peer name vb && ip link set va up && ip link set vb up"
    argv = ["unshare", "-n", "sh", "-c", f'{link} && exec "$0" send va vb {asks}', str(binary)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and "Invalid argument" in done.stdout + done.stderr:
        pytest.skip("before Linux 6.8: no room for metadata")
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def ones_complement(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp_sum(frame: bytes) -> int:
    """Sum a UDP datagram with its pseudo header: 0xffff where its checksum is right."""
    udp = frame[34 : 34 + int.from_bytes(frame[38:40], "big")]
    return ones_complement(frame[26:34] + struct.pack(">HH", 17, len(udp)) + udp)


@pytest.mark.root
def test_the_kernel_computes_the_checksum_that_our_metadata_ask_for_and_tells_when_the_frame_was_done(
    binary: Path,
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_TAI)
    said = in_a_namespace(binary, "asks")
    after = time.clock_gettime_ns(time.CLOCK_TAI)
    frame = bytes.fromhex(said["frame"])
    assert len(frame) == 60
    assert frame[40:42] != b"\0\0"
    assert udp_sum(frame) == 0xFFFF
    assert before <= int(said["done"]) <= after
    assert said["left"] == "0"


@pytest.mark.root
def test_a_frame_that_asks_for_nothing_is_sent_as_it_is_and_tells_nothing(binary: Path) -> None:
    said = in_a_namespace(binary, "silent")
    assert bytes.fromhex(said["frame"])[40:42] == b"\0\0"
    assert "done" not in said
    assert said["left"] == "0"


def test_of_completed_frames_those_that_asked_are_matched_with_their_arrival_by_number(binary: Path) -> None:
    """Numbers pass 2^32, of which a frame carries the low half. One stamp is missing, and one frame is lost."""
    said = lines(binary, "completions")
    assert [row[1] for row in said if row[0] == "asks"] == ["1", "0"] * 4
    assert [row[1:] for row in said if row[0] == "flags"] == [["1", "stamp", "0"]] * 4
    assert said[-1] == ["totals", "3", "1", "2", "0", "free", "2048", "min", "500", "max", "500"]


@pytest.mark.parametrize(("frames", "behind"), [(10, 0), (300_000, 0), (300_000, 2048)])
def test_every_stamp_finds_its_arrival_however_late_the_device_tells_it(binary: Path, frames: int, behind: int) -> None:
    """As late as a full ring of 2048 frames; a clock that went back gives a bad stamp and no latency."""
    assert lines(binary, "stamps", str(frames), str(behind)) == [
        f"totals {frames + 1} 0 {frames + 1} 1 min 700 max 700".split()
    ]


def attribute(kind: int, value: bytes) -> bytes:
    head = struct.pack("=HH", 4 + len(value), kind)
    return head + value + b"\0" * (-len(value) % 4)


def reply(*attributes: bytes, kind: int = 0x1F) -> bytes:
    body = struct.pack("=BBH", 1, 1, 0) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


IFINDEX, XDP = attribute(1, struct.pack("=I", 7)), attribute(3, struct.pack("=Q", 0x7F))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(IFINDEX, XDP, attribute(6, struct.pack("=Q", 3))), "0 tx-timestamp, tx-checksum"),
        (reply(IFINDEX, XDP, attribute(6, struct.pack("=Q", 5))), "0 tx-timestamp, tx-launch-time-fifo"),
        (reply(IFINDEX, attribute(6, struct.pack("=Q", 0)), XDP), "0 none"),
        (reply(IFINDEX, XDP), "-61 none"),  # ENODATA: Linux 6.3 to 6.7
        (reply(IFINDEX, attribute(6, b"\1\0\0\0")), "-61 none"),  # too short to be believed
        (reply(IFINDEX, struct.pack("=HH", 400, 6)), "-61 none"),  # longer than the reply
        (reply(IFINDEX, struct.pack("=HH", 0, 6)), "-61 none"),  # would never end
        (struct.pack("=IHHIIi", 36, 2, 0, 0, 0, -19) + b"\0" * 16, "-19 none"),  # ENODEV
        (reply(IFINDEX)[:18], "-74 none"),  # EBADMSG
        (b"", "-74 none"),
    ],
)
def test_what_a_driver_offers_is_read_from_the_kernels_reply(binary: Path, answer: bytes, said: str) -> None:
    assert lines(binary, "offers", stdin=answer) == [said.split()]
