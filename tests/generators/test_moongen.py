"""MoonGen's adapter: arguments, what it needs on the TG, a session, and output recorded from a real MoonGen."""

import re
import shutil
from pathlib import Path

import pytest

from xdplab.errors import FormatError, HostError, UnsupportedError
from xdplab.formats.generator import parse_line, parse_output
from xdplab.generators import Generator, GeneratorSettings
from xdplab.generators.moongen import dpdk_config, installed, moongen, own_arguments
from xdplab.hosts.local import LocalHost
from xdplab.labs.base import GeneratorPlace

DOUBLE = Path(__file__).resolve().parents[1] / "moongen_lua" / "double"
RECORDED = Path(__file__).parent / "recorded" / "moongen_af_packet.jsonl"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder that looks like a built MoonGen: its binary is the double."""
    if shutil.which("luajit") is None:
        pytest.skip("needs luajit to run the Lua scripts")
    binary = tmp_path / "MoonGen" / "build" / "MoonGen"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\nexec luajit {DOUBLE}/MoonGen.lua {DOUBLE} "$@"\n')
    binary.chmod(0o755)
    return tmp_path / "MoonGen"


def options(settings: GeneratorSettings) -> dict[str, str]:
    words = moongen("/opt/MoonGen").argv(settings, "/lab/moongen")
    assert words[:4] == [
        "/lab/moongen/moongen.sh",
        "/opt/MoonGen/build/MoonGen",
        "/lab/moongen/traffic.lua",
        "--dpdk-config=/lab/moongen/dpdk.lua",
    ]
    return dict(zip(words[4::2], words[5::2], strict=True))


def test_every_setting_becomes_an_option() -> None:
    given = GeneratorSettings("moongen", "1").changed(
        queues=4, frame_bytes=1518, flows=2047, rate_pps=14.88e6, run_id="beef", stamp=16,
        src_mac="00:15:4d:00:00:02", dst_mac="00:15:4d:00:00:01", dst_ip_stride="0.0.0.255", settle_s=0.2, max_frames=9,
    )  # fmt: skip
    found = options(given)
    assert found["--port"] == "1"
    assert found["--load"] == "14880000"
    assert found["--dst-ip-stride"] == "0.0.0.255"
    assert found["--stamps"] == "software"
    assert found["--max-frames"] == "9"
    assert options(GeneratorSettings("moongen-hw", "0"))["--stamps"] == "hardware"
    assert options(GeneratorSettings("moongen", "0"))["--load"] == "max"


def test_a_session_of_two_bursts(built: Path, tmp_path: Path) -> None:
    host, folder = LocalHost(), str(tmp_path / "room")
    place = GeneratorPlace("moongen", str(built), dpdk=("--no-huge",))
    assert installed(host, folder, place, (1, 0)).program == folder
    config = (tmp_path / "room/dpdk.lua").read_text()
    prefix = r'"--no-huge", "--file-prefix", "xdplab-[0-9a-f]{12}"'
    assert re.fullmatch(rf"DPDKConfig {{ cores = {{0, 1}}, cli = {{{prefix}}} }}\n", config)
    settings = GeneratorSettings("moongen", "0").changed(rate_pps=10000, run_id="00ab")
    with Generator(host, settings, folder, adapter=moongen(str(built)), deadline_s=30) as generator:
        assert generator.start().settings["run_id"] == "00ab"
        assert generator.burst("warmup", 0.1).summary.rx_packets == 1000
        assert generator.burst("rate", 0.2).summary.rx_packets == 2000
        generator.stop()
    assert len(parse_output(generator.raw).bursts) == 2


def test_a_task_that_dies_ends_the_session_with_its_message(built: Path, tmp_path: Path) -> None:
    host, folder = LocalHost(), str(tmp_path / "room")
    installed(host, folder, GeneratorPlace("moongen", str(built)), (0, 1))
    settings = GeneratorSettings("moongen-hw", "0").changed(src_mac="no mac")
    with Generator(host, settings, folder, adapter=moongen(str(built)), deadline_s=30) as generator:
        generator.start()
        with pytest.raises(HostError, match=r"script: .*not a MAC address"):
            generator.burst("rate", 0.1)


def test_a_run_has_files_of_its_own_and_opens_its_own_card_only() -> None:
    """A killed run left DPDK's lock to the next run, and DPDK took every card that was bound to its driver."""
    first, second = (own_arguments((), "0000:3b:00.0") for _ in range(2))
    assert first[0] == second[0] == "--file-prefix"
    assert first[1] != second[1]
    assert first[2:] == ["-w", "0000:3b:00.0"]
    users = ["--file-prefix=mine", "--no-pci", "--vdev=net_af_packet0,iface=vg0"]
    assert own_arguments(users, "0000:3b:00.0") == users


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    place = GeneratorPlace("moongen", "/no/where")
    with pytest.raises(HostError, match=r"no MoonGen in /no/where \(build it there"):
        installed(LocalHost(), str(tmp_path), place, (0, 1))
    with pytest.raises(UnsupportedError, match="needs two CPUs"):
        installed(LocalHost(), str(tmp_path), place, (0,))


@pytest.mark.parametrize("word", ['a"b', "a\\b", "a\nb"])
def test_arguments_that_would_be_code_are_refused(word: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be handed on"):
        dpdk_config((0, 1), (word,))


def test_what_a_real_moongen_wrote() -> None:
    """Recorded: MoonGen of 2022 on net_af_packet over veth, a DUT that swaps MACs, the scripts as they are here."""
    output = parse_output(RECORDED.read_bytes())
    assert output.ready.settings["driver"] == "net_af_packet"
    assert [burst.name for burst in output.bursts] == ["warmup", "rate"]
    rate = output.bursts[1].summary
    assert (rate.tx_packets, rate.rx_packets, rate.lost_packets) == (3000, 3000, 0)
    assert output.bursts[1].histogram.count == 187  # of numbers 1000 to 3999 one in 16
    assert output.bursts[1].histogram.percentile(50) == pytest.approx(20e3, rel=0.99)


def test_what_a_real_moongen_wrote_without_a_link() -> None:
    """The same with the DUT's end of the veth down: MoonGen hands over 985 frames, and its port sends none."""
    (burst,) = parse_output(RECORDED.with_name("moongen_link_down.jsonl").read_bytes()).bursts
    s = burst.summary
    assert (s.tx_packets, s.rx_packets, s.device_tx_packets, s.device_rx_missed) == (985, 0, 0, 0)
    assert set(s.missing) == {"tx_pause_max_ns", "tx_paused_ns", "tx_busy_cores", "damaged_packets"} | {
        "probes_sent",
        "probes_lost",
    }


@pytest.mark.parametrize(
    ("said", "told", "remedy"),
    [
        # The messages of a real MoonGen (gcc 12, DPDK 17.08), which continues if DPDK did not start.
        ("EAL: No free hugepages reported in hugepages-2048kB", "DPDK has 0 ports, and no port 0", "hugepages"),
        ("EAL: lcore 9 unavailable EAL: invalid coremask", "DPDK has 0 ports, and no port 0", "tg.cpus"),
        ("", "DPDK has 1 ports, and no port 3", "generator.ports"),
        ("", "the port has 1 queues, but 9 were requested", "fewer queues"),
    ],
)
def test_a_missing_port_or_machine_feature_is_unsupported_with_the_cause(
    said: str, told: str, remedy: str, tmp_path: Path
) -> None:
    line = f'{{"type":"error","step":"config","error":null,"message":"{told}"}}'
    binary = tmp_path / "build" / "MoonGen"
    binary.parent.mkdir()
    binary.write_text(
        '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; [ "$1" = --results ] && out=$2; done\n'
        f"echo '{said}'\necho '{line}' >\"$out\"\nexit 1\n"
    )
    binary.chmod(0o755)
    place = GeneratorPlace("moongen", str(tmp_path))
    there = installed(LocalHost(), str(tmp_path / "room"), place, (0, 1))
    settings = GeneratorSettings("moongen", "0")
    generator = Generator(LocalHost(), settings, there.program, adapter=there.adapter, deadline_s=30)
    with generator, pytest.raises(UnsupportedError) as refused:
        generator.start()
    assert told in refused.value.message
    assert said in refused.value.message
    assert remedy in (refused.value.remedy or "")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "Infinity"])
def test_nan_is_refused(value: str) -> None:
    line = next(line for line in RECORDED.read_text().splitlines() if '"interval"' in line)
    broken = line.replace('"t_s":0.1', f'"t_s":{value}')
    assert broken != line
    with pytest.raises(FormatError):
        parse_line(broken)
