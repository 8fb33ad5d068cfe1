"""Exactly N accesses, by the object's bytecode; a program with one more or one less is found."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiled import tool_first_in_path

from xdplab.errors import ProgramError
from xdplab.hosts.local import LocalHost
from xdplab.programs import steps
from xdplab.programs.build import build
from xdplab.programs.counting import FRAME_LENGTHS, AccessCounts, require_cycle, require_reflected, sample_frame
from xdplab.programs.image import Image, Insn, Reference
from xdplab.programs.machine import SMP_PROCESSOR_ID, XDP_LOAD_BYTES, XDP_STORE_BYTES, Interpreter, Map
from xdplab.programs.onhost import _kernel_functions
from xdplab.programs.proof import count_bytecode
from xdplab.programs.source import HEADER_BYTES, random_cycle
from xdplab.programs.spec import ACCESSING, FORMS, HINTS, MAP_TYPES, OPS, SLOT_BYTES, ProgramSpec, UserProgram
from xdplab.programs.steps import step
from xdplab.programs.work import _Rewritten

EVERY_N = (0, 1, 32, 33, 1600)
KINDS = [
    (workload, map_type) for workload in ACCESSING for map_type in (MAP_TYPES if workload == "lookup" else (None,))
]
MOV, STORE, LOAD, EXIT = 0xB7, 0x7B, 0x79, 0x95


def accesses_per_packet(spec: ProgramSpec, n: int) -> AccessCounts:
    """The promises of the workloads' definitions, written a second time."""
    calls = 2 * n if spec.map_type == "hash_of_maps" else n
    return {
        "array": {"read": AccessCounts(n, 0, 0), "write": AccessCounts(0, n, 0)},
        "packet": {"read": AccessCounts(n, 0, 0), "write": AccessCounts(n, n, 0)},
        "chase": {"read": AccessCounts(n, 0, 0), "write": AccessCounts(n, n, 0)},
        "lookup": {"read": AccessCounts(n, 0, calls), "write": AccessCounts(0, n, calls)},
    }[spec.workload][spec.op]


EACH_FORM = [
    pytest.param(
        form, *kind, marks=[pytest.mark.thorough] * (form != FORMS[0] and kind[1] not in (None, *MAP_TYPES[:1]))
    )
    for form in FORMS
    for kind in KINDS
]
"""A form is a way to walk, a map type a way to find: that each pair of them counts, too, is rarely in doubt."""


@pytest.mark.parametrize("op", [OPS[0], pytest.param(OPS[1], marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("form", "workload", "map_type"), EACH_FORM)
def test_every_program_makes_exactly_n_accesses(workload, map_type, op, form, cache):
    for n in EVERY_N:
        if n == 1600 and form == "unrolled" and workload == "lookup":
            continue  # clang takes a minute for all; N = 100 shows the form
        spec = ProgramSpec(workload, n, op, form, map_type=map_type)
        assert count_bytecode(build(spec, cache).image, spec) == [accesses_per_packet(spec, n)] * 4


@given(st.integers(0, 400), st.sampled_from(KINDS), st.sampled_from(OPS), st.integers(8, 14))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_n_and_any_working_set(cache, n, kind, op, size):
    workload, map_type = kind
    spec = ProgramSpec(
        workload, n, op, working_set_bytes=None if workload == "packet" else 1 << size, map_type=map_type
    )
    lengths = (60, 61, 333, 1514, 60)
    assert count_bytecode(build(spec, cache).image, spec, lengths) == [accesses_per_packet(spec, n)] * len(lengths)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("workload", "n"), [("packet", 33), ("packet", 9300), ("array", 100), ("packet", 0)])
def test_with_several_buffers_it_makes_n_accesses_too(workload, n, op, cache):
    """9,300 accesses of a frame of 9,212 bytes reach each byte behind its first buffer, then begin again."""
    spec = ProgramSpec(workload, n, op, frags=True)
    image = build(spec, cache).image
    assert image.section == "xdp.frags"
    assert count_bytecode(image, spec) == [accesses_per_packet(spec, n)] * 5


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("workload", "map_type"), KINDS)
def test_a_program_of_tc_makes_n_accesses_too(workload, map_type, op, cache):
    """Of the frame only the Ethernet header is in the first buffer: the program gets the rest before it reads it."""
    for n in (0, 100):
        spec = ProgramSpec(workload, n, op, map_type=map_type, hook="tc")
        image = build(spec, cache).image
        assert image.section == "tc"
        assert count_bytecode(image, spec) == [accesses_per_packet(spec, n)] * 4


def test_each_byte_behind_the_first_buffer_is_reached(cache):
    machine = Interpreter(build(ProgramSpec("packet", 9198, frags=True), cache).image, {})
    machine.run(sample_frame(9212))
    loads = [offset for offset, _, is_store in machine.frame_trace if offset >= 14 and not is_store]
    assert set(loads) == set(range(14, 9212))
    assert len(loads) == 9198


def test_a_long_proof_is_quick(cache):
    spec = ProgramSpec("array", 12800)
    image = build(spec, cache).image
    start = time.process_time()
    count_bytecode(image, spec)
    assert time.process_time() - start < 1.0


def test_the_walk_goes_on_where_the_last_packet_stopped_and_reaches_every_word(cache):
    spec = ProgramSpec("array", 100, working_set_bytes=4096)
    image = build(spec, cache).image
    state = Map(bytearray(64 + 4096 + 31 * 8), 64 + 4096 + 31 * 8)
    machine = Interpreter(image, {"working_set": state})
    for _ in range(6):
        machine.run(bytes(60))
    offsets = [offset for offset, _, _ in machine.region("value of working_set").trace if offset >= 64]
    assert offsets[:200] == [64 + 8 * word for word in range(200)]
    assert set(offsets) == {64 + 8 * word for word in range(512)}


def test_a_packet_that_ends_with_the_map_is_followed_by_its_first_keys(cache):
    spec = ProgramSpec("lookup", 25, map_type="hash", entries=100, hit=1)  # only key 0 has an entry
    counts = count_bytecode(build(spec, cache).image, spec, [60] * 6)
    assert [count.loads for count in counts] == [1, 0, 0, 0, 1, 0]


def test_short_and_long_frames_are_read_to_their_last_byte(cache):
    image = build(ProgramSpec("packet", 12800), cache).image
    machine = Interpreter(image, {})
    for length in (60, 61, 1514):
        machine.run(bytes(length))
        assert {offset for offset, _, _ in machine.frame_trace if offset >= 14} == set(range(14, length))


def tampered(image: Image, at: int, insn: Insn) -> Image:
    return replace(image, insns=(*image.insns[:at], insn, *image.insns[at + 1 :]))


def test_a_removed_access_is_found_out(cache):
    spec = ProgramSpec("array", 33)
    image = build(spec, cache).image
    loads = [at for at, insn in enumerate(image.insns) if insn.code == LOAD and insn.off > 64]
    with pytest.raises(ProgramError, match="promises 33 loads, 0 stores, 0 lookups per packet and makes 32 loads"):
        count_bytecode(tampered(image, loads[3], Insn(MOV, image.insns[loads[3]].dst, 0, 0, 0)), spec)


def test_one_access_too_many_is_found_out(cache):
    spec = ProgramSpec("lookup", 100)
    more = build(replace(spec, accesses=101), cache).image
    with pytest.raises(ProgramError, match=r"100 lookups per packet and makes 101 loads, 0 stores, 101 lookups"):
        count_bytecode(more, spec)


def test_links_that_are_not_followed_are_found_out(cache):
    spec = ProgramSpec("chase", 33)
    image = build(spec, cache).image
    loads = [at for at, insn in enumerate(image.insns) if insn.code == LOAD and insn.src != 10]
    stuck = replace(image.insns[loads[5]], dst=5)  # loads, but into a register that the proof does not follow
    with pytest.raises(ProgramError, match="leaves the cycle"):
        count_bytecode(tampered(image, loads[5], stuck), spec)
    slots = random_cycle((spec.working_set_bytes or 0) // SLOT_BYTES)
    second, due = HEADER_BYTES + SLOT_BYTES * int(slots[0]), int(slots[0])
    require_cycle(spec, [HEADER_BYTES, second], "here")
    for wrong in (second - SLOT_BYTES, second + SLOT_BYTES):
        with pytest.raises(ProgramError, match=f"here: .* leaves the cycle: slot {due} was due"):
            require_cycle(spec, [HEADER_BYTES, wrong], "here")


def test_a_frame_that_is_not_reflected_is_found_out(cache):
    spec = ProgramSpec("packet", 32, "write")
    image = build(spec, cache).image
    verdict = max(at for at, insn in enumerate(image.insns) if insn.code in (0xB7, 0xB4) and insn.imm == 3)
    with pytest.raises(ProgramError, match=r"returns 2 where XDP_TX \(3\)"):
        count_bytecode(tampered(image, verdict, replace(image.insns[verdict], imm=2)), spec)
    store = next(at for at, insn in enumerate(image.insns) if insn.code == 0x73)
    with pytest.raises(ProgramError, match="changes more of the frame than its MAC addresses"):
        count_bytecode(tampered(image, store, replace(image.insns[store], code=0x72, imm=0xA5)), spec)


@pytest.mark.parametrize("end", [slice(0, 12), slice(12, 60)], ids=["not swapped", "payload"])
def test_a_frame_that_is_not_swapped_or_changed_elsewhere_is_found_out(end: slice) -> None:
    before = sample_frame(60)
    reflected = before[6:12] + before[:6] + before[12:]
    require_reflected(ProgramSpec("array", 1), before, reflected, "here")
    wrong = bytearray(reflected)
    wrong[end] = before[end] if end.start == 0 else bytes(48)
    with pytest.raises(ProgramError):
        require_reflected(ProgramSpec("array", 1), before, bytes(wrong), "here")


@pytest.mark.parametrize(
    ("insns", "words"),
    [
        ([Insn(LOAD, 0, 10, 8, 0), Insn(EXIT, 0, 0, 0, 0)], "accesses 8 bytes at 0x208 of stack"),
        ([Insn(LOAD, 0, 2, 0, 0), Insn(EXIT, 0, 0, 0, 0)], "no memory at all"),
        ([Insn(0x85, 0, 0, 0, 25), Insn(EXIT, 0, 0, 0, 0)], "does not know BPF helper 25"),
        ([Insn(0x85, 0, 0, 0, 8), Insn(0x61, 0, 1, 0, 0), Insn(EXIT, 0, 0, 0, 0)], "no memory at all"),  # r1 is lost
        ([Insn(0x05, 0, 0, -1, 0)], "did not end within"),
        ([Insn(0x06, 0, 0, 0, 7)], "jumps out of itself"),
        ([Insn(0x03, 1, 2, 0, 0)], "does not know the BPF instruction 0x03"),
        ([Insn(0xD3, 10, 0, -8, 0)], "does not know the BPF instruction 0xd3"),  # of one byte
        ([Insn(0xDB, 10, 0, -8, 0x10)], "does not know the BPF instruction 0xdb"),
        ([Insn(0x3F, 1, 2, 1, 0)], "does not know the BPF instruction 0x3f"),  # signed
        ([Insn(0x85, 0, 3, 0, 8), Insn(EXIT, 0, 0, 0, 0)], "does not know the BPF instruction 0x85"),  # by another id
        ([Insn(0xF5, 10, 0, -8, 0)], "does not know the BPF instruction 0xf5 at 0"),
    ],
)
def test_what_the_proof_cannot_follow_it_refuses(insns, words, monkeypatch):
    monkeypatch.setattr("xdplab.programs.machine._MAX_STEPS", 1000)
    machine = Interpreter(Image("probe", "xdp", tuple(insns), {}, {}, {}), {})
    with pytest.raises(ProgramError, match=words):
        machine.run(bytes(60))


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("kfunc", [False, True])
def test_a_call_loses_registers_1_to_5_and_no_other(kernels: bool, kfunc: bool) -> None:
    image = Image("probe", "xdp", (Insn(EXIT, 0, 0, 0, 0),), {}, {}, {})
    machine = _Rewritten(image.insns, "x86_64") if kernels else Interpreter(image, {})
    registers = list(range(11))
    machine.call_kfunc(0, registers) if kfunc else machine.call_helper(SMP_PROCESSOR_ID, registers)
    assert registers == [0, *[0xDEAD << 48] * 5, *range(6, 11)]


def test_a_kernel_that_hides_its_addresses_has_no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool_first_in_path(monkeypatch, tmp_path, "grep", "#!/bin/sh\nexit 1\n")
    assert _kernel_functions(LocalHost(), [Insn(0x85, 0, 0, 0, 5)]) is None


TOP, ALL, LOW = 1 << 63, (1 << 64) - 1, (1 << 32) - 1


@pytest.mark.parametrize(
    ("code", "left", "right", "result", "text"),
    [  # 64 bits end in 7 or f, 32 bits in 4 or c: their upper half becomes 0; with 8 the right side is a register
        *((0x0F, TOP, TOP, 0, "r1 += r2"), (0x04, ALL, 2, 1, "w1 += 2"), (0x1F, 0, 1, ALL, "r1 -= r2")),
        *((0x1C, 0, 1, LOW, "w1 -= w2"), (0x2F, ALL, 3, ALL - 2, "r1 *= r2"), (0x37, 7, 2, 3, "r1 /= 2")),
        *((0x3F, 7, 0, 0, "r1 /= r2"), (0x9F, 7, 0, 7, "r1 %= r2"), (0x97, 7, 4, 3, "r1 %= 4")),
        *((0x4F, 5, 3, 7, "r1 |= r2"), (0x5F, 5, 3, 1, "r1 &= r2"), (0xAF, 5, 3, 6, "r1 ^= r2")),
        *((0x6C, 1, 33, 2, "w1 <<= w2"), (0x67, 1, 63, TOP, "r1 <<= 63"), (0x77, TOP, 62, 2, "r1 >>= 62")),
        *((0xCF, TOP, 63, ALL, "r1 s>>= r2"), (0xCC, 0xFF << 56 | 1 << 31, 31, LOW, "w1 s>>= w2")),
        *((0xBF, 1, ALL, ALL, "r1 = r2"), (0xBC, 1, ALL, LOW, "w1 = w2"), (0xB7, 1, -2, ALL - 1, "r1 = -2")),
        *((0x87, 5, 0, ALL - 4, "r1 = -r1"), (0x84, 5, 0, LOW - 4, "w1 = -w1")),
        *((0xDC, 0x11_2233, 16, 0x3322, "r1 = be16 r1"), (0xD4, 0x11_2233, 16, 0x2233, "r1 = le16 r1")),
    ],
)
def test_arithmetic_is_the_kernels(code: int, left: int, right: int, result: int, text: str) -> None:
    insn = Insn(code, 1, 2, 0, right if code & 8 == 0 or code == 0xDC else 0)
    registers = [0, left, right]
    assert step(None, None, 3, insn)(registers) == 4
    assert registers == [0, result, right]
    assert steps.text(insn) == text


COMPARED = {0x10: "==", 0x20: ">", 0x30: ">=", 0x40: "&", 0x50: "!=", 0xA0: "<", 0xB0: "<=",
            0x60: "s>", 0x70: "s>=", 0xC0: "s<", 0xD0: "s<="}  # fmt: skip


@pytest.mark.parametrize("code", COMPARED)
@pytest.mark.parametrize(("kind", "letter", "bits"), [(5, "r", 64), (6, "w", 32)])
def test_a_branch_goes_where_the_kernels_goes(code: int, kind: int, letter: str, bits: int) -> None:
    sign = COMPARED[code]
    for left, right in ((1, 1), (1, 2), (2, 1), (-1, 1), (1, -1), (-2, -1)):
        sides = (left, right) if sign[0] == "s" else (left % (1 << bits), right % (1 << bits))
        holds = bool(eval(f"a {sign.removeprefix('s')} b", {"a": sides[0], "b": sides[1]}))
        for insn, other in (
            (Insn(code | kind, 1, 0, 7, right), right),
            (Insn(code | kind | 8, 1, 2, 7, 0), f"{letter}2"),
        ):
            beyond = 5 << 32 if bits == 32 else 0  # the upper half of 32 bits says nothing
            went = step(None, None, 3, insn)([0, left & ALL ^ beyond, right & ALL])
            assert went == (11 if holds else 4)
            assert steps.text(insn) == f"if {letter}1 {sign} {other} goto +7"


class Memory:
    """Eight bytes at 0x100."""

    def __init__(self) -> None:
        self.data = bytearray(range(0x11, 0x19))

    def load(self, address: int, size: int) -> int:
        return int.from_bytes(self.data[address - 0x100 :][:size], "little")

    def store(self, address: int, size: int, value: int) -> None:
        self.data[address - 0x100 : address - 0x100 + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


@pytest.mark.parametrize(
    ("insn", "register", "data", "text"),
    [
        (Insn(0x79, 3, 1, -8, 0), (3, 0x1817161514131211), None, "r3 = *(u64 *)(r1 -8)"),
        (Insn(0x61, 3, 1, -4, 0), (3, 0x18171615), None, "r3 = *(u32 *)(r1 -4)"),
        (Insn(0x69, 3, 1, -8, 0), (3, 0x1211), None, "r3 = *(u16 *)(r1 -8)"),
        (Insn(0x71, 3, 1, -1, 0), (3, 0x18), None, "r3 = *(u8 *)(r1 -1)"),
        (Insn(0x7B, 1, 2, -8, 0), None, "0f00000000000000", "*(u64 *)(r1 -8) = r2"),
        (Insn(0x62, 1, 0, -8, -2), None, "feffffff15161718", "*(u32 *)(r1 -8) = -2"),
        (Insn(0x6A, 1, 0, -8, 9), None, "0900131415161718", "*(u16 *)(r1 -8) = 9"),
        (Insn(0x73, 1, 2, -7, 0), None, "110f131415161718", "*(u8 *)(r1 -7) = r2"),
        (Insn(0xC3, 1, 2, -8, 0x00), (2, 0xF), "2012131415161718", ".insn "),
        (Insn(0xDB, 1, 2, -8, 0x01), (2, 0x1817161514131211), "2012131415161718", ".insn "),
        (Insn(0xC3, 1, 2, -8, 0x41), (2, 0x14131211), "1f12131415161718", ".insn "),
        (Insn(0xC3, 1, 2, -8, 0x50), (2, 0xF), "0100000015161718", ".insn "),
        (Insn(0xC3, 1, 2, -8, 0xA0), (2, 0xF), "1e12131415161718", ".insn "),
        (Insn(0xC3, 1, 2, -8, 0xE1), (2, 0x14131211), "0f00000015161718", ".insn "),
        (Insn(0xC3, 1, 2, -8, 0xF1), (0, 0x14131211), "0f00000015161718", ".insn "),
        (Insn(0xC3, 1, 2, -4, 0xF1), (0, 0x18171615), "1112131415161718", ".insn "),
    ],
)  # fmt: skip
def test_memory_is_read_and_written_as_the_kernel_does(insn, register, data, text) -> None:
    memory, registers = Memory(), [0x9914131211, 0x108, 0xF, 0]  # of r0, 32 bits are compared
    expected = registers.copy()
    if register is not None:
        expected[register[0]] = register[1]
    assert step(memory, None, 3, insn)(registers) == 4
    assert registers == expected
    assert memory.data.hex() == (data or "1112131415161718")
    assert steps.text(insn).startswith(text)


def test_a_listing_names_maps_and_subprograms() -> None:
    insns = (Insn(0x18, 1, 0, 0, 1), Insn(0, 0, 0, 0, 2), Insn(0x18, 2, 0, 0, 1), Insn(0, 0, 0, 0, 2),
             Insn(0x85, 0, 1, 0, 3), Insn(0x85, 0, 0, 0, 8), Insn(0x05, 0, 0, 1, 9), Insn(0x06, 0, 0, 1, 0),
             Insn(0x85, 0, 0, 0, 25), Insn(0x95, 0, 0, 0, 0))  # fmt: skip
    references = {0: Reference(".maps", "table", 0), 2: Reference(".bss", "state", 8)}
    image = Image("p", "xdp", insns, {0: "p", 8: "sub"}, references, {})
    assert replace(image, references=references | {4: Reference("maps", "older", 0)}).maps == ("table", "older")
    assert steps.disassemble(image).splitlines() == [
        "p:", "     0: r1 = table ll", "     2: r2 = state[8] ll", "     4: call sub",
        "     5: call bpf_get_smp_processor_id", "     6: goto +1", "     7: goto +0", "sub:", "     8: call 25",
        "     9: exit",
    ]  # fmt: skip
    assert steps.disassemble_xlated(insns, {8: "a", 25: "b", 3: "c"}).splitlines()[2:] == [
        "     4: call pc+3", "     5: call a", "     6: goto +1", "     7: goto +0", "     8: call b", "     9: exit",
    ]  # fmt: skip
    assert steps.text(insns[0], 2) == "r1 = 0x200000001 ll"
    assert steps.text(Insn(0x3F, 1, 2, 1, 0)) == "r1 /= r2 off=1"  # signed


def test_bytes_that_are_copied_from_a_frame_and_back_leave_what_lies_beside_them():
    copy = [Insn(0xBF, 3, 10, 0, 0), Insn(0x07, 3, 0, 0, -16), Insn(0xB7, 4, 0, 0, 8)]  # 8 bytes at r10 - 16
    beside = [Insn(MOV, 6, 0, 0, 7), Insn(STORE, 10, 6, -8, 0)]
    first = [Insn(MOV, 2, 0, 0, 0), *copy, Insn(0x85, 0, 0, 0, XDP_LOAD_BYTES)]
    back = [Insn(MOV, 2, 0, 0, 20), *copy, Insn(0x85, 0, 0, 0, XDP_STORE_BYTES)]
    insns = (*beside, *first, *back, Insn(LOAD, 0, 10, -8, 0), Insn(EXIT, 0, 0, 0, 0))
    frame = sample_frame(60)
    run = Interpreter(Image("probe", "xdp.frags", insns, {}, {}, {}), {}).run(frame)
    assert (run.verdict, run.frame) == (7, frame[:20] + frame[:8] + frame[28:])


def test_each_variable_has_its_place_in_its_section(cache, tmp_path):
    (tmp_path / "two.bpf.c").write_text(
        "const volatile int first = 1, second = 2;\nstatic const volatile int third = 3, fourth = 4;\n"
        '__attribute__((section("xdp"))) int two(void *ctx) { return 10 * second + fourth - third; }\n'
    )
    image = build(UserProgram(str(tmp_path / "two.bpf.c")), cache).image
    assert Interpreter(image, {}).run(bytes(60)).verdict == 21


def test_forms_differ_in_code_and_not_in_count(cache):
    sizes = {form: len(build(ProgramSpec("array", 1600, form=form), cache).image.insns) for form in FORMS}
    assert sizes["loop"] < sizes["bounded"] < sizes["unrolled"]
    assert sizes["unrolled"] > 1600


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("form", FORMS)
def test_the_bytecode_calls_its_kfunc_n_times(hint, form, cache):
    for n in (1, 33, 100):
        assert count_bytecode(build(ProgramSpec(hint, n, form=form), cache).image, ProgramSpec(hint, n)) == [
            AccessCounts(0, 0, n)
        ] * len(FRAME_LENGTHS)


def test_a_call_of_another_kfunc_is_no_proof(cache):
    other = build(ProgramSpec("rx_timestamp", 5), cache).image
    with pytest.raises(ProgramError, match="calls bpf_xdp_metadata_rx_timestamp"):
        count_bytecode(other, ProgramSpec("rx_hash", 5))
    with pytest.raises(ProgramError, match="promises"):
        count_bytecode(other, ProgramSpec("rx_timestamp", 4))
