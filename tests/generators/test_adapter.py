"""Settings become xdpgen's arguments; what an engine does not support is reported before anything starts."""

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.formats.test_generator import READY

from xdplab.errors import HostError, UnsupportedError
from xdplab.formats.generator import parse_line
from xdplab.generators import (
    XDPGEN,
    BothWays,
    Generator,
    GeneratorSettings,
    Staying,
    engines_of,
    session,
    xdpgen_argv,
)
from xdplab.generators.adapter import Capabilities
from xdplab.generators.moongen import CAPABILITIES as MOONGEN
from xdplab.generators.moongen import moongen
from xdplab.generators.testpmd import CAPABILITIES as TESTPMD
from xdplab.generators.testpmd import testpmd as on_dpdk
from xdplab.hosts.local import LocalHost


def options(settings: GeneratorSettings) -> dict[str, str]:
    words = xdpgen_argv(settings, "/opt/xdpgen")
    assert words[:2] == ["/opt/xdpgen", "--step"]
    assert all(name.startswith("--") for name in words[2::2])
    return dict(zip(words[2::2], words[3::2], strict=True))


def test_every_setting_becomes_an_option() -> None:
    given = GeneratorSettings("afxdp", "vg0").changed(
        queues=8, cpus=(0, 2), fifo=3, frame_bytes=1518, vlan=5, ip_version=6, flows=7, rate_pps=12345.5, run_id="beef",
        stamp_seed=9, src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02", src_ip="10.0.0.1", dst_ip="10.0.0.2",
        src_ip_stride="0.0.0.2", dst_ip_stride="0.0.0.255", src_port=1, dst_port=2, port_stride=3, stamp=16,
        settle_s=0.2, max_frames=99, batch=4, file="/tmp/x.pcap",
        rx_stamp="device", tx_stamp="device", bind="zerocopy", busy_poll_us=50, receive_on="vg1",
        speed=0.5, alone="receiver", zipf=1.25, flow_seed=77, churn=500, back_to_back=6,
    )  # fmt: skip
    assert options(given) == {
        "--interface": "vg0", "--engine": "afxdp", "--queues": "8", "--cpus": "0,2", "--fifo": "3",
        "--frame-bytes": "1518", "--vlan": "5", "--ip-version": "6",
        "--flows": "7", "--load": "12345.5", "--run-id": "beef",
        "--src-mac": "02:00:00:00:00:01", "--dst-mac": "02:00:00:00:00:02", "--src-ip": "10.0.0.1",
        "--dst-ip": "10.0.0.2", "--src-ip-stride": "0.0.0.2", "--dst-ip-stride": "0.0.0.255", "--src-port": "1",
        "--dst-port": "2", "--port-stride": "3", "--stamp": "16",
        "--stamp-seed": "9", "--settle": "0.2", "--max-frames": "99",
        "--batch": "4", "--frames": "/tmp/x.pcap",
        "--rx-stamp": "device", "--tx-stamp": "device", "--bind": "zerocopy", "--busy-poll": "50",
        "--receive-on": "vg1", "--recorded": "0.5", "--alone": "receiver", "--skew": "zipf:1.25", "--flow-seed": "77",
        "--churn": "500", "--burst": "6",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "fact"),
    [({"type": "detached", "bursts": 0}, "'ready' line"), ({"type": "ready"}, "no field"), (READY, "no line")],
    ids=["says something else", "says too little", "falls silent"],
)
def test_a_generator_that_does_not_answer_as_it_should_is_ended_in_time(
    line: dict[str, object], fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "BURST_MARGIN_S", 0.1)
    adapter = replace(XDPGEN, argv=lambda settings, binary: ["sh", "-c", f"echo '{json.dumps(line)}'; exec sleep 5"])
    began = time.monotonic()
    with (
        Generator(LocalHost("tg"), GeneratorSettings("live", "vg0"), "", adapter=adapter) as generator,
        pytest.raises(HostError, match=fact),
    ):
        _ = generator.start(), generator.burst("measure", 0.1)
    assert time.monotonic() - began < 4.0


def test_both_directions_begin_and_end_together_though_one_fails() -> None:
    """Each session says what it is asked; the first one's stop and close fail."""
    asked: list[str] = []

    def direction(name: str, cpu: int) -> Any:
        def ask(what: str) -> Any:
            def answer() -> Any:
                asked.append(f"{name} {what}")
                if name == "forth" and what in ("stop", "close"):
                    raise HostError(what)
                return parse_line(json.dumps(READY | {"cpus": [cpu], "frame_bytes": cpu}))

            return answer

        verbs = {verb: ask(verb) for verb in ("start", "release", "go_on", "stop", "close")}
        return SimpleNamespace(host=f"{name}'s host", argv=(name, "x"), raw=f"{name}'s lines", **verbs)

    two = BothWays(direction("forth", 3), direction("back", 5))
    assert (two.host, two.argv) == ("forth's host", ("forth", "x", "back", "x"))
    assert two.outputs == {"xdpgen.jsonl": "forth's lines", "xdpgen_back.jsonl": "back's lines"}
    assert (two.start().cpus, two.start().frame_bytes) == ((3, 5), 3)
    for verb in ("release", "go_on", "stop", "close"):
        asked.clear()
        with pytest.raises(HostError) if verb in ("stop", "close") else nullcontext():
            getattr(two, verb)()
        assert asked == [f"forth {verb}", f"back {verb}"]


@pytest.mark.parametrize(("host", "argv", "stays"), [("tg", "a", True), ("tg", "b", False), ("other", "a", False)])
def test_one_that_stays_is_taken_for_the_same_on_the_same_host(host: str, argv: str, stays: bool) -> None:
    asked: list[str] = []

    def one(host: str, argv: str) -> Any:
        verbs = {name: partial(asked.append, name) for name in ("release", "go_on", "stop", "close")}
        return SimpleNamespace(host=host, argv=(argv,), **verbs)

    staying, first, new = Staying(), one("tg", "a"), one(host, argv)
    staying.give(first)
    assert (staying.has(first), staying.has(new)) == (True, False)
    assert staying.take(new) is (first if stays else new)
    assert not staying.has(first), "it is the trial's, or has ended"
    assert asked == (["release", "go_on"] if stays else ["release", "stop", "close"])
    asked.clear()
    staying.leave(first)
    staying.await_left()
    assert asked == ["stop", "close"]


@pytest.mark.parametrize("failing", ["go_on", "stop"])
def test_one_that_does_not_go_on_costs_no_trial_and_a_program_that_does_not_leave_is_told(failing: str) -> None:
    def fail() -> None:
        raise HostError(failing)

    verbs = {name: lambda: None for name in ("release", "go_on", "stop", "close")} | {failing: fail}
    staying, first, new = Staying(), SimpleNamespace(host="tg", argv=(), **verbs), SimpleNamespace(host="tg", argv=())
    staying.give(first)
    assert staying.take(new) is (new if failing == "go_on" else first)
    assert not staying.has(first)
    if failing == "stop":
        staying.leave(first)
        with pytest.raises(HostError):
            staying.end()
    staying.end()


def test_what_is_left_open_is_left_out() -> None:
    """A skew's seed has a meaning only with the skew."""
    words = xdpgen_argv(GeneratorSettings("live", "vg0").changed(imix=(64, 594, 64), flow_seed=5), "xdpgen")
    assert " ".join(words) == (
        "xdpgen --step --interface vg0 --engine live --fifo 5 --queues 1 --frame-bytes 64,594,64 --flows 64 "
        "--load max --run-id 0 --src-ip 198.18.0.1 --dst-ip 198.19.0.1 --src-ip-stride 0.0.0.0 "
        "--dst-ip-stride 0.0.0.1 --src-port 1024 --dst-port 50220 --port-stride 0 --stamp all --settle 0.05"
    )
    flags = GeneratorSettings("afxdp", "vg0").changed(need_wakeup=True, whole=True, receive=False)
    assert xdpgen_argv(flags, "xdpgen")[2:5] == ["--no-receive", "--need-wakeup", "--whole"]


LIVE, AFXDP = XDPGEN.capability("live"), XDPGEN.capability("afxdp")


@pytest.mark.parametrize(
    ("engine", "queues", "cpus", "reached"),
    [(LIVE, 1, (3,), 1), (LIVE, 8, (0, 1), 2), (LIVE, 2, (0, 2), 1), (LIVE, 2, (1, 2), 2), (AFXDP, 8, (0,), 8)],
)
def test_queues_reached_follow_from_cpus(
    engine: Capabilities, queues: int, cpus: tuple[int, ...], reached: int
) -> None:
    assert engine.queues_reached(queues, cpus) == reached


ABLE = {able.engine: able for able in (LIVE, AFXDP, *MOONGEN.values(), *TESTPMD.values())}
ASKED = {
    "vlan": {"vlan": 5}, "two ports": {"receive_on": "1"}, "imix": {"imix": (512, 594)}, "pace": {"rate_pps": 1000},
    "skew": {"zipf": 1.1}, "churn": {"churn": 1}, "burst": {"back_to_back": 2}, "stamp": {"stamp": 16},
    "pieces": {"alone": "sender"}, "file": {"file": "x.pcap"}, "timing": {"speed": 1.0}, "IPv6": {"ip_version": 6},
}  # fmt: skip
XDPGENS = {"vlan", "two ports", "imix", "pace", "skew", "churn", "burst", "stamp", "IPv6"}
CAN = {
    "live": XDPGENS | {"pieces"},
    "afxdp": XDPGENS | {"file", "timing"},
    **{engine: {"pace", "stamp"} for engine in MOONGEN},
    "testpmd": set(),
}


def test_generators_of_dpdk_are_started_with_what_their_hosts_have() -> None:
    dpdk = on_dpdk("/t", port=2, cores=(3, 1), eal=("-a", "x"))
    words = dpdk.argv(GeneratorSettings("testpmd", "0").changed(flows=7), "tool")
    assert words[:3] == ["sh", "-c", 'exec python3 "$0" "$@"']
    assert words[3:10] == ["tool", "--testpmd", "/t", "--cpus", "1,3", "--port", "2"]
    assert (words[words.index("--flows") + 1], words[-3:]) == ("7", ["--", "-a", "x"])
    for adapter in (dpdk, moongen("/m")):
        assert (adapter.start_s, adapter.stays) == (60.0, False)
        assert "hugepages" in (adapter.refusal("No free HUGEPAGEs") or "")
        assert "fewer queues" in (adapter.refusal("the port has 1 queues, but 9") or "")
        assert adapter.refusal("the port has queues") is None
    assert (XDPGEN.start_s, XDPGEN.stays) == (15.0, True)
    own = "src_ip: 10.254.0.0, dst_ip: 10.253.0.0, src_port: 1000, dst_port: 1001"
    assert TESTPMD["testpmd"].own_addresses == own, "those of its mode flowgen"


def test_each_generator_has_its_engines_the_usual_one_first() -> None:
    assert {kind: [*engines_of(kind)] for kind in ("xdpgen", "moongen", "testpmd")} == {
        "xdpgen": ["live", "afxdp"],
        "moongen": ["moongen", "moongen-hw"],
        "testpmd": ["testpmd"],
    }


@pytest.mark.parametrize("engine", CAN)
def test_what_an_engine_cannot_do_is_said_before_it_starts(engine: str) -> None:
    able = ABLE[engine]
    own = {"stamp": "none", "frame_bytes": 512, **able.addresses}
    for name, asked in ASKED.items():
        given = GeneratorSettings(engine, "0").changed(**own | asked)
        if name in CAN[engine]:
            able.require(given)
        else:
            with pytest.raises(
                UnsupportedError, match=f"{able.generator}, engine {engine}: (sends|does|has|keeps|spaces|re)"
            ):
                able.require(given)
    for name, value in able.addresses.items():
        other = value + 1 if isinstance(value, int) else "10.0.0.9"
        assert (able.refusal(GeneratorSettings(engine, "0").changed(**own | {name: other})) or "").endswith(
            f"`{able.own_addresses}`"
        )
        assert f"{name}: {value}" in able.own_addresses


@pytest.mark.parametrize(
    ("engine", "within", "beyond", "reason"),
    [
        ("live", {"queues": 4, "cpus": (0, 1, 6, 7)}, {"cpus": (0, 1)}, "reaches 2 queues from CPUs (0, 1)"),
        ("live", {"frame_bytes": 3360}, {"frame_bytes": 3361}, "64 to 3360 bytes: the kernel keeps a live frame in"),
        ("live", {"imix": (64, 3360)}, {"imix": (64, 3361, 64)}, "64 to 3360 bytes: the kernel keeps a live frame in"),
        ("live", {"vlan": 5, "frame_bytes": 72}, {"frame_bytes": 71}, "72 to 3360"),
        ("live", {"vlan": 5, "imix": (1518, 72)}, {"imix": (1518, 71)}, "72 to 3360"),
        ("live", {"ip_version": 6, "frame_bytes": 88, "vlan": 5}, {"frame_bytes": 87}, "88 to 3360"),
        ("live", {"flows": 1 << 20}, {"flows": (1 << 20) + 1}, "at most 1048576 flows"),
        ("live", {"queues": 64}, {"queues": 65}, "at most 64 queues"),
        ("afxdp", {"queues": 64}, {"queues": 65}, "at most 64 queues"),
        ("afxdp", {"queues": 1}, {"queues": 0}, "at most 64 queues"),
        ("afxdp", {"flows": 1}, {"flows": 0}, "at most 1048576 flows"),
        ("afxdp", {"flows": 1 << 20, "queues": 8, "cpus": (0,)}, {"flows": (1 << 20) + 1}, "at most 1048576 flows"),
        ("afxdp", {"frame_bytes": 9216}, {"frame_bytes": 9217}, "64 to 9216 bytes"),
        *(
            (engine, within, {name: value + 1}, reason)
            for engine in ("moongen", "moongen-hw", "testpmd")
            for name, value, reason in (
                ("queues", 16, "16 q"),
                ("flows", 32_768, "32768 f"),
                ("frame_bytes", 1518, "64 to"),
            )
            for within in ({"stamp": "none", name: value, **ABLE[engine].addresses},)
        ),
    ],
)
def test_an_engine_reaches_its_limits_and_no_further(
    engine: str, within: dict[str, Any], beyond: dict[str, Any], reason: str
) -> None:
    assert ABLE[engine].refusal(GeneratorSettings(engine, "0").changed(**within)) is None
    assert reason in (ABLE[engine].refusal(GeneratorSettings(engine, "0").changed(**within | beyond)) or "")


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="live, afxdp"):
        Generator(None, GeneratorSettings("warp", "vg0"), "xdpgen")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "paced", "full"),
    [("live", 8, 60), ("afxdp", 32, 256), ("moongen", 63, 63), ("moongen-hw", 63, 63), ("testpmd", 32, 32)],
)
def test_the_batch_is_the_same_at_every_paced_rate(engine: str, paced: int, full: int) -> None:
    """The batch followed the rate (1, 4, 8, 16, 60) and caused steps in the latency against the load."""
    assert (ABLE[engine].batch(paced=True), ABLE[engine].batch(paced=False)) == (paced, full)


def test_a_kernel_without_live_frames_is_unsupported() -> None:
    """The answer of a guest of 5.10; xdpgen asks its kernel before it sends anything."""
    said = (
        "support: this kernel has no live frames, which engine live sends: Linux 5.18 and newer have them (EOPNOTSUPP)"
    )
    assert XDPGEN.refusal(said) == "write `traffic: {engine: afxdp}` in the plan's block"
    assert XDPGEN.refusal("send: the sender on CPU 0 cannot send live frames") is None
