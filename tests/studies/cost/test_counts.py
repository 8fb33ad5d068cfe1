"""From what the plugin counted to a packet's cost: where an instruction belongs, and which counts are believed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from xdplab.absent import Absent
from xdplab.errors import UnsupportedError
from xdplab.studies.cost.counts import Cost, cost_of, shares_of, shares_text
from xdplab.studies.cost.measurement import (
    ALLOCATOR,
    APPLICATION,
    CALLED,
    PATH,
    PROGRAM,
    Instruction,
    Measurement,
    SourceLine,
)
from xdplab.studies.cost.runs import root_of
from xdplab.studies.cost.stacks import Box, boxes, flame, folded, speedscope
from xdplab.studies.plugin import CodeBlock, Plugin, accesses, accesses_of, arm64_accesses

KERNEL = 0xFFFFFFFF81000000
SEND, RECEIVE, HELPER, TICK, WORK, ALLOCATE, SLOWLY = (KERNEL + 0x100 * number for number in range(7))
PROGRAM_AT, SENDER_AT, SINK_AT = 0xFFFFFFFFC0001000, 0xFFFFFFFFC0002000, 0xFFFFFFFFC0003000
TRAMPOLINE = 0xFFFFFFFFC0004000
USER = 0x555555554000
SYMBOLS = [
    (USER, "afxdp_user:forward"),
    (SEND, "xdp_test_run_batch"),
    (RECEIVE, "veth_poll"),
    (HELPER, "bpf_ktime_get_ns"),
    (TICK, "asm_sysvec_apic_timer_interrupt"),
    (WORK, "rcu_core"),
    (ALLOCATE, "kmem_cache_free"),
    (SLOWLY, "__slab_free"),
]
"""xdp_test_run_batch calls the sender's program and veth_poll, which calls the program, which calls a helper."""
CALL_SENDER, CALL_POLL, CALL_PROGRAM, CALL_HELPER = SEND + 4, SEND + 8, RECEIVE + 4, PROGRAM_AT + 4

WindowCounts = tuple[Any, ...]
"""Of a window: frames, what ran, and the program's runs by their instructions, 10 each if it lacks them."""

PATHS = [
    (0, SEND + 0), (1, SEND),  # 2: below the sending function
    (2, CALL_SENDER), (3, SENDER_AT),  # 4
    (2, CALL_POLL), (5, RECEIVE),  # 6
    (6, CALL_PROGRAM), (7, PROGRAM_AT),  # 8
    (8, CALL_HELPER), (9, HELPER),  # 10
    (6, CALL_PROGRAM), (11, SINK_AT),  # 12
    (6, RECEIVE + 9), (13, TICK),  # 14
    (0, USER), (15, USER),  # 16: an application in user space
    (6, RECEIVE + 5), (17, ALLOCATE),  # 18: below the function that receives
    (18, ALLOCATE + 3), (19, SLOWLY),  # 20
    (10, HELPER + 1), (21, ALLOCATE),  # 22: below the helper
    (6, CALL_PROGRAM), (23, TRAMPOLINE),  # 24
]  # fmt: skip
BLOCKS = [
    SEND,
    SENDER_AT,
    RECEIVE,
    PROGRAM_AT,
    HELPER,
    SINK_AT,
    TICK,
    PROGRAM_AT + 6,
    USER,
    ALLOCATE,
    SLOWLY,
    TRAMPOLINE,
]
SIZES = [4, 3, 10, 2, 5, 1, 40, 3, 6, 7, 8, 9]
"""Instructions of each block, a byte each."""

LINES = [
    {"address": PROGRAM_AT, "line": 7, "file": "/some/a.bpf.c", "text": "  now = bpf_ktime_get_ns();"},
    {"address": PROGRAM_AT + 6, "line": 9, "file": "/some/a.bpf.c", "text": "  return XDP_TX;"},
]


def _plugin(
    windows: Sequence[tuple[Sequence[tuple[int, ...]], Mapping[int, int], Sequence[tuple[int, ...]]]],
) -> Plugin:
    lines = ["counting"]
    for start, size in zip(BLOCKS, SIZES, strict=True):
        lines.append(f"block {start:x} on {','.join('1' * size)} {'90' * size}")
    lines += [f"path {parent} {address:x}" for parent, address in PATHS]
    for ran, took, touched in windows:
        lines.append("window")
        lines += [f"ran {path} {block} {times}" for path, block, times in ran]
        lines += [f"took {instructions} {times}" for instructions, times in took.items()]
        lines += [f"touched {path} {block} {address:x}" for path, block, address in touched]
    return Plugin(("\n".join(lines) + "\n").encode())


def _frames(count: int, *, once: int = 5, ran: int | None = None, helper: int | None = None) -> list[tuple[int, ...]]:
    """What runs while so many frames pass: ``once`` belongs to the call that sends them."""
    times = count if ran is None else ran
    return [
        (2, 0, once + count),
        (4, 1, count),
        (6, 2, count),
        (8, 3, times),
        (10, 4, count if helper is None else helper),
        (8, 7, times),
        (12, 5, count),
        (14, 6, 3),
    ]


def _measurement(
    windows: Sequence[WindowCounts], lines: Sequence[dict[str, Any]] = LINES, touching: Sequence[WindowCounts] = ()
) -> Measurement:
    def program(role: str, at: int, size: int, lines: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        functions = [{"name": role, "address": at, "code": "90" * size}]
        return {"type": "program", "role": role, "name": role, "insns": 3, "functions": functions, "lines": lines}

    printed = [{"type": "window", "frames": window[0]} for window in windows]
    printed += [{"type": "touched", "frames": window[0]} for window in touching]
    printed += [program("program", PROGRAM_AT, 9, lines), program("sender", SENDER_AT, 3), program("sink", SINK_AT, 1)]
    counts = [(window[1], window[2] if len(window) > 2 else {10: window[0]}, ()) for window in windows]
    counts += [window[1:] for window in touching]
    return Measurement(_plugin(counts), printed, SYMBOLS)


def _cost(*windows: WindowCounts) -> Cost:
    return cost_of(_measurement(windows))


def test_a_packet_costs_what_a_longer_window_has_beyond_a_shorter_one() -> None:
    cost = _cost((256, _frames(256)), (512, _frames(512)))
    assert {scope: tally.instructions for scope, tally in cost.tallies.items()} == {PROGRAM: 5, CALLED: 5, PATH: 14}
    assert (cost.total, set(cost.halves.values())) == (24, {0})
    assert cost.came_back == 1
    assert cost.functions == {"xdp_test_run_batch": 4, "veth_poll": 10, "bpf:program": 5, "bpf_ktime_get_ns": 5}


def test_a_line_has_its_own_instructions_and_those_of_what_it_calls() -> None:
    cost = _cost((256, _frames(256)), (512, _frames(512)))
    assert cost.lines == {
        SourceLine("a.bpf.c", 7, "now = bpf_ktime_get_ns();"): (2, 5),
        SourceLine("a.bpf.c", 9, "return XDP_TX;"): (3, 0),
    }


def test_an_instruction_that_runs_in_the_next_block_only_belongs_to_that() -> None:
    text = b"counting\nblock ffd on 1,2 90e800\nshorter 0\nblock ffe call 5 e800000000\n"
    first, second = Plugin(text).blocks
    assert first == CodeBlock((0xFFD,), "on", b"\x90")
    assert second.addresses == (0xFFE,)


def test_code_without_a_known_line_is_told_by_instruction() -> None:
    windows = [(256, _frames(256)), (512, _frames(512))]
    cost = cost_of(_measurement(windows, lines=[]))
    nops = [0, 1, 6, 7, 8]
    assert cost.lines == {
        Instruction("program", offset, "nop"): (offset in nops, 5 * (offset == 4)) for offset in (*nops, 4)
    }


def test_call_stacks_of_a_packet_are_those_of_its_functions() -> None:
    stacks = _cost((256, _frames(256)), (512, _frames(512))).stacks
    assert folded(stacks).splitlines()[-1] == (
        "xdp_test_run_batch;xdp_test_run_batch;veth_poll;bpf:program;bpf_ktime_get_ns 5.000"
    )
    profile = speedscope("a", stacks)["profiles"][0]
    assert (sum(profile["weights"]), len(profile["samples"])) == (24, len(stacks))


def test_the_most_common_count_of_whole_windows_is_taken() -> None:
    disturbed = (256, _frames(256, once=60))
    late = (512, _frames(512, ran=500))  # twelve frames were left for later
    cost = _cost(disturbed, late, *[(256, _frames(256)), (512, _frames(512))] * 2)
    assert cost.total == 24


def test_a_window_in_which_an_interrupt_hid_calls_is_not_taken_though_its_total_is_the_most_common() -> None:
    disturbed = (256, _frames(256, helper=252, once=10))
    cost = _cost(disturbed, (256, _frames(256)), (256, _frames(256, once=6)), (512, _frames(512)), (512, _frames(512)))
    assert cost.tallies[CALLED].instructions == 5


def test_what_runs_in_user_space_is_the_applications() -> None:
    cost = _cost(*((count, [*_frames(count), (16, 8, 7 + 2 * count)]) for count in (256, 512)))
    assert cost.tallies[APPLICATION].instructions == 2 * 6
    assert cost.functions["afxdp_user:forward"] == 2 * 6
    assert cost.total == 24 + 2 * 6


def test_an_application_that_does_not_repeat_itself_has_no_cost() -> None:
    windows = [(count, [*_frames(count), (16, 8, count + more)]) for count in (256, 512) for more in (0, 1, 2)]
    with pytest.raises(UnsupportedError, match=r"application takes \d+ to \d+"):
        _cost(*windows)


def test_a_total_on_which_windows_do_not_agree_has_the_range_of_most_of_them() -> None:
    cost = _cost(*((256, _frames(256, once=once)) for once in (5, 6, 900)), (512, _frames(512)))
    assert cost.halves == {PATH: Fraction(SIZES[0], 256), ALLOCATOR: 0}
    assert not cost.agreed
    assert cost.tallies[PROGRAM].instructions == 5


@pytest.mark.parametrize(("quiet", "is_exact"), [(5, True), (4, False)])
def test_where_enough_windows_are_quiet_those_with_interrupts_are_left_out(quiet: int, is_exact: bool) -> None:
    calm = [(frames, _frames(frames)) for frames in (256, 512)] * quiet
    busy = [(n, [*_frames(n, once=9 * number), (14, 6, number)]) for n in (256, 512) for number in range(1, 9)]
    assert _cost(*calm, *busy).agreed == is_exact


ALLOCATED, SLOW, IN_HELPER, CHOSEN = (18, 9), (20, 10), (22, 9), (24, 11)


@pytest.mark.parametrize(
    ("block", "more", "half"),
    [(ALLOCATED, {ALLOCATOR: 7}, 0), (SLOW, {ALLOCATOR: 8}, 8), (IN_HELPER, {CALLED: 7}, 0), (CHOSEN, {}, 0)],
)
def test_what_other_boots_may_not_take_is_apart_from_the_path(
    block: tuple[int, int], more: dict[str, int], half: int
) -> None:
    """Objects that do not lie in the CPU's slab, and where programs lie: both are the boot's."""
    cost = _cost(*((count, [*_frames(count), (*block, count)]) for count in (256, 512)))
    expected = Counter({PROGRAM: 5, CALLED: 5, PATH: 14}) + Counter(more)
    assert {scope: tally.instructions for scope, tally in cost.tallies.items()} == expected
    assert cost.halves == {PATH: 0, ALLOCATOR: half}
    assert set(cost.ranged.values()) == ({half} if half else set())
    assert cost.agreed


def test_a_path_through_a_socket_is_never_called_exact() -> None:
    by_packets = _measurement([(n, _frames(n)) for n in (256, 512)])
    del by_packets.entries["sender"]
    to_user_space = _measurement([(n, [*_frames(n), (16, 8, n)]) for n in (256, 512)])
    for cost in map(cost_of, (by_packets, to_user_space)):
        assert (cost.halves[PATH] > 0, cost.agreed) == (True, True)


def test_packets_that_take_different_paths_have_their_shares() -> None:
    """Of 256 packets a quarter takes 4 instructions, the others 12: 10 on average, as the windows have."""
    cost = _cost(*((n, _frames(n), {4: n // 4, 12: n - n // 4}) for n in (256, 512)))
    assert cost.shares == {12: Fraction(3, 4), 4: Fraction(1, 4)}


def test_runs_that_an_interrupt_made_longer_are_not_taken_for_paths() -> None:
    assert _cost(*((n, _frames(n), {10: n - 1, 99: 1}) for n in (256, 512))).shares == {}


@pytest.mark.parametrize(
    ("alone", "program"),
    [
        ([[0x1000], [0x1000, 0x1040], [0x2000, 0x2040], [0x3000, 0x3040], [0x4000]], (2, 1)),
        ([[0x1000], [0x1000, 0x1040], []], "differs"),
        ([], "alone"),
    ],
)
def test_cache_lines_are_those_on_which_most_frames_that_come_alone_agree(
    alone: list[list[int]], program: tuple[int, int] | str
) -> None:
    windows = [(1, [(8, 3, 1), (4, 1, 1)], {}, [(8, 3, line) for line in lines]) for lines in alone]
    measurement = _measurement([(n, _frames(n)) for n in (256, 512)], touching=windows)
    lines = cost_of(measurement).cache_lines
    assert lines[PROGRAM] == program if isinstance(program, tuple) else isinstance(lines[PROGRAM], Absent)
    assert isinstance(lines[PATH], Absent)  # with a sender's program


def test_shares_in_words_have_the_largest_first() -> None:
    shares = shares_of({31: 52, 77: 48})
    assert shares_text(shares) == "52 % of packets 31 instructions, 48 % 77"
    assert "7 % 5 to 10, 3 ways" in shares_text(shares_of({1: 40, 2: 30, 3: 20, 4: 3, 5: 3, 6: 3, 10: 1}))


@pytest.mark.parametrize(
    ("way", "names", "chosen"),
    [
        ("live", ["bpf_test_run_xdp_live", "xdp_test_run_batch.constprop.0.cold", "xdp_test_run_batch.constprop.0"], 2),
        ("live", ["xdp_test_run", "bpf_test_run_xdp_live"], 1),
        ("test_run", ["bpf_test_run_xdp_live", "bpf_test_run"], 1),
    ],
)
def test_the_function_below_which_frames_are_sent(way: str, names: list[str], chosen: int) -> None:
    assert root_of(way, list(enumerate(names))) == chosen


def test_a_kernel_that_hides_where_frames_are_sent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="xdp_test_run_batch"):
        root_of("live", [one for one in SYMBOLS if one[0] != SEND])


def _long_runs(count: int, runs: int) -> WindowCounts:
    """So many of the frames' runs call the helper twice."""
    return count, _frames(count, helper=count + runs), {10: count - runs, 15: runs} if runs else {10: count}


def _disturbed(count: int, longer: int) -> WindowCounts:
    """An interrupt comes in each window while a program runs, and so many of the frames' runs are longer."""
    rows = [row for row in _frames(count) if row[:2] != (8, 7)] + [(8, 7, count + longer)]
    return count, rows, {10: count - 1, 50: 1}


def _sent_back(count: int, back: int) -> WindowCounts:
    return count, [row for row in _frames(count) if row[:2] != (12, 5)] + [(12, 5, back)]


EVERY_HUNDREDTH = [(256, 2), (512, 5), (256, 3), (512, 5), (256, 3), (512, 5), (256, 2), (512, 5), (256, 3), (512, 5)]
"""Frames of ten windows in a row, and how many of them are hundredth ones."""


def test_a_packet_that_takes_another_path_once_a_window_cancels_out() -> None:
    cost = _cost(_long_runs(256, 1), _long_runs(512, 1))
    assert cost.tallies[CALLED].instructions == 5
    assert _cost(_disturbed(256, 1), _disturbed(512, 1)).tallies[PROGRAM].instructions == 5


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([(256, _frames(256, ran=0)), (512, _frames(512, ran=0))], "never saw a frame"),
        ([(256, _frames(256, ran=200)), (512, _frames(512, ran=400))], "200 of 256, 400 of 512"),
        ([(n, _frames(n, helper=n + i)) for i in range(4) for n in (256, 512)], "another path each time"),
        ([_long_runs(n, runs) for n, runs in EVERY_HUNDREDTH], "another path each time: 99 % .* 10 .*, 0.99"),
        ([_long_runs(n, runs) for n, runs in ((256, 85), (512, 171))], "another path each time"),
        ([_long_runs(n, runs) for n, runs in ((256, 0), (512, 200))], "another path each time"),
        ([_disturbed(n, longer) for n, longer in EVERY_HUNDREDTH], "another path each time"),
        ([_sent_back(256, 256), _sent_back(512, 320)], "256 of 256, of others 320 of 512"),
    ],
)
def test_what_cannot_be_believed_is_refused(windows: list[WindowCounts], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        _cost(*windows)


@pytest.mark.parametrize(
    ("instruction", "loads", "stores"),
    [
        (("mov", "0x8(%rax),%rbx"), 1, 0),
        (("mov", "%rbx,0x8(%rax)"), 0, 1),
        (("add", "%rbx,0x8(%rax)"), 1, 1),
        (("incl", "%gs:0x15d80"), 1, 1),
        (("cmp", "$0x1,(%rax)"), 1, 0),
        (("lea", "0x8(%rax),%rbx"), 0, 0),
        (("nopl", "0x0(%rax,%rax,1)"), 0, 0),
        (("push", "%rbp"), 0, 1),
        (("pop", "%rbp"), 1, 0),
        (("call", "0x1234"), 0, 1),
        (("call", "*0x18(%rax)"), 1, 1),
        (("jmp", "0x1234"), 0, 0),
        (("jmp", "*0x8(,%rax,8)"), 1, 0),
        (("ret", ""), 1, 0),
        (("movsq", "%ds:(%rsi),%es:(%rdi)"), 1, 1),
        (("stos", "%rax,%es:(%rdi)"), 0, 1),
        (("movzbl", "0x3(%rdi),%eax"), 1, 0),
        (("cmpxchg", "%rcx,(%rdx)"), 1, 1),
        (("leave", ""), 1, 0),
        (("popcnt", "%rdi,%rax"), 0, 0),
        (("popcnt", "(%rdi),%rax"), 1, 0),
        (("bt", "%rax,(%rdi)"), 1, 0),
        (("bts", "%rax,(%rdi)"), 1, 1),
        (("btrl", "$0x1,0x8(%rdi)"), 1, 1),
        (("verw", "-0x12(%rip)"), 1, 0),
    ],
)
def test_loads_and_stores_of_an_instruction(instruction: tuple[str, str], loads: int, stores: int) -> None:
    assert accesses(*instruction) == (loads, stores)


@pytest.mark.parametrize(
    ("instruction", "loads", "stores"),
    [
        (("ldr", "x4, [x3, #72]"), 1, 0),
        (("ldp", "x29, x30, [sp], #16"), 1, 0),
        (("stp", "xzr, x26, [sp, #-16]!"), 0, 1),
        (("ldxr", "w4, [x0]"), 1, 0),
        (("stlxr", "w5, w4, [x0]"), 0, 1),
        (("ldadd", "x1, x2, [x0]"), 1, 1),
        (("stset", "x1, [x0]"), 1, 1),
        (("cas", "x1, x2, [x0]"), 1, 1),
        (("dc", "zva, x3"), 0, 1),
        (("dc", "cvac, x3"), 0, 0),
        (("prfm", "pldl1keep, [x0]"), 0, 0),
        (("bl", "0x1234"), 0, 0),
        (("mov", "x20, #0x6b"), 0, 0),
    ],
)
def test_loads_and_stores_of_an_instruction_of_arm64(instruction: tuple[str, str], loads: int, stores: int) -> None:
    assert arm64_accesses(*instruction) == (loads, stores)


def test_each_piece_of_code_has_its_own_loads_and_stores() -> None:
    push_mov, lock_inc, ret = bytes.fromhex("55488b00"), bytes.fromhex("f0ff00"), bytes.fromhex("c3")
    assert accesses_of([push_mov, lock_inc, ret]) == [(1, 1), (1, 1), (1, 0)]


def test_a_picture_of_stacks_begins_at_the_first_function_that_does_not_hold_them_all() -> None:
    stacks = {("a", "b", "c"): Fraction(3), ("a", "b", "d", "e"): Fraction(1), ("a", "b"): Fraction(1)}
    assert boxes(stacks) == [Box("b", 0, 0, 5), Box("c", 1, 0, 3), Box("d", 1, 3, 1), Box("e", 2, 3, 1)]
    assert flame("a packet", stacks)._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"
