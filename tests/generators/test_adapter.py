"""Settings become xdpgen's arguments; what an engine does not support is reported before anything starts."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.formats.test_generator import READY

from xdplab.errors import HostError, UnsupportedError
from xdplab.generators import XDPGEN, Generator, GeneratorSettings, Staying, session, xdpgen_argv
from xdplab.generators.adapter import Capabilities
from xdplab.generators.moongen import CAPABILITIES as MOONGEN
from xdplab.generators.testpmd import CAPABILITIES as TESTPMD
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
        "--receive-on": "vg1",
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


@pytest.mark.parametrize(("host", "argv", "stays"), [("tg", "a", True), ("tg", "b", False), ("other", "a", False)])
def test_one_that_stays_is_taken_for_the_same_on_the_same_host(host: str, argv: str, stays: bool) -> None:
    def one(host: str, argv: str) -> Any:
        return SimpleNamespace(host=host, argv=(argv,), **dict.fromkeys(("go_on", "stop", "close"), lambda: None))

    staying, first, new = Staying(), one("tg", "a"), one(host, argv)
    vars(staying).update(_kept=first)
    assert staying.take(new) is (first if stays else new)


def test_several_sizes_are_one_option() -> None:
    assert options(GeneratorSettings("live", "vg0").changed(imix=(64, 594, 64)))["--frame-bytes"] == "64,594,64"


def test_what_is_left_open_is_left_out() -> None:
    found = options(GeneratorSettings("live", "vg0"))
    assert found["--load"] == "max"
    assert not {"--cpus", "--src-mac", "--max-frames", "--batch", "--frames", "--vlan", "--ip-version"} & set(found)
    assert not {"--rx-stamp", "--tx-stamp", "--bind", "--busy-poll", "--need-wakeup"} & set(
        xdpgen_argv(GeneratorSettings("afxdp", "vg0"), "xdpgen")
    )
    assert "--need-wakeup" in xdpgen_argv(GeneratorSettings("afxdp", "vg0").changed(need_wakeup=True), "xdpgen")
    assert "--whole" in xdpgen_argv(GeneratorSettings("live", "vg0").changed(whole=True), "xdpgen")
    assert "--no-receive" in xdpgen_argv(GeneratorSettings("live", "vg0").changed(receive=False), "xdpgen")


LIVE, AFXDP = XDPGEN.capability("live"), XDPGEN.capability("afxdp")


@pytest.mark.parametrize(
    ("engine", "queues", "cpus", "reached"),
    [(LIVE, 1, (3,), 1), (LIVE, 8, (0, 1), 2), (LIVE, 2, (0, 2), 1), (LIVE, 2, (1, 2), 2), (AFXDP, 8, (0,), 8)],
)
def test_queues_reached_follow_from_cpus(
    engine: Capabilities, queues: int, cpus: tuple[int, ...], reached: int
) -> None:
    assert engine.queues_reached(queues, cpus) == reached


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (GeneratorSettings("live", "vg0").changed(queues=4, cpus=(0, 1)), "reaches 2 queues"),
        (
            GeneratorSettings("live", "vg0").changed(frame_bytes=3361),
            "64 to 3360 bytes: the kernel keeps a live frame in one page",
        ),
        (GeneratorSettings("live", "vg0").changed(flows=1_048_577), "1048576 flows"),
        (GeneratorSettings("live", "vg0").changed(file="x.pcap"), "frames of a file"),
        (GeneratorSettings("afxdp", "vg0").changed(queues=65), "64 queues"),
        (GeneratorSettings("afxdp", "vg0").changed(frame_bytes=9217), "64 to 9216"),
        (GeneratorSettings("live", "vg0").changed(frame_bytes=71, vlan=5), "72 to 3360"),
        (GeneratorSettings("live", "vg0").changed(imix=(1518, 71), vlan=5), "72 to 3360"),
        (GeneratorSettings("live", "vg0").changed(frame_bytes=87, ip_version=6), "88 to 3360"),
        (GeneratorSettings("live", "vg0").changed(frame_bytes=87, ip_version=6, vlan=5), "88 to 3360"),
    ],
)
def test_the_impossible_is_unsupported_with_a_reason(settings: GeneratorSettings, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        XDPGEN.capability(settings.engine).require(settings)


def test_possible_settings_pass() -> None:
    LIVE.require(GeneratorSettings("live", "vg0").changed(queues=2, cpus=(0, 1), rate_pps=1000))
    AFXDP.require(GeneratorSettings("afxdp", "vg0").changed(queues=8, cpus=(0,), file="x.pcap"))


@pytest.mark.parametrize("able", [*MOONGEN.values(), *TESTPMD.values()], ids=lambda able: able.engine)
def test_generators_without_tags_ipv6_or_files_say_so(able: Capabilities) -> None:
    own = {"stamp": "none", **able.addresses}
    able.require(GeneratorSettings(able.engine, "0").changed(**own))
    refused = (
        ({"vlan": 5}, "sends no VLAN tag"),
        ({"imix": (64, 594)}, "sends frames of one size only"),
        ({"receive_on": "1"}, "receives on the port it sends on only"),
        ({"ip_version": 6}, "sends no IPv6"),
        ({"file": "x.pcap"}, "does not send the frames of a file"),
    )
    for more, reason in refused:
        with pytest.raises(UnsupportedError, match=f"{able.generator}, engine {able.engine}: {reason}"):
            able.require(GeneratorSettings(able.engine, "0").changed(frame_bytes=512, **own, **more))


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="live, afxdp"):
        Generator(None, GeneratorSettings("warp", "vg0"), "xdpgen")  # type: ignore[arg-type]


@pytest.mark.parametrize(("engine", "paced", "full"), [(LIVE, 8, 60), (AFXDP, 32, 256)])
def test_the_batch_is_the_same_at_every_paced_rate(engine: Capabilities, paced: int, full: int) -> None:
    """The batch followed the rate (1, 4, 8, 16, 60) and caused steps in the latency against the load."""
    assert (engine.batch(paced=True), engine.batch(paced=False)) == (paced, full)


def test_a_kernel_without_live_frames_is_unsupported() -> None:
    """The answer of a guest of 5.10; xdpgen asks its kernel before it sends anything."""
    said = (
        "support: this kernel has no live frames, which engine live sends: Linux 5.18 and newer have them (EOPNOTSUPP)"
    )
    assert XDPGEN.refusal(said) == "write `traffic: {engine: afxdp}` in the plan's block"
    assert XDPGEN.refusal("send: the sender on CPU 0 cannot send live frames") is None
