"""For any input, a parser returns rows or raises FormatError; `make fuzz` feeds each 1,000,000 inputs."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.thesis.thesis_logs import generator_log, perf_log, sar_log

from xdplab.counters.readings import parse_samples
from xdplab.errors import FormatError
from xdplab.formats import ethtool, perf, proc
from xdplab.studies.jit import kerneltests as test_bpf
from xdplab.studies.jit import subjects
from xdplab.studies.offload import bench as bpftool
from xdplab.thesis.generator_log import parse_generator_log
from xdplab.thesis.tool_logs import parse_perf_text, parse_sar_text

RECORDED = Path(__file__).parent / "recorded"
Parser = Callable[[bytes | str], object]
SAMPLES = b"1581.40 2985.05\n20020\n7994\ncpu0 3168 0 1876 152584 22 0 28 8 0 0\n" * 3

FREED = b"""# entries-in-buffer/entries-written: 1/1   #P:1
        modprobe-161     [000] ..Zff     0.488558: freed: (bpf_prog_free+0x0/0x80) insns=26 bytes=160
"""

PARSERS: dict[str, tuple[Parser, bytes]] = {
    "perf": (perf.parse_perf_json, (RECORDED / "perf_by_cpu_6.1.192.jsonl").read_bytes()),
    "perf header": (perf.target_of_header, (RECORDED / "perf_all.txt").read_bytes()),
    "sadf": (proc.parse_sadf, (RECORDED / "sadf_12.6.1.json").read_bytes()),
    "ip link": (proc.parse_link, (RECORDED / "iplink_native.json").read_bytes()),
    "ethtool -S": (ethtool.parse_statistics, (RECORDED / "ethtool_S_2.txt").read_bytes()),
    "ethtool -l": (ethtool.parse_channels, (RECORDED / "ethtool_l.txt").read_bytes()),
    "ethtool -g": (ethtool.parse_rings, (RECORDED / "ethtool_g.txt").read_bytes()),
    "softnet": (proc.parse_softnet, (RECORDED / "softnet.txt").read_bytes()),
    "procstat": (proc.parse_procstat, (RECORDED / "procstat.txt").read_bytes()),
    "bpftool prog": (bpftool.parse_programs, (RECORDED / "bpftool_programs.json").read_bytes()),
    "bpftool net": (bpftool.parse_net, (RECORDED / "bpftool_net.json").read_bytes()),
    "test_bpf": (test_bpf.parse_test_bpf, (RECORDED / "test_bpf.txt").read_bytes()),
    "jitbench": (subjects.parse_jitbench, (RECORDED / "jitbench.jsonl").read_bytes()),
    "samples": (parse_samples, SAMPLES),
    "bpf_prog_free": (test_bpf.parse_sizes, FREED),
}

THESIS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "generator log": (parse_generator_log, generator_log(seconds=5, decimals=10)),
    "sar log": (parse_sar_text, sar_log(2)),
    "perf log": (parse_perf_text, perf_log()),
}
"""These parsers return anomalies and never raise."""


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw a recorded output with a piece cut out, replaced, doubled or inserted."""
    start = draw(st.integers(0, len(whole)))
    stop = draw(st.integers(start, min(len(whole), start + 40)))
    piece = draw(
        st.one_of(
            st.binary(max_size=12), st.sampled_from([b"", b"-1", b"1e999", b"\xd9\xa3", b"[" * 2000, b"9" * 5000])
        )
    )
    repeat = draw(st.integers(1, 2))
    return whole[:start] + piece + whole[stop:] * repeat


def inputs(whole: bytes) -> st.SearchStrategy[bytes | str]:
    return st.one_of(damaged(whole), st.integers(0, len(whole)).map(lambda end: whole[:end]), st.binary(), st.text())


def check(parser: Callable[..., object], strategy: st.SearchStrategy[bytes | str], *allowed: type[Exception]) -> None:
    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def never_another_exception(data: bytes | str) -> None:
        with contextlib.suppress(*allowed):
            parser(data)

    never_another_exception()


def thesis_inputs(whole: bytes) -> st.SearchStrategy[bytes | str]:
    return st.one_of(damaged(whole), st.binary(), st.binary().map(lambda data: whole[:200] + data))


@pytest.mark.parametrize("name", PARSERS)
def test_a_slice_of_any_input(name: str) -> None:
    parser, whole = PARSERS[name]
    parser(whole)
    check(parser, inputs(whole), FormatError)


@pytest.mark.parametrize("name", THESIS)
def test_a_slice_of_any_thesis_log(name: str) -> None:
    parser, whole = THESIS[name]
    check(parser, thesis_inputs(whole))


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("data", [b"", b"\n \n", b"\x7fELF\0\0\1", b"<html></html>\n", b"\xff\xfe", "\0"], ids=repr)
def test_foreign_input_is_refused(name: str, data: bytes | str) -> None:
    with pytest.raises(FormatError):
        PARSERS[name][0](data)
