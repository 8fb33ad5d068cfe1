"""Each program of the gallery does what it claims: BPF_PROG_TEST_RUN of crafted frames, compared byte by byte."""

import ctypes
import importlib.util
import json
import os
import platform
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType

import pytest
from tests.compiled import build_once

from xdplab.deploy.xdp import XdpLoader, XdpRequest
from xdplab.hosts.local import LocalHost
from xdplab.plan import load_plan
from xdplab.programs.build import build
from xdplab.programs.spec import UserProgram
from xdplab.resources import shipped

pytestmark = pytest.mark.root

GALLERY = shipped("xdp_progs") / "gallery"
BPF = {"x86_64": 321, "aarch64": 280}  # the number of bpf(2)
TEST_RUN, PROG_BY_ID, MAP_BY_ID, UPDATE = 10, 13, 14, 2
DROP, PASS, TX, REDIRECT = 1, 2, 3, 4
SERVICE = "198.19.0.1"


def bpf(command: int, layout: str, *values: int) -> tuple[int, bytes]:
    """Call bpf(2); return its result and its attributes after the call."""
    attributes = ctypes.create_string_buffer(struct.pack(layout, *values).ljust(128, b"\0"), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(BPF[platform.machine()], command, attributes, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, attributes.raw


class Loaded:
    """One program of the gallery in the kernel: `run` returns its action for a frame, and the frame afterwards."""

    def __init__(self, loader: XdpLoader) -> None:
        self._program, _ = bpf(PROG_BY_ID, "<I", loader.loaded.program_id)
        self._maps = [bpf(MAP_BY_ID, "<I", number)[0] for number in loader.loaded.map_ids]
        self._names = [_map_name(fd) for fd in self._maps]

    def put(self, name: str, key: bytes, value: bytes) -> None:
        fd = self._maps[self._names.index(name)]
        key_bytes, value_bytes = (
            ctypes.create_string_buffer(key, len(key)),
            ctypes.create_string_buffer(value, len(value)),
        )
        bpf(UPDATE, "<IIQQQ", fd, 0, ctypes.addressof(key_bytes), ctypes.addressof(value_bytes), 0)

    def run(self, frame: bytes) -> tuple[int, bytes]:
        given, left = ctypes.create_string_buffer(frame, len(frame)), ctypes.create_string_buffer(2048)
        layout = (self._program, 0, len(frame), 2048, ctypes.addressof(given), ctypes.addressof(left), 1, 0)
        _, after = bpf(TEST_RUN, "<IIIIQQII", *layout)
        answer, length = struct.unpack_from("<4xI4xI", after)
        return answer, left.raw[:length]

    def close(self) -> None:
        for fd in (self._program, *self._maps):
            os.close(fd)


def _map_name(fd: int) -> str:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
    shown = subprocess.run(
        ["bpftool", "-j", "map", "show", "id", lines["map_id"].strip()], capture_output=True, check=True
    )
    return str(json.loads(shown.stdout)["name"])


Load = Callable[..., Loaded]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    with ExitStack() as stack:

        def loaded(name: str, **rodata: int) -> Loaded:
            made = build(UserProgram(str(GALLERY / f"{name}.bpf.c")), tmp_path)
            request = XdpRequest(str(made.object), "none", "none", section="xdp", rodata=rodata)
            program = Loaded(stack.enter_context(XdpLoader(LocalHost(), build_once("xdpload"), request, deadline_s=60)))
            stack.callback(program.close)
            return program

        yield loaded


def checksum(data: bytes) -> int:
    """RFC 1071: 0 over a correct header."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(source: str, target: str = SERVICE, *, port: int = 1024, checked: bool = False) -> bytes:
    addresses = IPv4Address(source).packed + IPv4Address(target).packed
    payload = bytes(range(18))
    datagram = bytearray(struct.pack(">4H", port, 50220, 8 + len(payload), 0) + payload)
    if checked:
        pseudo = addresses + struct.pack(">2H", 17, len(datagram))
        datagram[6:8] = struct.pack(">H", checksum(pseudo + datagram))
    header = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0) + addresses)
    header[10:12] = struct.pack(">H", checksum(bytes(header)))
    return MACS + b"\x08\x00" + bytes(header) + bytes(datagram)


MACS = bytes.fromhex("020000000002020000000001")
SWAPPED = MACS[6:] + MACS[:6]
ARP = MACS + b"\x08\x06" + bytes(46)


def target_of(frame: bytes) -> IPv4Address:
    return IPv4Address(frame[30:34])


def test_the_empty_program_swaps_the_addresses(load: Load) -> None:
    frame = udp("198.18.0.1")
    assert load("empty").run(frame) == (TX, SWAPPED + frame[12:])


@pytest.mark.parametrize("remember", [True, False])
def test_the_balancer_keeps_a_flow_with_its_backend(load: Load, remember: bool) -> None:
    balancer = load("balancer", remember=remember)
    chosen = []
    for number in range(400):
        frame = udp(f"198.18.{number // 200}.{number % 200}", checked=number % 2 == 0)
        answer, left = balancer.run(frame)
        assert answer == TX
        assert left[:12] == SWAPPED
        assert checksum(left[14:34]) == 0, "the header's checksum follows its address"
        datagram, pseudo = left[34:], left[26:34] + struct.pack(">2H", 17, len(left) - 34)
        assert datagram[6:8] == b"\0\0" or checksum(pseudo + datagram) == 0, "so does that of UDP"
        assert balancer.run(frame)[1] == left
        chosen.append(int(target_of(left)) - int(IPv4Address("10.1.0.1")))
    counts = [chosen.count(backend) for backend in range(16)]
    assert sum(counts) == 400
    assert min(counts) >= 8, f"25 flows each, in the mean: {counts}"


def test_a_backend_more_takes_flows_and_moves_no_others(load: Load) -> None:
    few, more = load("balancer", backends=16), load("balancer", backends=17)
    moved = []
    for number in range(200):
        frame = udp(f"198.18.0.{number}")
        before, after = (target_of(program.run(frame)[1]) for program in (few, more))
        if before != after:
            moved.append(after)
    assert set(moved) == {IPv4Address("10.1.0.17")}
    assert 2 <= len(moved) <= 30, "a seventeenth of 200, in the mean"


def test_the_balancer_leaves_alone_what_is_not_for_the_service(load: Load) -> None:
    balancer = load("balancer")
    for frame in (udp("198.18.0.1", "198.19.0.2"), ARP):
        assert balancer.run(frame) == (PASS, frame)


def test_the_longest_prefix_decides(load: Load) -> None:
    prefixes = load("prefixes")
    for length, network, drops in ((25, "198.18.0.0", 1), (26, "198.18.0.64", 0), (32, "198.18.0.100", 1)):
        key = struct.pack("<I", length) + IPv4Address(network).packed
        prefixes.put("filter_prefixes"[:15], key, struct.pack("<I", drops))
    expected = {"198.18.0.1": DROP, "198.18.0.64": TX, "198.18.0.100": DROP, "198.18.0.128": TX, "198.17.255.255": TX}
    assert {source: prefixes.run(udp(source))[0] for source in expected} == expected
    assert prefixes.run(ARP)[0] == PASS


def test_a_bucket_lets_its_burst_through_and_no_more(load: Load) -> None:
    bucket = load("bucket", rate_pps=1, burst=5)
    answers = [bucket.run(udp("198.18.0.1"))[0] for _ in range(20)]
    assert answers[:5] == [TX] * 5
    assert answers.count(TX) <= 7, "a frame per second besides"
    assert bucket.run(udp("198.18.0.2"))[0] == TX, "each source has a bucket of its own"


def test_a_packet_is_put_into_another_unchanged(load: Load) -> None:
    frame = udp("198.18.0.1")
    answer, left = load("ipip").run(frame)
    assert answer == TX
    assert left[:14] == SWAPPED + b"\x08\x00"
    assert left[34:] == frame[14:], "the packet inside"
    outer = left[14:34]
    assert checksum(outer) == 0
    assert struct.unpack(">H", outer[2:4])[0] == len(frame) - 14 + 20
    assert (outer[9], str(IPv4Address(outer[12:16])), str(IPv4Address(outer[16:20]))) == (4, "10.2.0.1", "10.2.0.2")
    assert load("ipip").run(ARP) == (PASS, ARP)


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """The script that makes the queries."""
    spec = importlib.util.spec_from_file_location("gallery_frames", GALLERY / "frames.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_listed_name_is_dropped_in_letters_of_any_size(load: Load, made: ModuleType) -> None:
    dns = load("dns")
    dns.put("dns_names", made.key_of(made.LISTED).to_bytes(8, "little"), struct.pack("<I", 1))
    answers = {
        made.query("ads.example.net", 1): DROP,
        made.query("aDS.Example.NET", 1): DROP,
        made.query("example.net", 1): TX,
        made.query("xads.example.net", 1): TX,
        made.query("adsexample.net", 1): TX,
        made.query("ads.example.net", 1, flags=0x8180): PASS,
        made.query("ads.example.net", 1, port=5353): PASS,
        made.query("ads.example.net", 1)[:60]: DROP,  # cut within the name: not a name
    }
    for frame, answer in answers.items():
        assert dns.run(frame)[0] == answer, frame
    found = [dns.run(frame)[0] for frame in made.queries()]
    assert (found.count(DROP), found.count(TX)) == (16, 48)


def test_the_queries_and_the_key_in_the_plan_are_what_the_script_makes(made: ModuleType) -> None:
    assert (GALLERY / "dns.pcap").read_bytes() == made.pcap(made.queries())
    text = (shipped("plans") / "gallery.yaml").read_text()
    assert f"dns_names: {{{made.key_of(made.LISTED)}: 1}}" in text


def test_a_frame_is_forwarded_to_the_device_of_the_map(load: Load) -> None:
    forward = load("forward")
    assert forward.run(udp("198.18.0.1"))[0] == 0, "no device: aborted"
    forward.put("forward_ports", bytes(4), struct.pack("<I", 1))
    assert forward.run(udp("198.18.0.1")) == (REDIRECT, SWAPPED + udp("198.18.0.1")[12:])


def test_the_plan_has_every_program_of_the_gallery() -> None:
    plan = load_plan(shipped("plans") / "gallery.yaml")
    files = {Path(program.file).name for block in plan.blocks for program in block.points.program or ()}
    assert files == {path.name for path in GALLERY.glob("*.bpf.c")}
