"""xdpload: its lines, its refusals, and that nothing stays attached after it ends."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once
from tests.waiting import until

pytestmark = pytest.mark.root

TWO = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
const volatile __u32 limit = 4;
const volatile _Bool open = 0;
#define MAP(name, map_type, entries) struct { __uint(type, map_type); __uint(max_entries, entries); \\
    __type(key, __u32); __type(value, __u64); } name SEC(".maps")
MAP(sums, BPF_MAP_TYPE_ARRAY, 3);
MAP(xdplab_count, BPF_MAP_TYPE_PERCPU_ARRAY, 1);
SEC("xdp") int first(struct xdp_md *ctx)
{
    __u32 key = 1;
    __u64 *sum = bpf_map_lookup_elem(&sums, &key), *count;
    if (sum && *sum > limit)
        return open ? XDP_TX : XDP_PASS;
    key = 0;
    count = bpf_map_lookup_elem(&xdplab_count, &key);
    if (count)
        *count += 2;
    return XDP_DROP;
}
SEC("xdp/other") int other(struct xdp_md *ctx) { return XDP_TX; }
char LICENSE[] SEC("license") = "GPL";
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xdpload")
    bpf_object(folder, TWO, name="two")
    return folder


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    name = f"xdpload-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        link = ["ip", "-n", name, "link"]
        subprocess.run([*link, "add", "va", "type", "veth", "peer", "name", "vb"], check=True)
        subprocess.run([*link, "set", "va", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def start(folder: Path, namespace: str | None, *arguments: str) -> subprocess.Popen[str]:
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    argv = [*inside, build_once("xdpload"), "--object", str(folder / "two.o"), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def run(folder: Path, namespace: str | None, *arguments: str, commands: str = "") -> tuple[int, list[dict]]:
    process = start(folder, namespace, *arguments)
    out, _ = process.communicate(commands, timeout=30)
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def attached(namespace: str) -> dict | None:
    command = ["ip", "netns", "exec", namespace, "ip", "-j", "link", "show", "va"]
    return json.loads(subprocess.check_output(command))[0].get("xdp")


@pytest.mark.parametrize(("mode", "kernels_word"), [("native", 1), ("generic", 2)])
def test_it_attaches_in_the_mode_asked_for_and_lets_go_at_the_end_of_input(folder, namespace, mode, kernels_word):
    process = start(folder, namespace, "--interface", "va", "--mode", mode)
    loaded, line = (json.loads(process.stdout.readline()) for _ in range(2))
    assert (line["type"], line["mode"], line["mode_obtained"]) == ("attached", mode, mode)
    assert attached(namespace)["mode"] == kernels_word
    assert attached(namespace)["prog"]["id"] == loaded["program_id"]
    assert loaded["xlated_bytes"] == 8 * loaded["xlated_insns"]
    assert 0 < loaded["load_ns"] < 1e9
    assert json.loads(process.communicate("", timeout=10)[0])["type"] == "detached"
    assert process.returncode == 0
    assert attached(namespace) is None


@contextmanager
def opening_held(path: Path) -> Iterator[Callable[[], bool]]:
    """Let nobody else open the file within the block; yields whether somebody waits for it (a lease, fcntl(2))."""
    waiting: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _: waiting.append(number))
    holder = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield lambda: bool(waiting)
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize("another", [False, True], ids=["gone", "another of its name"])
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_an_interface_that_goes_meanwhile_has_not_refused_the_program(folder, tmp_path, mode, another):
    """The kernel calls it invalid, as it does a mode that a driver lacks, which would be final."""
    name, copy = f"gone-{os.getpid()}", tmp_path / "two.o"
    copy.write_bytes((folder / "two.o").read_bytes())
    link = ["ip", "-n", name, "link"]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*link, "add", "va", "type", "veth"], check=True)
        with opening_held(copy) as awaited:
            process = start(tmp_path, name, "--interface", "va", "--mode", mode)
            assert until(awaited, 10)
            subprocess.run([*link, "del", "va"], check=True)
            if another:
                subprocess.run([*link, "add", "va", "type", "veth"], check=True)
        loaded, line = map(json.loads, process.communicate("", timeout=10)[0].splitlines())
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    assert (loaded["type"], line["step"], line["error"]) == ("loaded", "interface", "ENODEV")


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_attached_however_it_ends(folder, namespace, blow):
    process = start(folder, namespace, "--interface", "va", "--mode", "native")
    process.stdout.readline(), process.stdout.readline()
    process.send_signal(blow)
    out, _ = process.communicate(timeout=10)
    assert ("detached" in out) == (blow != signal.SIGKILL)
    assert until(lambda: attached(namespace) is None, 2)


def test_an_attached_program_is_named_and_left_alone(folder, namespace):
    process = start(folder, namespace, "--interface", "va", "--mode", "generic")
    holder = json.loads(process.stdout.readline())["program_id"]
    process.stdout.readline()
    code, lines = run(folder, namespace, "--interface", "va", "--mode", "native")
    assert (code, lines[0]["step"], lines[0]["error"]) == (1, "attach", "EBUSY")
    assert f"XDP program {holder}" in lines[0]["message"]
    assert attached(namespace)["prog"]["id"] == holder
    process.communicate("", timeout=10)


def test_an_attached_program_is_awaited_only_as_long_as_there_is_a_controller(folder, namespace):
    """It is awaited for five seconds: one whose controller was killed meanwhile would stay as long."""
    holder = start(folder, namespace, "--interface", "va", "--mode", "generic")
    holder.stdout.readline()
    holder.stdout.readline()
    second = start(folder, namespace, "--interface", "va", "--mode", "native")
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.5)
    began = time.monotonic()
    out, _ = second.communicate(timeout=10)
    assert time.monotonic() - began < 2
    assert (second.returncode, json.loads(out)["error"]) == (1, "EBUSY")
    holder.communicate("", timeout=10)


def test_offload_is_tried_and_refused_with_the_drivers_name(folder, namespace):
    code, lines = run(folder, namespace, "--interface", "va", "--mode", "offload", "--program", "other")
    assert (code, lines[0]["step"], lines[0]["error"]) == (1, "load", "EINVAL")
    assert "the driver of va (veth)" in lines[0]["message"]
    assert attached(namespace) is None


def test_a_refused_attach_has_the_drivers_message(folder, namespace):
    for end in ("va", "vb"):
        subprocess.run(["ip", "-n", namespace, "link", "set", end, "mtu", "9000"], check=True)
    code, lines = run(folder, namespace, "--interface", "va", "--mode", "native")
    for end in ("va", "vb"):
        subprocess.run(["ip", "-n", namespace, "link", "set", end, "mtu", "1500"], check=True)
    assert (code, lines[-1]["step"]) == (1, "attach")
    assert "Peer MTU is too large to set XDP" in lines[-1]["log"]


def test_constants_contents_and_sizes_reach_the_program(folder):
    (folder / "sums.bin").write_bytes(struct.pack("<IIQQ", 0, 1, 100, 100))
    arguments = ["--mode", "none", "--max-entries", "sums=2", "--init", f"sums={folder / 'sums.bin'}"]
    for limit, is_open, verdict in ((99, "true", 3), (99, "false", 2), (0x64, "true", 1)):
        constants = ["--rodata", f"limit={limit}", "--rodata", f"open={is_open}"]
        _, lines = run(folder, None, *arguments, *constants, commands="testrun 64 1 1\n")
        assert lines[1]["retval"] == verdict


def test_a_program_is_test_run_with_the_bytes_of_a_frame(folder):
    frame = bytes(range(60)).hex()
    wrong = (frame[:-1], frame[:40], frame + "zz", "00" * 9213)
    commands = "".join(f"testrun 0x{text} 1000 2\n" for text in (frame, *wrong))
    _, lines = run(folder, None, "--mode", "none", commands=commands)
    assert [line["type"] for line in lines[1:6]] == ["testrun", *["error"] * 4]
    assert lines[1]["frame_bytes"] == 64
    assert len(lines[1]["ns"]) == 2


def test_frames_are_given_at_once_and_seen_in_turn(folder):
    frame = bytes(range(60)).hex()
    commands = (
        f"outcomes 1\nframes 2\n0x{frame} 0\n100 0\noutcomes 3\nfresh 2 4\nframes 2\n0x{frame} 0\n0x12 0\nfresh 1 1\n"
    )
    _, lines = run(folder, None, "--mode", "none", commands=commands)
    assert [line["type"] for line in lines[1:-1]] == ["error", "frames", "outcomes", "fresh", "error", "error"]
    assert (lines[3]["actions"]["drop"], lines[3]["changed"]) == (6, 0)
    assert len(lines[4]["call_ns"]) == len(lines[4]["empty_call_ns"]) == 4
    assert 0 < lines[4]["empty_ns"] < min(lines[4]["empty_call_ns"])


def test_a_map_gets_one_entry_a_cpu(folder):
    (folder / "cpus.bin").write_bytes(bytes(8))
    code, _ = run(folder, None, "--mode", "none", "--max-entries", "sums=cpus", "--init", f"sums={folder / 'cpus.bin'}")
    assert code == 0


def test_commands_are_answered_one_line_each(folder):
    commands = "testrun 64 500 2\ncount\nreset\ncount\nbpf_stats on\ntestrun 1518 10 1\nrunstats\nbpf_stats off\n"
    commands += f"dump xlated {folder}/x.bin\ndump jited {folder}/j.bin\nnonsense\ntestrun 10 1 1\n"
    code, lines = run(folder, None, "--mode", "none", commands=commands)
    kinds = ["loaded", "testrun", "count", "reset", "count", "bpf_stats", "testrun", "runstats", "bpf_stats"]
    assert [line["type"] for line in lines] == [*kinds, "dump", "dump", "error", "error", "detached"]
    assert code == 0
    assert len(lines[1]["ns"]) == 2
    assert lines[1]["retval"] == 1
    assert lines[2]["values"][0] >= 2 * 2 * 500
    assert lines[2]["values"][0] % 2 == 0
    assert lines[4]["values"][0] == 0
    assert lines[7]["run_cnt"] >= 10
    assert lines[9]["bytes"] == lines[0]["xlated_bytes"] == len((folder / "x.bin").read_bytes())
    assert lines[10]["bytes"] == lines[0]["jited_bytes"] == len((folder / "j.bin").read_bytes())


def test_reset_zeroes_all_words_of_all_entries_on_all_cpus(folder):
    wide = "".join(
        f"""struct {{ __uint(type, BPF_MAP_TYPE_{kind}ARRAY); __uint(max_entries, 2); __type(key, __u32);
        __type(value, struct eight); }} {name} SEC(".maps");\n"""
        for kind, name in (("", "one"), ("PERCPU_", "many"))
    )
    bpf_object(folder, TWO.replace("#define", f"struct eight {{ __u64 words[8]; }};\n{wide}#define"), name="wide")
    (folder / "ones.bin").write_bytes(b"\1" * 64)
    options = [word for name in ("one", "many") for word in ("--init", f"{name}={folder / 'ones.bin'}")]
    commands = "count one\nreset one\ncount one\ncount many\nreset many\ncount many\n"
    _, lines = run(folder, None, "--object", str(folder / "wide.o"), "--mode", "none", *options, commands=commands)
    counts = [line["values"] for line in lines if line["type"] == "count"]
    assert [set(values) == {0} for values in counts] == [False, True, False, True]
    assert {len(values) for values in counts} == {8}


@pytest.mark.parametrize(
    ("arguments", "step", "words"),
    [
        (["--rodata", "limits=1"], "rodata", "there is no constant limits; there are: limit open"),
        (["--rodata", "open=300"], "rodata", "300 does not fit into 1 bytes"),
        (["--rodata", "limit=18446744073709551615"], "rodata", "18446744073709551615 does not fit into 4 bytes"),
        (["--rodata", "limit=many"], "rodata", "many is not a number"),
        (["--max-entries", "sum=1"], "max-entries", "there is no map sum; there are: sums xdplab_count"),
        (["--max-entries", "sums=0"], "max-entries", "0 is not a number of entries"),
        (["--max-entries", "sums=8x"], "max-entries", "8x is not a number of entries"),
        (["--max-entries", "sums=4294967297"], "max-entries", "4294967297 is not a number of entries"),
        (["--init", "sums=/nowhere"], "map", "sums: its entries are refused: /nowhere"),
        (["--init", "sums=odd.bin"], "map", "the file has other sizes of keys and values than the map"),
        (["--init", "sum=odd.bin"], "init", "there is no map sum; there are: sums"),
        (["--program", "third"], "open", "no program named third"),
        (["--section", "tc"], "open", "no program in section tc"),
        (["--mode", "native", "--interface", "none0"], "interface", "there is no interface none0"),
    ],
)
def test_a_refusal_is_one_line_that_names_what_was_wrong(folder, arguments, step, words):
    (folder / "odd.bin").write_bytes(bytes(13))
    arguments = [word.replace("odd.bin", str(folder / "odd.bin")) for word in arguments]
    code, lines = run(folder, None, *(["--mode", "none"] if "--mode" not in arguments else []), *arguments)
    assert code == 1
    assert lines[-1]["step"] == step
    assert words in lines[-1]["message"]


@pytest.mark.parametrize(
    "arguments", [["--mode", "fast"], ["--rodata", "limit"], ["--mode", "native"], ["--nonsense"], ["extra"]]
)
def test_usage_errors_end_with_2(folder, arguments):
    process = start(folder, None, *arguments)
    out, words = process.communicate("", timeout=10)
    assert (process.returncode, out) == (2, "")
    assert "xdpload: " in words


def test_a_map_the_kernel_does_not_make_is_named(folder):
    long_key = bpf_object(folder, TWO.replace("__type(key, __u32)", "__type(key, __u64)"), name="long_key")
    code, lines = run(folder, None, "--object", str(long_key), "--mode", "none")
    assert (code, lines[0]["step"], lines[0]["error"]) == (1, "map", "EINVAL")
    assert "map sums (array, 3 entries)" in lines[0]["message"]
