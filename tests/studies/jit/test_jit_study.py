"""The study without a kernel: programs and filters with their models, points, joined tables, figures."""

import hashlib
import json
import lzma
import math
from pathlib import Path

import pandas as pd
import pytest

from xdplab.absent import Absent
from xdplab.errors import FormatError, NotApplicableError, PlanError, ProgramError
from xdplab.figures.kinds import OF_ALL_FIGURES, paint
from xdplab.hosts.local import LocalHost
from xdplab.programs.image import Image
from xdplab.programs.machine import Interpreter
from xdplab.run.frames import typed
from xdplab.studies.jit import classes, filters, joined, subjects, summaries
from xdplab.studies.jit.classes import A_AT, B_AT, CLASSES, FRAME, STACK, STORED_AT
from xdplab.studies.jit.filters import FRAMES
from xdplab.studies.jit.joined import KINDS, kind_of
from xdplab.studies.jit.kerneltests import Size, chosen_range, parse_sizes, read_module, watched
from xdplab.studies.jit.points import LOG, MODES, PARTS, SIZES_FILE, TESTS, JitPoint, JitRequest
from xdplab.studies.jit.published import EXPERIMENTS
from xdplab.studies.jit.rows import COLUMNS, _amplified, _filter, suite_rows
from xdplab.studies.jit.runs import STUDY
from xdplab.studies.jit.views import VIEWS, possible
from xdplab.studies.meaning import with_meanings
from xdplab.studies.points import schedule

A, B = (int.from_bytes(FRAME[at : at + 8], "little") for at in (A_AT, B_AT))
M64 = 2**64 - 1


def folded(a: int, total: int = 0, stack: int = A, stored: bytes = FRAME[STORED_AT : STORED_AT + 8]) -> int:
    """Return a program's result from A, its sum, the stack's word and the packet's word."""
    whole = (a ^ total ^ stack ^ int.from_bytes(stored, "little")) & M64
    return (whole ^ whole >> 32) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("add64 reg", lambda k: folded(A + k * B)),
        ("add32 imm", lambda k: folded((A + k * 12345) & 0xFFFFFFFF)),
        ("mul64 reg", lambda k: folded(A * B**k & M64)),
        ("div64 reg", lambda k: folded(A // B**k)),
        ("lsh64 imm", lambda k: folded(A << k & M64)),
        ("be32", lambda k: folded(0xEFCDAB89 if k % 2 else 0x89ABCDEF)),
        ("packet store 16", lambda k: folded(A, stored=FRAME[B_AT : B_AT + 2] + FRAME[STORED_AT + 2 : STORED_AT + 8])),
        ("jump taken", lambda k: folded(A)),
        ("atomic add 64", lambda k: folded(A, stack=A + k * B)),
        ("atomic exchange", lambda k: folded(A, stack=B if k % 2 else A)),
        ("call bpf-to-bpf", lambda k: folded(1)),
        ("map lookup", lambda k: folded(4, total=4 * k)),
    ],
)
def test_the_model_agrees_with_arithmetic(name, result):
    assert [CLASSES[name].expected(k) for k in (1, 2, 5)] == [result(k) for k in (1, 2, 5)]


def test_an_atomic_compare_stores_where_it_meets():
    def run(expected: int) -> int:
        insns = (
            classes.store_imm(classes.DOUBLE, STACK, -8, 5),
            classes.alu_imm(classes.MOV, 0, expected),
            classes.alu_imm(classes.MOV, 2, 9),
            classes.atomic(classes.CMPXCHG, STACK, -8, 2),
            classes.load(classes.DOUBLE, 3, STACK, -8),
            classes.alu_imm(classes.LSH, 3, 8),
            classes.alu(classes.ADD, 0, 3),
            classes.leave(),
        )
        return Interpreter(Image("x", "xdp", insns, {}, {}, {}), {}).run(bytes(60)).verdict

    assert run(5) == 5 + (9 << 8)
    assert run(6) == 5 + (5 << 8)
    strange = (classes.atomic(0x70, STACK, -8, 2), classes.leave())
    with pytest.raises(ProgramError, match="does not know"):
        Interpreter(Image("x", "xdp", strange, {}, {}, {}), {}).run(bytes(60))


def test_packet_filters_match_what_they_say():
    def matching(code: tuple[filters.Op, ...]) -> dict[str, int]:
        return {frame: result for frame, data in FRAMES.items() if (result := filters.run(code, data))}

    assert set(matching(filters.IP)) == {"ipv4-tcp", "ipv4-udp", "ipv4-dhcp", "ipv4-ptp"}
    assert set(matching(filters.DHCP)) == {"ipv4-dhcp"}
    assert matching(filters.PTP) == {"ptp": 0x42, "vlan-ptp": 0xC2, "ipv4-ptp": 0x12, "ipv6-ptp": 0x22}
    fragment = bytearray(FRAMES["ipv4-dhcp"])
    fragment[20:22] = b"\x00\x07"
    assert filters.run(filters.DHCP, bytes(fragment)) == 0
    assert filters.run(filters.IP, b"short") == filters.SHORT_OF_DATA


def test_what_tcpdump_compiles_is_our_filter_of_ip():
    if filters.tcpdump() is None:
        pytest.skip("tcpdump is not installed")
    assert filters.compiled("ip") == filters.IP
    with pytest.raises(PlanError, match="syntax error"):
        filters.compiled("ip and and")


@pytest.mark.parametrize("text", ["", "2\n6 0 0 0\n", "x\n", "1\n6 0 0\n", "0\n"])
def test_what_is_no_filter_is_refused(text):
    with pytest.raises(ProgramError):
        filters.parse_ddd(text)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ([filters.Op(0, 0, 0, 7), filters.Op(0x84, 0, 0, 0), filters.ret_a()], 2**32 - 7),
        ([filters.Op(0, 0, 0, 7), filters.alu(0x30, 0), filters.ret(5)], 0),  # a division by zero ends it
        (
            [
                filters.Op(0, 0, 0, 9),
                filters.Op(2, 0, 0, 3),
                filters.Op(0x60, 0, 0, 3),
                filters.Op(7, 0, 0, 0),
                filters.ret_a(),
            ],
            9,
        ),
        (
            [filters.Op(0x80, 0, 0, 0), filters.Op(5, 0, 0, 1), filters.ret(1), filters.ret_a()],
            4,
        ),  # the packet's length
    ],
)
def test_the_model_of_classic_instructions(code, result):
    assert filters.run(code, b"abcd") == result


def test_a_list_of_system_calls_grants_one_argument():
    code = filters.SECCOMP_FILTERS["seccomp"]
    for argument, errno in ((filters.GRANTED, 0), (filters.REFUSED, 1)):
        data = filters.seccomp_data(argument)
        assert filters.errno_of(filters.run(code, data, little=True)) == errno
    other = bytearray(filters.seccomp_data(filters.GRANTED))
    other[0] = 231
    assert filters.run(code, bytes(other), little=True) == filters.ALLOW
    other[4] = 3
    assert filters.errno_of(filters.run(code, bytes(other), little=True)) == 1  # another machine's calls
    for place, release, is_cached in (("uml", "6.1.0", 0), ("vm:5.10:count", "5.10.0-46", 0), ("host", "6.18.5", 1)):
        assert (subjects.OPEN in {load.name for load in subjects.of_seccomp(code, place, release)}) == is_cached


def points(**said: object) -> list[object]:
    return list(STUDY.planning.gather(JitRequest(**said)).points)  # type: ignore[arg-type]


def test_places_have_the_modes_they_can():
    assert {(p.mode, p.part) for p in points(places=("uml",))} == {("interpreter", part) for part in PARTS}
    assert {(p.mode, p.part) for p in points(places=("host",))} == {("jit", part) for part in PARTS[1:]}
    assert {p.part for p in points()} == set(PARTS)
    assert {p.mode for p in points(places=("host",), modes=("interpreter", "jit"))} == {"interpreter", "jit"}


def test_another_architecture_runs_all_but_its_system_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("xdplab.studies.jit.runs.compiler_of", lambda place: None)
    monkeypatch.setattr("xdplab.studies.jit.runs.require_places", lambda places, **how: None)
    found = points(places=("vm:6.1@arm64",))
    assert {p.part for p in found} == set(PARTS)
    assert "seccomp" not in {p.subject for p in found}
    trials = schedule(found, 3, seed=1)
    assert {t.point.part for t in trials if t.repetition > 1} == {"test_bpf"}


def test_hardening_is_a_factor_of_what_is_compiled():
    found = points(parts=("classes",), classes=("add32 imm",), hardenings=(0, 2))
    assert [(p.mode, p.harden) for p in found] == [("interpreter", None), ("jit", 0), ("jit", 2)]
    assert len({p.point_id for p in found}) == 3
    plain = JitPoint("host", "classes", "add32 imm", "jit")
    old = {"place": "host", "part": "classes", "subject": "add32 imm", "mode": "jit", "tests": ""}
    assert plain.point_id == hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()[:12]


def printed(folder: Path, rounds: dict[str, list[int]]) -> Path:
    """Write what jitbench prints of subjects with these rounds, a hundred runs each; return the folder."""
    known = {"type": "subject", "insns": 3, "verdict": 1, "times": 100, "jited_bytes": None, "passed": None}
    known |= {"policy_requested": None, "policy": None}
    lines = [{"type": "kernel", "compiles": True}, *(known | {"name": name, "ns": ns} for name, ns in rounds.items())]
    (folder / "jitbench.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_an_amplified_cost_has_an_interval_and_is_null_if_it_is_within_the_noise(tmp_path: Path):
    def rows(noise: int) -> list[dict[str, object]]:
        rounds = {name: [ns] * 20 for name, ns in (("open", 1000), ("shortest", 2000), ("same", 2000))}
        rounds["filter"] = [5000, 5000 + noise] * 10
        runs = 100 * subjects.MANY_TAPS
        return list(_amplified(printed(tmp_path, {k: [ns * runs for ns in v] for k, v in rounds.items()}), "time"))

    (steady,) = rows(100)
    assert (steady["above"], steady["cost"]) == (3050, 4050)
    assert (steady["low"], steady["high"]) == (4000, 4100)
    (noisy,) = rows(-4500)
    assert isinstance(noisy["cost"], Absent)
    assert str(noisy["cost"]).startswith("not above the noise")


def test_a_filters_cost_within_the_noise_of_its_rounds_is_null(tmp_path: Path):
    rounds = {"open": [1000] * 8, "shortest": [2000] * 8, "arp/same": [3000] * 8, "arp": [9000] * 8}
    (steady,) = _filter(printed(tmp_path, rounds))
    assert (steady["cost"], steady["above"]) == (70, 60)
    (noisy,) = _filter(printed(tmp_path, rounds | {"arp": [9000, *[90_000] * 7]}))
    assert str(noisy["cost"]) == str(noisy["above"]) == "not above the noise of 810"


@pytest.mark.parametrize("tests", ["9", "9-3"])
def test_bad_requests_are_refused_before_anything_is_made(tests: str):
    with pytest.raises(PlanError):
        points(tests=tests)
    assert chosen_range("3-9") == (3, 9)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no module", lzma.compress(b"no module"), b"\xfd7zXZ"])
def test_what_is_no_module_is_refused(content):
    with pytest.raises(FormatError, match=r"test_bpf\.ko"):
        read_module(content)


def row(**fields: object) -> dict[str, object]:
    known = {"run_id": "r", "repetition": 1, "label": "here", "clock": "instructions", "unit": "instructions"}
    return {c.name: None for c in COLUMNS} | known | {"passed": True} | fields


def test_row(number: int, mode: str, cost: float | None, **fields: object) -> dict[str, object]:
    trial = {"trial_id": f"{mode}-r{fields.get('repetition', 1)}", "part": "test_bpf", "subject": "test_bpf"}
    own = {"mode": mode, "number": number, "name": f"t{number}", "case": 1, "classic": number < 2, "cost": cost}
    return row(**(trial | own | {"jited": mode == "jit", "words": "PASS"} | fields))


test_row.__test__ = False  # type: ignore[attr-defined]


def table(*rows: dict[str, object]) -> pd.DataFrame:
    return typed(rows, COLUMNS)


BOTH = table(
    test_row(0, "interpreter", 100),
    test_row(0, "interpreter", 110, repetition=2),  # a timer tick
    test_row(0, "interpreter", 300, case=2),
    test_row(0, "jit", 20),
    test_row(0, "jit", 20, case=2),
    test_row(1, "interpreter", 90),
    test_row(1, "jit", 45),
    test_row(2, "interpreter", 800),
    test_row(2, "jit", 100),
    test_row(3, "interpreter", None, case=None, jited=None),
    test_row(3, "jit", None, case=None, jited=None),
    test_row(4, "interpreter", 50),
    test_row(4, "jit", None, passed=False, words="FAIL (1 times)"),
)


def test_both_modes_are_joined_by_test():
    made = joined.tests(BOTH).set_index("number")
    assert made.loc[0, ["interpreter", "jit", "speed_up"]].tolist() == [200, 20, 10]
    assert pd.isna(made.loc[4, "speed_up"])
    times = joined.tests(BOTH.assign(unit="ns", clock="time")).set_index("number")
    assert times.loc[0, "interpreter"] == (105 + 300) / 2  # the median of times, not the minimum


def test_one_table_has_every_test_and_its_failures():
    made = summaries.all_tests(BOTH).set_index("number")
    assert len(made) == 5
    assert made.loc[3, "jit says"] == "PASS (refused, as it must be)"
    assert made.loc[4, "jit says"] == "FAIL (1 times)"
    (failed,) = summaries.failures(BOTH).to_dict("records")
    assert (failed["number"], failed["mode"]) == (4, "jit")
    results = summaries.suite_results(BOTH).set_index("mode")
    assert results.loc["jit", ["tests", "passed", "failed", "run", "compiled"]].tolist() == [5, 4, 1, 4, 4]


def test_every_test_of_the_module_has_one_kind():
    names_of = {
        "multiply, divide": ("ALU64_MUL_X: 2 * 3 = 6", "ALU64_IMM_DIV to R8"),
        "shift": ("ALU32_REG_ARSH to R9", "ALU_LSH_K: 1 << 1 = 2"),
        "alu32": ("ALU32_ADD_X: registers",),
        "alu64": ("ALU64_OR_K: 1",),
        "byte swap": ("ALU_END_FROM_BE 16: 0x1",),
        "memory": ("BPF_LDX_MEM | BPF_B, base",),
        "atomic": ("STX_XADD_DW: X", "Atomic_BPF_W BPF_ADD: R8"),
        "jump32": ("JMP32_JEQ_K: Small immediate",),
        "jump": ("JMP_JEQ_K: if (3 == 3) return 1", "Staggered jumps: JMP32_JEQ_X"),
        "long programs": ("BPF_MAXINSNS: Jump, gap",),
        "load imm64": ("LD_IMM64: checker",),
        "other eBPF": ("INT: MUL_X",),
    }
    assert all({kind_of(name, classic=False) for name in names} == {kind} for kind, names in names_of.items())
    assert kind_of("BPF_MAXINSNS: Maximum possible literals", classic=True) == "classic"
    assert {*names_of, "classic"} == set(KINDS)


def test_a_passed_test_without_a_program_is_not_called_refused():
    segment = test_row(0, "jit", None, subject="test_skb_segment", case=None, jited=None)
    assert summaries.all_tests(table(segment))["jit says"].tolist() == ["PASS"]


def test_places_of_all_architectures_share_one_axis_of_ratios():
    view = VIEWS["architectures"](pd.concat([BOTH, BOTH.assign(label="there", unit="ns", clock="time")]))
    assert set(view.marks["panel"]) == {""}
    shown = view.marks[view.marks["x"].eq("classic")].set_index("hue")["value"]
    assert shown["here"] == pytest.approx(math.sqrt(20), abs=0.01)
    assert shown["Elbrus, Linux 6.1, in time (published)"] == 10.4
    colours = {one.color for one in paint(list(view.marks["hue"].unique()), view.look.order.palette).values()}
    backends = {one.color for one in paint(list(OF_ALL_FIGURES), "colorblind").values()}
    assert len(colours) == 3
    assert not colours & backends  # a place was blue, as the interpreter is, and Elbrus had the JIT's orange
    one_mode = BOTH[BOTH["mode"].eq("jit")]
    with pytest.raises(NotApplicableError, match="in both modes"):
        VIEWS["architectures"](one_mode)


def test_a_figure_that_no_part_can_give_is_not_missing():
    both = [JitPoint("vm:6.1@arm64", "test_bpf", "test_bpf", mode) for mode in MODES]  # its QEMU may be missing here
    assert possible(both) == {"test_bpf", "classic", "speed-up", "architectures"}
    assert possible(points(places=("host",))) == set(VIEWS) - possible(both)
    assert possible(points()) == set(VIEWS)


def test_a_filter_whose_whole_cost_is_not_known_is_in_the_table_only():
    known = {"trial_id": "f-r1", "mode": "interpreter", "part": "filters", "insns": 4, "above": 5.0}
    both = table(
        row(**known, subject="ip", name="arp", cost=30.0),
        row(**known, subject="ip", name="ipv4-udp", cost=40.0),
        row(**known, subject="seccomp", name="granted"),
    )
    assert VIEWS["filters"](both).marks[["x", "value"]].to_numpy().tolist() == [["ip", 40.0]]
    assert summaries.filters(both)["interpreter, above the shortest"].tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("part", "bar"), [("tcp", "JIT, ip, 100"), ("traffic", "JIT, ip, 100 bytes of payload"), ("filters", "JIT, ip")]
)
def test_a_caption_says_which_bar_is_not_there_and_why(part: str, bar: str):
    """A reader who saw only three of four bars would take the fourth for zero."""
    known = {"part": part, "subject": "ip", "number": 100, "name": "100, passed", "insns": 4, "total": 1.0}
    both = table(
        row(**known, trial_id="i-r1", mode="interpreter", cost=0.02),
        row(**known, trial_id="j-r1", mode="jit", cost=Absent("not above the noise of 411")),
    )
    last = VIEWS[part](both).look.words.caption[-1]
    assert (bar in last, "the noise of 411" in last) == (True, True)
    whole = VIEWS[part](both.assign(cost=0.02)).look.words.caption
    assert not any(bar in line for line in whole)


def repeated(part: str, *repetitions: dict[str, float]) -> pd.DataFrame:
    """One filter's repetitions in time, by the JIT; one without a cost was not above the noise."""
    known = {"part": part, "subject": "ip", "number": 256, "name": "passed", "insns": 4, "mode": "jit", "unit": "ns"}
    known["clock"] = "time"
    reasons = [None if "cost" in values else "not above the noise" for values in repetitions]
    return table(
        *(
            row(**known, repetition=n, trial_id=f"j-r{n}", reason=reason, **values)
            for n, (values, reason) in enumerate(zip(repetitions, reasons, strict=True), 1)
        )
    )


def test_repetitions_within_the_noise_are_not_left_out_of_a_median():
    """Of three repetitions one was above the noise: it is the largest of the three, and not their median."""
    noisy = repeated("filters", {}, {"cost": 12.0}, {})
    assert joined.side_by_side(noisy, ["subject"])["jit"].isna().all()
    most = repeated("filters", {"cost": 10.0}, {"cost": 12.0}, {})
    assert joined.side_by_side(most, ["subject"])["jit"].tolist() == [10.0]  # the lowest is unknown, but is the lowest


def test_an_interval_holds_those_of_all_repetitions():
    """Two repetitions whose intervals do not meet: the mean of their ends holds neither median."""
    apart = repeated("amplified", {"cost": 36.0, "low": 35.0, "high": 37.0}, {"cost": 44.0, "low": 43.0, "high": 45.0})
    (shown,) = summaries.amplified(apart).to_dict("records")
    assert (shown["jit"], shown["jit, 95 %"]) == (40.0, "35.00–45.00")
    (mark,) = VIEWS["amplified"](apart).marks.to_dict("records")
    assert (mark["low"], mark["high"]) == (35.0, 45.0)
    unknown = repeated("amplified", {"cost": 36.0, "low": 35.0, "high": 37.0}, {}, {})
    assert summaries.amplified(unknown)["jit, 95 %"].isna().all()


def test_figure_and_table_have_one_share():
    """The median of the repetitions' shares is 30 %, and the share of the medians 20 %."""
    one = repeated("traffic", *({"cost": c, "total": t} for c, t in ((10.0, 20.0), (20.0, 100.0), (60.0, 200.0))))
    made = summaries.traffic(one)["after: share, %"].tolist()
    assert made == VIEWS["traffic"](one).marks["value"].tolist() == [20.0]


def test_what_the_jit_leaves_to_the_interpreter_has_no_speed_up():
    left = table(test_row(0, "interpreter", 100), test_row(0, "jit", 100, jited=False))
    assert joined.tests(left)["jit"].isna().all()
    both = pd.concat([BOTH, left.assign(number=7, name="t7")])
    assert summaries.speed_up(both).set_index("set").loc["test_bpf, all tests", "tests"] == 3
    assert joined.fates(both).set_index("kind").loc[joined.ALL, "left to the interpreter"] == 1
    later = table(*(test_row(0, "jit", 100, repetition=n, jited=n < 2) for n in (1, 2)))
    assert joined.fates(later).set_index("kind").loc[joined.ALL, "left to the interpreter"] == 1
    assert "1 of them left to the interpreter" in str(list(summaries.results(None, later)))


@pytest.mark.parametrize("cost", [0.0, -0.5])
def test_a_cost_that_is_not_above_0_has_no_speed_up_and_no_bar(cost: float):
    """That of a class is a difference of two times."""
    known = {"part": "classes", "subject": "add64 reg"}
    costs = (("interpreter", 14.0), ("jit", cost))
    both = table(*(row(**known, trial_id=mode, mode=mode, cost=of_mode) for mode, of_mode in costs))
    assert summaries.classes(both)["speed-up"].isna().all()
    assert VIEWS["classes-arithmetic"](both).marks["value"].dropna().tolist() == [14.0]


def test_a_test_that_fails_in_a_later_repetition_does_not_pass():
    later = table(*(test_row(0, "jit", 20, repetition=n, passed=n < 2) for n in (1, 2)), test_row(1, "jit", 20))
    (passing,) = (one for one in EXPERIMENTS if one.what == "test_bpf: tests that pass")
    assert [ours.text for ours in passing.ours(later)] == ["1 of 2 pass"]


def test_places_with_other_clocks_have_other_panels():
    elsewhere = BOTH.assign(label="there", unit="ns", clock="time")
    shown = VIEWS["test_bpf"](pd.concat([BOTH, elsewhere]))
    assert set(shown.marks["panel"]) == {"here", "there"}
    tables = with_meanings(summaries.TABLES, pd.concat([BOTH, elsewhere]))
    assert tables["test_bpf"].above == ["place", "unit"]


TRACE = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 4/4   #P:1
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
        modprobe-161     [000] ..Zff     0.488558: freed: (bpf_prog_free+0x0/0x80) insns=26 bytes=160
            sshd-170     [000] d....     0.488600: freed: (bpf_prog_free+0x0/0x80) insns=26 bytes=160
        modprobe-161     [000] d....     0.488700: freed: (bpf_prog_free+0x0/0x80) insns=2 bytes=0
        modprobe-161     [000] d....     0.488800: freed: (bpf_prog_free+0x0/0x6c) insns=7 bytes=64
"""


def test_sizes_are_of_the_modules_compiled_programs_in_their_order():
    assert parse_sizes(TRACE) == (Size(26, 160), Size(7, 64))
    assert parse_sizes("# absent: the kernel has no probes\n") == "the kernel has no probes"
    for wrong in (TRACE.replace("4/4", "4/9"), TRACE.replace("insns=7", ""), "# tracer: nop\n", ""):
        with pytest.raises(FormatError, match="trace of bpf_prog_free"):
            parse_sizes(wrong)


LINES = """\
test_bpf: #0 TAX jited:1 88 PASS
test_bpf: #1 check: missing ret PASS
test_bpf: #2 TXA jited:1 33 34 PASS
test_bpf: Summary: 3 PASSED, 0 FAILED, [2/2 JIT'ed]
"""


FREED = "2 tests ran compiled, and 1 compiled programs were freed"


@pytest.mark.parametrize(
    ("trace", "sizes"),
    [
        (TRACE, ["160.0", "None", "64.0", "64.0"]),
        (TRACE.replace("bytes=64", "bytes=0"), [FREED, "None", FREED, FREED]),
        ("# absent: why\n", ["why", "None", "why", "why"]),
        (None, ["None"] * 4),
    ],
)
def test_each_compiled_test_has_the_size_of_its_program(trace, sizes, tmp_path):
    names = ("TAX", "check: missing ret", "TXA")
    known = [{"number": at, "name": name, "classic": True} for at, name in enumerate(names)]
    (tmp_path / TESTS).write_text(json.dumps(known))
    (tmp_path / LOG.format(0)).write_text(LINES)
    if trace is not None:
        (tmp_path / SIZES_FILE.format(0)).write_text(trace)
    rows = list(suite_rows(tmp_path))
    assert [str(found.get("machine_bytes")) for found in rows] == sizes
    assert str(rows[1]["cost"]) == "nothing was run"


def test_a_place_without_probes_has_a_reason_and_no_sizes():
    class Deaf(LocalHost):
        def run(self, argv, **options):
            return super().run(["sh", "-c", "echo 'no way' >&2; exit 1"], check=False)

    with watched(Deaf()) as sizes:
        assert sizes.taken() == "# absent: no way\n"
