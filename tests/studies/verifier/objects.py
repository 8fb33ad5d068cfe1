"""C sources with known verdicts, and objects that are changed byte by byte."""

import struct

HEAD = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
"""


def source_of(text: str) -> str:
    """Return C text after what each program includes, with its licence."""
    return HEAD + text


OUT_OF_BOUNDS = source_of("""
SEC("xdp")
int reads_beyond(struct xdp_md *context) {
    volatile unsigned char *data = (void *)(long)context->data;
    if ((void *)(data + 4) > (void *)(long)context->data_end)
        return XDP_DROP;
    return data[100] ? XDP_PASS : XDP_DROP;
}
""")
HELPER = source_of("""
SEC("xdp")
int asks_for_a_helper(struct xdp_md *context) {
    return bpf_get_stackid(context, 0, 0) > 0 ? XDP_PASS : XDP_DROP;
}
""")
OVERRIDE = source_of("""
SEC("kprobe/schedule")
int overrides(void *context) {
    bpf_override_return(context, 0);
    return 0;
}
""")
OF_THE_KERNEL = source_of("""
SEC("tp_btf/sched_switch")
int seen(void *context)
{
    return 0;
}
""")
"""It attaches to what the kernel's BTF describes, so libbpf reads that."""

GLOBALS = source_of("""
const volatile unsigned int rounds = 2;
const volatile signed char shift = 0;
volatile unsigned long long base = 1;
volatile unsigned char table[4];
SEC("xdp")
int configured(struct xdp_md *context) {
    unsigned int sum = 0;
    for (unsigned int i = 0; i < rounds; i++)
        sum += context->rx_queue_index;
    if (shift < 0)
        base += sum;
    return sum + base + table[1] > 100 ? XDP_DROP : XDP_PASS;
}
""")
LEGACY_MAP = """
struct {
    unsigned int type, key_size, value_size, max_entries;
} counts SEC("maps") = {BPF_MAP_TYPE_ARRAY, 4, 8, 4};
"""
BTF_MAP = """
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 4);
    __type(key, unsigned int);
    __type(value, unsigned long);
} counts SEC(".maps");
"""
CALLS = (
    source_of(LEGACY_MAP)
    + """
static __attribute__((noinline)) unsigned long deeper(unsigned int key) {
    unsigned long *value = bpf_map_lookup_elem(&counts, &key);
    return value ? *value : 0;
}
static __attribute__((noinline)) unsigned long deep(unsigned int key) { return deeper(key) + deeper(key + 1); }

SEC("xdp")
int first(struct xdp_md *context) { return deep(context->ingress_ifindex) & 1 ? XDP_PASS : XDP_DROP; }

SEC("classifier")
int second(struct __sk_buff *context) { return deeper(context->ifindex) & 1; }
"""
)
MAP_IN_MAP = source_of("""
struct definition {
    unsigned int type, key_size, value_size, max_entries, map_flags, inner_map_idx, numa_node;
};
struct definition inner SEC("maps") = {BPF_MAP_TYPE_ARRAY, 4, 4, 1};
struct definition outer SEC("maps") = {BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, 0, 2, 0, 0};

SEC("socket1")
int looks_twice(struct __sk_buff *context) {
    unsigned int key = 0, *value;
    void *found = bpf_map_lookup_elem(&outer, &key);
    if (!found)
        return 0;
    value = bpf_map_lookup_elem(found, &key);
    return value ? *value : 0;
}
""")
SECTION = struct.Struct("<IIQQQQIIQQ")
SHT_RELA, SHT_REL = 4, 9


def sections(content: bytes) -> list[list[int]]:
    """The section table: name, type, flags, address, offset, size, link, info, alignment, entry size."""
    (offset,) = struct.unpack_from("<Q", content, 40)
    (count,) = struct.unpack_from("<H", content, 60)
    return [list(SECTION.unpack_from(content, offset + i * SECTION.size)) for i in range(count)]


def with_sections(content: bytes, table: list[list[int]]) -> bytes:
    """Return the object with another section table, which is appended."""
    padded = bytearray(content + bytes(-len(content) % 8))
    struct.pack_into("<Q", padded, 40, len(padded))
    return bytes(padded) + b"".join(SECTION.pack(*row) for row in table)


def to_rela(content: bytes) -> bytes:
    """Return the object with its relocations rewritten as relocations with addend 0."""
    table, out = sections(content), content
    for row in table:
        if row[1] == SHT_REL:
            entries = [content[row[4] + at : row[4] + at + 16] for at in range(0, row[5], 16)]
            out += bytes(-len(out) % 8)
            row[1], row[4], row[5], row[9] = SHT_RELA, len(out), 24 * len(entries), 24
            out += b"".join(entry + bytes(8) for entry in entries)
    return with_sections(out, table)


def cyclic(content: bytes) -> bytes:
    """Return the object with relocations of relocations: every such section claims to relocate itself."""
    table = sections(content)
    for rank, row in enumerate(table):
        if row[1] in (SHT_REL, SHT_RELA):
            row[7] = rank
    return with_sections(content, table)


STATIC_AND_PINNED = source_of("""
#define PIN_OF_ANOTHER_LOADER 16
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 2);
    __uint(key_size, 4);
    __uint(value_size, 4);
    __uint(pinning, PIN_OF_ANOTHER_LOADER);
} calls SEC(".maps");
static __attribute__((used, section("xdp/tail"))) int reached_by_a_tail_call(struct xdp_md *context) {
    return context->rx_queue_index ? XDP_PASS : XDP_DROP;
}
SEC("xdp/entry")
int entry(struct xdp_md *context) {
    bpf_tail_call(context, &calls, 1);
    return XDP_PASS;
}
""")
HUGE_HASH = source_of("""
struct {
    __uint(type, BPF_MAP_TYPE_%s);
    __uint(max_entries, %d);
    __type(key, unsigned int);
    __type(value, unsigned char[4096]);
} table SEC(".maps");
SEC("xdp")
int looks_up(struct xdp_md *context) {
    unsigned int key = context->rx_queue_index;
    unsigned char *value = bpf_map_lookup_elem(&table, &key);
    return value && value[4095] ? XDP_PASS : XDP_DROP;
}
""")

SLEEPS = source_of("""
SEC("uprobe.multi.s//bin/true:main")
int sleeps(void *context) {
    char word[8];

    return bpf_copy_from_user(word, sizeof(word), context) < 0;
}
""")
"""A section that libbpf knows from 1.3 on. Without its flag the kernel refuses the helper, which may sleep."""

STORAGE = source_of("""
struct {
    __uint(type, %d);
    __uint(map_flags, %d);
    __type(key, %s);
    __type(value, long);
} held SEC(".maps");

SEC("cgroup_skb/egress")
int passes(struct __sk_buff *context) {
    return (long)&held != 0;
}
""")
"""A map whose entries the kernel counts itself: it refuses any other number than 0."""

EXCEPTION = source_of("""
__attribute__((btf_decl_tag("exception_callback:caught"))) SEC("tc")
int throws(struct __sk_buff *context) {
    return 0;
}

__attribute__((noinline)) int caught(unsigned long cookie) {
    return cookie == 0;
}
""")
"""libbpf hands over the callback from 1.3 on; without it the kernel refuses a program that is right."""
