"""xdpload: which programs of an object it loads, for what, and what it puts into their maps."""

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once

pytestmark = pytest.mark.root

SEVERAL = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 4); __type(key, __u32); __type(value, __u32); }
    jump SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_DEVMAP); __uint(max_entries, 4); __type(key, __u32);
         __type(value, struct bpf_devmap_val); } ports SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_CPUMAP); __uint(max_entries, 4); __type(key, __u32);
         __type(value, struct bpf_cpumap_val); } cpus SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64);
         __uint(pinning, LIBBPF_PIN_BY_NAME); } xdplab_count SEC(".maps");
struct limits { __u32 low; __u16 high; struct { __u8 deep[2]; } in; };
const volatile struct limits limits = {1, 2, {{3, 4}}};
const volatile __u8 mac[6] = {2};
int second(struct xdp_md *ctx);
#ifdef TABLE
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 2); __uint(key_size, 4);
         __array(values, int(void *)); } filled SEC(".maps") = {.values = {[0] = (void *)&second}};
#define JUMP filled
#else
#define JUMP jump
#endif
SEC("xdp_mine") int first(struct xdp_md *ctx)
{
    __u32 zero = 0;
    __u64 *seen = bpf_map_lookup_elem(&xdplab_count, &zero);
    if (seen)
        (*seen)++;
    if (limits.low == 9)
        return limits.high == 2 && limits.in.deep[1] == 8 ? XDP_ABORTED : XDP_DROP;
    if (mac[5] == 7)
        return mac[0] == 6 ? XDP_ABORTED : XDP_DROP;
    if (ctx->ingress_ifindex == 4096)
        return bpf_redirect_map(&ports, 0, 0) + bpf_redirect_map(&cpus, 0, 0);
    bpf_tail_call(ctx, &JUMP, 0);
    return XDP_PASS;
}
SEC("xdp") int second(struct xdp_md *ctx) { return XDP_TX; }
SEC("xdp/third") int third(struct xdp_md *ctx) { return XDP_DROP; }
SEC("xdp") int egress(struct xdp_md *ctx) { return XDP_PASS; }
struct inner { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); }
    inner SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 2); __type(key, __u32);
         __array(values, struct inner); } outer SEC(".maps") = {.values = {[1] = &inner}};
SEC("xdp") int nested(struct xdp_md *ctx)
{
    __u32 zero = 0, one = 1;
    void *held = bpf_map_lookup_elem(&outer, &one);
    if (bpf_map_lookup_elem(&outer, &zero))
        return XDP_ABORTED;
    return held && bpf_map_lookup_elem(held, &zero) ? XDP_TX : XDP_DROP;
}
SEC("xdp") int deep(struct xdp_md *ctx)
{
    volatile __u8 bytes[496] = {};
    bytes[ctx->rx_queue_index & 255] = 1;
    return bytes[0] ? XDP_TX : XDP_DROP;
}
SEC("xdp") int refused(struct xdp_md *ctx) { return *(int *)(long)ctx->data; }
SEC("xdp/devmap") int leaving(struct xdp_md *ctx) { return XDP_PASS; }
SEC("tc") int classify(struct __sk_buff *skb) { return 2; }
SEC("freplace/hook") int hook(struct xdp_md *ctx) { return XDP_PASS; }
char LICENSE[] SEC("license") = "GPL";
"""
ABORTED, DROP, PASS, TX = range(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    bpf_object(folder, SEVERAL, name="several")
    bpf_object(folder, SEVERAL, "-DTABLE", name="table")
    return folder


def run(folder: Path, *options: str, object: str = "several.o", commands: str = "fill\ntestrun 64 1 1\n") -> list[dict]:
    argv = [build_once("xdpload"), "--object", str(folder / object), "--mode", "none", *options]
    done = subprocess.run(argv, input=commands, capture_output=True, text=True, check=False, timeout=30)
    return [json.loads(line) for line in done.stdout.splitlines()]


FIRST = ("--program", "first")
RETURNS: dict[str, tuple[tuple[str, ...], int]] = {
    "a program of a section of its own": (FIRST, PASS),
    "one of several of a section": (("--program", "third"), DROP),
    "a table of programs": ((*FIRST, "--map", "jump=0=second"), TX),
    "a program whose section libbpf does not know": ((*FIRST, "--map", "jump=0=third"), DROP),
    "a device and its program, whatever its section": ((*FIRST, "--map", "ports=0=device=lo,program=egress"), PASS),
    "a device and a program of such a section": ((*FIRST, "--map", "ports=1=program=leaving,device=lo"), PASS),
    "a device alone": ((*FIRST, "--map", "ports=1=lo"), PASS),
    "a CPU and its program": ((*FIRST, "--map", "cpus=0=qsize=64,program=egress"), PASS),
    "a map of maps": (("--program", "nested"), TX),
    "a program that fills the stack": (("--program", "deep"), TX),
    "a field of a struct, and one within it": (
        (*FIRST, "--rodata", "limits.low=9", "--rodata", "limits.in.deep[1]=8"),
        ABORTED,
    ),
    "a field, and the others as they were": ((*FIRST, "--rodata", "limits.low=9"), DROP),
    "elements of an array": ((*FIRST, "--rodata", "mac[5]=7", "--rodata", "mac[0]=6"), ABORTED),
}
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a classifier": (("--section", "tc"), "classify, in section tc, is no XDP program: .* type sched_cls"),
    "an extension": (("--section", "freplace/hook"), "hook, in section freplace/hook, is no XDP program"),
    "a classifier beside it": ((*FIRST, "--also", "classify"), "classify, in section tc, is no XDP program"),
    "an entry's program": (("--section", "xdp/devmap"), "leaving, .*, is for entries of a map, not for a device"),
    "no such program": (("--program", "none"), "no program named none"),
    "no such program beside it": ((*FIRST, "--also", "none"), "no program none; there are: first second"),
    "what is asked for, and the kernel refuses": ((*FIRST, "--also", "refused"), "the kernel refuses refused"),
    "no such map": ((*FIRST, "--map", "none=0=second"), "no map none"),
    "another kind of map": ((*FIRST, "--map", "xdplab_count=0=1"), r"xdplab_count \(array\): 0=1 is no entry"),
    "an unknown field": ((*FIRST, "--map", "ports=0=dev=lo"), "0=dev=lo is no entry: write KEY: DEVICE"),
    "a program without its device": ((*FIRST, "--map", "ports=0=program=egress"), "no entry: write KEY: DEVICE"),
    "no such device": ((*FIRST, "--map", "ports=0=none0"), "0=none0 is refused: there is no such device"),
    "beyond the map": ((*FIRST, "--map", "jump=9=second"), "9=second is refused: Argument list too long"),
    "a struct as a number": ((*FIRST, "--rodata", "limits=9"), "limits is a struct: .*; there are: low high in"),
    "an array as a number": ((*FIRST, "--rodata", "mac=6"), "mac is an array of 6"),
    "beyond an array": ((*FIRST, "--rodata", "mac[6]=6"), r"there is no \[6\] in mac"),
    "no such field": ((*FIRST, "--rodata", "limits.in.shallow=6"), r"there is no .shallow in limits.in"),
    "too large a number": ((*FIRST, "--rodata", "limits.high=65536"), "65536 does not fit into 2 bytes"),
}


DATA = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define MAP(name, kind, flags) struct { __uint(type, kind); __uint(max_entries, 70000); __uint(map_flags, flags); \\
    __type(key, __u64); __type(value, __u32); } name SEC(".maps")
MAP(plain, BPF_MAP_TYPE_HASH, 0);
MAP(spread, BPF_MAP_TYPE_PERCPU_HASH, 0);
MAP(nets, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC);
struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 700); __type(key, __u32);
    __array(values, struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 100); __type(key, __u64);
    __type(value, __u32); }); } nested SEC(".maps");
SEC("xdp") int sum(struct xdp_md *ctx)
{
    __u64 key = 32 | 69999ULL << 32;
    __u32 *plainly = bpf_map_lookup_elem(&plain, &key), *on_cpu = bpf_map_lookup_elem(&spread, &key),
          *net = bpf_map_lookup_elem(&nets, &key);
    __u32 last = 699, *inside;
    void *map = bpf_map_lookup_elem(&nested, &last);
    if (!map || !(inside = bpf_map_lookup_elem(map, &key)) || *inside != 69999)
        return XDP_ABORTED;
    return plainly && on_cpu && net && *plainly == 69999 && *on_cpu == 69999 && *net == 69999 ? XDP_TX : XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"""


def _entries(folder: Path, count: int) -> str:
    """Write entries whose keys are also prefixes of 32 bits."""
    keys, values = (struct.pack(f"<{count}{kind}", *numbers) for kind, numbers in (
        ("Q", (32 | n << 32 for n in range(count))), ("I", range(count))
    ))  # fmt: skip
    (folder / f"{count}.bin").write_bytes(keys + values)
    return f"{folder}/{count}.bin"


def test_entries_are_in_each_map_before_a_packet_is_seen(folder: Path) -> None:
    """More than one batch of a hash; a value for every CPU; a trie; more maps in a map than are open at a time."""
    bpf_object(folder, DATA, name="data")
    file = _entries(folder, 70000)
    options = [word for name in ("plain", "spread", "nets") for word in ("--entries", f"{name}={file}")]
    head = struct.pack("<Q1400I", 700, *range(700), *[100] * 700)
    (folder / "nested.bin").write_bytes(head + Path(file).read_bytes())
    answers = run(folder, *options, "--entries", f"nested={folder}/nested.bin", object="data.o")
    assert [one["type"] for one in answers] == ["loaded", "filled", "testrun", "detached"], answers
    assert answers[2]["retval"] == TX


@pytest.mark.parametrize(
    "case", ["none=70000.bin", "plain=none.bin", "plain=cut.bin", "plain=70001.bin", "nested=70000.bin"]
)
def test_entries_that_cannot_be_put_in_are_refused_with_their_map(folder: Path, case: str) -> None:
    bpf_object(folder, DATA, name="data")
    for count in (70000, 70001):
        _entries(folder, count)
    (folder / "cut.bin").write_bytes(b"x" * 13)
    name, file = case.split("=")
    (refused,) = [one for one in run(folder, "--entries", f"{name}={folder}/{file}", object="data.o", commands="fill\n")
                  if one["type"] == "error"]  # fmt: skip
    assert name in refused["message"]


@pytest.mark.parametrize("case", RETURNS)
def test_a_program_runs_with_what_it_is_given(folder: Path, case: str) -> None:
    """`refused`, which nobody asks for, is not loaded."""
    options, action = RETURNS[case]
    answers = run(folder, *options)
    assert [one["type"] for one in answers] == ["loaded", "filled", "testrun", "detached"], answers
    assert answers[2]["retval"] == action


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_on_one_line(folder: Path, case: str) -> None:
    options, words = REFUSED[case]
    told = [one for one in run(folder, *options, commands="fill\n") if one["type"] == "error"]
    assert len(told) == 1
    assert re.search(words, told[0]["message"]), told[0]["message"]


def test_a_static_table_of_programs_is_loaded_with_those_it_names(folder: Path) -> None:
    answers = run(folder, *FIRST, "--also", "second", object="table.o", commands="testrun 64 1 1\n")
    assert answers[1]["retval"] == TX


def test_maps_pinned_by_name_begin_empty_unless_they_are_kept(folder: Path) -> None:
    load = f"'{build_once('xdpload')}' --object '{folder}/several.o' --mode none --program first"
    ask = "printf 'testrun 64 1 1\\ncount\\n'"
    script = (
        f"mount -t bpf bpf /sys/fs/bpf; for keep in '' '' --keep-pins --keep-pins ''; do {ask} | {load} $keep; done"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["values"][0] for one in answers if one["type"] == "count"] == [1, 1, 1, 2, 1]
