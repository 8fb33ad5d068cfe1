"""The loading study's formats: function_graph's traces, loadbench's lines, stacks sampled by perf."""

import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.errors import FormatError
from xdplab.studies.loading.passes import (
    LoadError,
    TracedCall,
    parse_function_graph,
    parse_kernel_stacks,
    parse_loadbench,
)

RECORDED = Path(__file__).parent / "recorded"
HEADER = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n# |     |   |   |\n"


def test_a_trace_of_7_2_where_the_jit_runs_inside_the_verifier():
    calls = parse_function_graph((RECORDED / "function_graph_7.2.txt").read_bytes())
    first = [call for call in calls if call.mark == "cycle 0"]
    assert first == [
        TracedCall("bpf_int_jit_compile", 49_143, ("bpf_check",), "cycle 0"),
        TracedCall("bpf_check", 1_391_688, (), "cycle 0"),
    ]
    assert {call.mark for call in calls[:10]} == {""}  # libbpf's own probes come before the first mark


def test_a_trace_of_a_module_nests_three_deep():
    calls = parse_function_graph((RECORDED / "function_graph_module.txt").read_bytes())
    assert [c for c in calls if c.mark == "cycle 1"] == [
        TracedCall("do_one_initcall", 1_249, ("load_module", "do_init_module"), "cycle 1"),
        TracedCall("do_init_module", 25_596, ("load_module",), "cycle 1"),
        TracedCall("load_module", 346_801, (), "cycle 1"),
    ]


@pytest.mark.parametrize(
    ("line", "duration_ns"),
    [
        (" 0)   0.123 us    |  f();", 123),
        (" 1) + 36.827 us   |  f();", 36_827),
        (" 0) * 12079.49 us |  f();", 12_079_490),
        (" 0) $ 1234567 us  |  f();", 1_234_567_000),
        (" 0)   loadben-12    | ! 163.511 us  |  f();", 163_511),
        (" 12)  my task-7     |   4.9 us      |  f();", 4_900),
        ("  123.456789 |   0)   1.000 us    |  f();", 1_000),
        (" 0)   1.000 us    |  f.isra.0 [veth]();", 1_000),
        (" 0)   1.000 us    |  f(prog=0xffff, attr={}); /* = 0x0 */", 1_000),
    ],
)
def test_columns_of_a_line(line, duration_ns):
    (call,) = parse_function_graph(HEADER + line + "\n")
    assert call.duration_ns == duration_ns


def test_what_a_trace_does_not_hold_whole_is_left_out():
    lines = [
        " 0)   5.000 us    |  }",  # the call began before the trace
        " 0)   ==========> |",
        " 0)   <========== |",
        " ------------------------------------------",
        " 0)  a-1  =>  b-2 ",
        " 0)               |  f() {",
        " 1)               |  g() {",  # calls of another CPU are not callers of these
        " 0)   1.000 us    |    h();",
        " 0)   3.000 us    |  } /* f */",
        "",
    ]
    assert parse_function_graph(HEADER + "\n".join(lines)) == (
        TracedCall("h", 1_000, ("f",), ""),
        TracedCall("f", 3_000, (), ""),
    )


@pytest.mark.parametrize(
    "text", ["", " 0)   x us |  f();\n", "nonsense\n", "CPU:0 [LOST 12 EVENTS]\n", " 0) 1.0 us |  f();"]
)
def test_a_trace_that_is_none_is_refused(text):
    with pytest.raises(FormatError):
        parse_function_graph(text)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_refused(text):
    with contextlib.suppress(FormatError):
        parse_function_graph(HEADER + text)


def printed(*lines: dict[str, object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


CYCLE = {"type": "cycle", "rank": 0, "load_ns": 7, "logged_us": None}
END = {"type": "end"}


def test_lines_of_loadbench():
    bench = parse_loadbench(
        printed({"type": "program", "name": "p", "jited_bytes": 254}, CYCLE, CYCLE | {"rank": 1}, END)
    )
    assert bench.sizes == {"jited_bytes": 254}
    assert bench.cycles == ({"rank": 0, "load_ns": 7, "logged_us": None}, {"rank": 1, "load_ns": 7, "logged_us": None})
    assert bench.error is None


def test_an_error_line_has_the_verifiers_message():
    log = "0: (61) r1 = *(u32 *)(r1 +0)\nR1 pointer arithmetic prohibited\nprocessed 3 insns (limit 1000000)\n"
    line = {"type": "error", "step": "load", "error": "EACCES", "message": "p is refused", "log": log}
    bench = parse_loadbench(printed(CYCLE, line))
    assert bench.error == LoadError("load", "p is refused: R1 pointer arithmetic prohibited")
    assert len(bench.cycles) == 1


@pytest.mark.parametrize(
    "lines",
    [
        (CYCLE,),  # cut: no last line
        (CYCLE | {"load_ns": -1}, END),
        (CYCLE | {"load_ns": 1.5}, END),
        ({"type": "riddle"}, END),
        ({"rank": 0}, END),
    ],
)
def test_lines_that_loadbench_does_not_write(lines):
    with pytest.raises(FormatError):
        parse_loadbench(printed(*lines))


STACKS = """
\tffffffff81351400 bpf_int_jit_compile
\tffffffff81506f10 bpf_check+0x12
\tffffffff81500000 bpf_prog_load
\t           20ca3 mmap64

\t           1469e handle_amd

\tffffffff815c1c64 do_mmap
"""


def test_stacks_of_the_kernel():
    assert parse_kernel_stacks(STACKS) == (("bpf_int_jit_compile", "bpf_check", "bpf_prog_load"), ("do_mmap",))
    with pytest.raises(FormatError):
        parse_kernel_stacks("no frame\n")


@pytest.mark.parametrize(
    "line", [" 0)" + " " * 60_000 + "x\n", " " * 60_000 + "0) x\n", " 0) $" + " " * 60_000 + "1 us\n"]
)
def test_a_line_of_spaces_is_refused_at_once(line):
    """The parser tried each split of the spaces: 4 kB took 43 s, and this input would have taken days."""
    began = time.monotonic()
    with pytest.raises(FormatError, match="no line of a trace"):
        parse_function_graph(line)
    assert time.monotonic() - began < 30
