"""Labs whose DUT has a NIC that QEMU emulates, with the kernel's own driver: settings, counters, restoring."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.available import or_skip
from tests.end_to_end.conftest import measured, plan

from xdplab import labs
from xdplab.deploy.device import remember, restore_remembered, snapshot
from xdplab.deploy.native import build_tool
from xdplab.deploy.queues import Endpoint, set_queues
from xdplab.deploy.settings import FEATURES, read
from xdplab.deploy.settings_nic import IrqAffinity
from xdplab.deploy.watchdog import script_path
from xdplab.deploy.xdp import XdpRequest, attach
from xdplab.errors import MissingToolError, UnsupportedError
from xdplab.hosts.local import LocalHost
from xdplab.labs.receiving import place_interrupts
from xdplab.labs.vm import kernels, kind, qemu, tap
from xdplab.programs.build import build
from xdplab.programs.spec import ProgramSpec

pytestmark = [pytest.mark.root, pytest.mark.guest]
SLOW = {"settle_s": 0.5, "pause_s": 0.02, "retries": 0}
"""Of the trials of an emulated guest."""
TRAFFIC = "workload: array, accesses: 0}, traffic: {load: 1kpps"


@contextmanager
def lab_with(card: str, kernel: str = "6.12") -> Iterator[tap.TapLab]:
    if not Path("/dev/net/tun").exists():
        pytest.skip("this kernel has no tap: there is no /dev/net/tun")
    with or_skip(f"guest with {card}"):
        tap._require_model(tap.CARDS[card], qemu.require_tools())
        kernels.with_driver(kernels.kernel(kernel), card)
    with labs.use_lab(f"vm:{kernel}:functional:{card}") as lab:
        yield lab


@pytest.fixture(scope="module")
def vmxnet3() -> Iterator[tap.TapLab]:
    with lab_with("vmxnet3") as lab:
        yield lab


@pytest.mark.nightly
def test_what_a_driver_switches_off_by_itself_is_put_back(vmxnet3: tap.TapLab, tmp_path: Path) -> None:
    """vmxnet3 switches LRO off for a program and leaves it off; the kernel ignores a request for the state it has."""
    lab = vmxnet3
    program = build(ProgramSpec(workload="array", accesses=0), tmp_path).object
    build_tool(LocalHost(), "xdpload", str(lab.native_dir))
    xdpload = build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
    there, state = f"{lab.work_dir(lab.dut)}/card.o", f"{lab.work_dir(lab.dut)}/state"
    lab.dut.put(program, there)
    lab.dut.run(["mkdir", "-p", state])

    def lro() -> object:
        return read(FEATURES, lab.dut, lab.dut_interface)["lro"]

    for put_back in (
        lambda: restore_remembered(lab.dut, lab.dut_interface, state),
        lambda: lab.dut.run(["sh", script_path(lab.dut_interface, state)]),
    ):
        remember(lab.dut, lab.dut_interface, state)
        assert lro() is True
        with attach(lab.dut, xdpload, XdpRequest(there, lab.dut_interface, "native", section="xdp"), deadline_s=60.0):
            assert lro() is False
        put_back()
        assert lro() is True


@pytest.mark.nightly
def test_queues_that_the_driver_does_not_set_are_named(vmxnet3: tap.TapLab) -> None:
    with pytest.raises(UnsupportedError, match="can have 1 to 1 queues, not 2"):
        set_queues(Endpoint(vmxnet3.dut, vmxnet3.dut_interface), None, 2)


@pytest.mark.nightly
@pytest.mark.parametrize(("card", "queues"), [("vmxnet3", 1), ("igb", 2)])
def test_trials_are_valid_and_the_counts_of_both_ends_agree(card: str, queues: int, tmp_path: Path) -> None:
    """Only frames that the tap accepts count: a busy machine's emulated guest may miss others, as the TG reports."""
    points = f"mode: [native, generic], queues: {queues}, workload: array, accesses: [0, 100]"
    blocks = f"[{{points: {{{points}}}, traffic: {{load: 1kpps}}, passes: [rate]}}]"
    with lab_with(card) as lab:
        assert lab.label == f"virtual lab, vm 6.12, functional: no times, {card}"
        trials = measured(lab.name, tmp_path, plan(blocks, window_s=0.3, **SLOW))
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    for _, row in trials.iterrows():
        assert row["dut_driver"] == card
        assert row["tx_packets"] == 300
        assert 0 < row["dut_tx_packets"] == row["rx_packets"] <= row["dut_rx_packets"] <= 300
        by_queue = json.loads(row["rx_by_queue"])
        assert len(by_queue) == queues
        assert all(by_queue)
        assert sum(by_queue) == row["dut_rx_packets"]


@pytest.mark.nightly
@pytest.mark.parametrize("card", ["vmxnet3", "igb"])
def test_tags_and_ipv6_reach_the_program_and_come_back(card: str, tmp_path: Path) -> None:
    """These cards take tags off, and filter them, until a block with tags begins; afterwards they do again."""
    points = f"mode: [native, generic], frame_bytes: 100, {TRAFFIC}"
    blocks = f"[{{points: {{{points}, vlan: [none, 5], ip_version: [4, 6]}}}}]"
    with lab_with(card) as lab:
        before = snapshot(lab.dut, lab.dut_interface).values
        trials = measured(lab.name, tmp_path, plan(blocks, window_s=0.3, **SLOW))
        after = snapshot(lab.dut, lab.dut_interface).values
    assert len(trials) == 8
    assert trials["verdict"].eq("valid").all(), trials[["mode", "vlan", "ip_version", "reason"]].to_dict("records")
    assert trials["rx_packets"].gt(0).all()
    assert trials["foreign_packets"].eq(0).all()
    assert before["features.rxvlan"] is True
    assert after == before


@pytest.mark.nightly
@pytest.mark.parametrize("card", ["vmxnet3", "igb"])
def test_frames_of_several_sizes_reach_the_program_and_come_back(card: str, tmp_path: Path) -> None:
    blocks = f"[{{points: {{mode: [native, generic], {TRAFFIC}, imix: simple}}}}]"
    with lab_with(card) as lab:
        trials = measured(lab.name, tmp_path, plan(blocks, window_s=0.3, **SLOW))
    assert len(trials) == 2
    assert trials["verdict"].eq("valid").all(), trials[["mode", "reason"]].to_dict("records")
    for row in trials.to_dict("records"):
        assert json.loads(row["tx_by_size"]) == {"64": 175, "594": 100, "1518": 25}
        assert all(frames > 0 for frames in json.loads(row["rx_by_size"]).values())
        assert sum(json.loads(row["rx_by_size"]).values()) == row["rx_packets"]
        assert row["foreign_packets"] == 0


@pytest.mark.nightly
def test_rings_of_a_plan_are_set_rounded_refused_and_put_back(vmxnet3: tap.TapLab, tmp_path: Path) -> None:
    """vmxnet3 rounds a ring up to a multiple of 32 entries."""
    before = snapshot(vmxnet3.dut, vmxnet3.dut_interface).values
    asked = "[{}, {rings.rx: 512}, {rings.rx: 500}, {rings.rx: 9000}, {coalesce.rx-usecs: 50}]"
    blocks = f"[{{points: {{mode: native, device: {asked}, {TRAFFIC}}}}}]"
    trials = measured(vmxnet3.name, tmp_path, plan(blocks, window_s=0.3, **SLOW)).set_index("device")
    assert trials["rx_ring_entries"].dropna().to_dict() == {
        "none": before["rings.rx"], "rings.rx=512": 512, "rings.rx=512 (500 asked)": 512,
    }  # fmt: skip
    assert trials["verdict"].value_counts().to_dict() == {"valid": 3, "unsupported": 2}, trials["reason"].tolist()
    assert "rings.rx is 512 where the plan asks for 500" in trials["reason"]["rings.rx=512 (500 asked)"]
    assert "requested ring size exceeds maximum" in trials["reason"]["rings.rx=9000"]
    assert snapshot(vmxnet3.dut, vmxnet3.dut_interface).values["rings.rx"] == before["rings.rx"]


def test_a_card_that_this_qemu_has_not_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "qemu"
    old.write_text("#!/bin/sh\n[ $1 = --version ] && echo QEMU 7.2 && exit\necho no such device >&2\n")
    old.chmod(0o755)
    with pytest.raises(MissingToolError, match=r"QEMU has no igb: QEMU 7\.2"):
        tap._require_model(tap.CARDS["igb"], {qemu.QEMU: str(old)})
    assert kind.with_link("6.12:igb") == ("6.12", "igb")
    assert kind.with_link("6.12:count") == ("6.12:count", "")
    assert kind.with_link("6.12:functional:own:vmxnet3") == ("6.12:functional:own", "vmxnet3")


@pytest.mark.nightly
def test_the_sender_has_zero_copy_where_the_driver_has_it() -> None:
    """igb has it in 7.2 and not in 6.12. The tap counts what the guest's xdpgen sends."""
    ways = ((), ("--need-wakeup",), ("--busy-poll", "50"), ("--need-wakeup", "--busy-poll", "50"))
    for kernel, able in (("7.2", True), ("6.12", False)):
        with lab_with("igb", kernel) as lab:
            build_tool(LocalHost(), "xdpgen", str(lab.native_dir))
            xdpgen = build_tool(lab.dut, "xdpgen", f"{lab.work_dir(lab.dut)}/native")
            set_queues(Endpoint(lab.dut, lab.dut_interface), None, 1)
            argv = [xdpgen, "--interface", lab.dut_interface, "--engine", "afxdp", "--fifo", "0", "--load", "500"]
            argv += ["--bind", "zerocopy", "--settle", "1", "--dst-mac", lab.tg_mac]
            for way in ways:
                before = on_the_tap(lab)
                # Attaching and binding reset the card, which has no link for a time.
                timed = ["sh", "-c", '(sleep 10; echo burst measured 1; sleep 4) | "$0" --step "$@"', *argv, *way]
                done = lab.dut.run(timed, check=False)
                lines = [json.loads(line) for line in done.text.splitlines()]
                if not able:
                    assert "no AF_XDP socket with zerocopy on queue 0" in lines[-1]["message"]
                    assert lines[-1]["error"] == "EOPNOTSUPP"
                    break
                assert done.ok, (way, lines[-1])
                assert lines[0]["bind"] == "zerocopy"
                (sent,) = (line["tx_packets"] for line in lines if line["type"] == "summary")
                assert sent > 300
                assert on_the_tap(lab) - before == sent, way


def on_the_tap(lab: tap.TapLab) -> int:
    """Return the frames that the guest has sent; /sys shows another namespace's devices."""
    (line,) = (line for line in lab.tg.run(["cat", "/proc/net/dev"]).text.splitlines() if lab.tg_interface in line)
    return int(line.partition(":")[2].split()[1])


@pytest.mark.nightly
def test_an_uneven_rss_table_is_put_back() -> None:
    with lab_with("igb") as lab:
        dut, name, state = lab.dut, lab.dut_interface, f"{lab.work_dir(lab.dut)}/state"
        set_queues(Endpoint(dut, name), None, 2)
        dut.run(["mkdir", "-p", state])
        for put_back in (
            lambda: dut.run(["sh", script_path(name, state)]).text,
            lambda: restore_remembered(dut, name, state),
        ):
            dut.run(["ethtool", "-X", name, "weight", "1", "3"])
            assert remember(dut, name, state).values["rss.table"] == "weight 1 3"
            dut.run(["ethtool", "-X", name, "equal", "2"])
            assert snapshot(dut, name).values["rss.table"] == "equal 2"
            put_back()
            assert snapshot(dut, name).values["rss.table"] == "weight 1 3"


@pytest.mark.nightly
def test_a_plan_sets_rss_hash_fields_and_private_flags_and_the_frames_follow(tmp_path: Path) -> None:
    asked = "[{}, {rss.table: equal 1}, {rss.table: weight 1 3, hash.udp4: sdfn}, {flags.legacy-rx: KEPT}, "
    asked += "{rss.hkey: '6d:5a'}]"
    with lab_with("igb") as lab:
        before = snapshot(lab.dut, lab.dut_interface).values
        kept = "off" if before["flags.legacy-rx"] else "on"
        points = f"mode: native, queues: [2, 4], device: {asked.replace('KEPT', kept)}, {TRAFFIC}"
        trials = measured(lab.name, tmp_path, plan(f"[{{points: {{{points}}}}}]", window_s=0.5, **SLOW))
        after = snapshot(lab.dut, lab.dut_interface).values
        assert {key: value for key, value in after.items() if before.get(key) != value} == {}
        assert kept == "on", "this driver begins without it"
        lab.dut.run(["ethtool", "-L", lab.dut_interface, "combined", "1"])  # no table that needs more queues is left
    for queues, own in trials.groupby("queues"):
        rows = own.set_index("device")
        verdicts = {"valid": 3, "invalid": 1, "unsupported": 1}
        assert rows["verdict"].value_counts().to_dict() == verdicts, rows["reason"].tolist()
        # Without headroom in front of the frame, igb has no room for XDP_TX's data, and sends nothing back.
        reason = rows["reason"][f"flags.legacy-rx={kept}"]
        assert "the path carried none of 300 frames" in reason
        assert "the DUT received 300, sent back 0" in reason
        assert "has no setting rss.hkey" in rows["reason"]["rss.hkey=6d:5a"]
        shares = {device: json.loads(counts) for device, counts in rows["rx_by_queue"].dropna().items()}
        assert all(
            min(counts) > 0 for device, counts in shares.items() if device in ("none", f"flags.legacy-rx={kept}")
        )
        assert [count > 0 for count in shares["rss.table=equal 1"]] == [True] + [False] * (queues - 1)
        first, second, *rest = shares["hash.udp4=sdfn rss.table=weight 1 3"]
        assert 2 < second / first < 4.5
        assert not any(rest)


SEND = """
import socket, struct, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((sys.argv[1], 0))
for number in range(400):
    ends = b"\\xc6\\x12\\x00" + bytes([number % 200]) + b"\\xc6\\x13\\x00\\x01"
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 46, 0, 0, 64, 17, 0) + ends
    wire.send(bytes.fromhex(sys.argv[2]) * 2 + b"\\x08\\x00" + ip + struct.pack("!HHHH", 1, 2, 26, 0) + bytes(18))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("card", "queues"), [("vmxnet3", 1), ("igb", 2)])
def test_each_queue_is_served_by_the_cpu_that_it_was_given(card: str, queues: int) -> None:
    with lab_with(card) as lab:
        dut, name, cpus = lab.dut, lab.dut_interface, lab.cpus().dut
        before = read(IrqAffinity(), dut, name)
        set_queues(Endpoint(dut, name), None, queues)
        for shift in (0, 1):  # the second placement must move them: the first one may match the old one by chance
            wanted = [cpus[(queue + shift) % len(cpus)] for queue in range(queues)]
            assert place_interrupts(dut, name, wanted) == dict(enumerate(map(str, wanted)))
            send_frames(lab)  # an interrupt moves when it next fires
            counts = served(lab)
            send_frames(lab)
            for queue, by_cpu in served(lab).items():
                busy = [cpu for cpu, count in enumerate(by_cpu) if count > counts[queue][cpu]]
                assert busy == [wanted[queue]], (queue, by_cpu, counts[queue])
        for command in IrqAffinity().commands(name, before):
            dut.run(command.argv, stdin=command.stdin.encode())


def send_frames(lab: tap.TapLab) -> None:
    lab.tg.run([sys.executable, "-c", SEND, lab.tg_interface, lab.dut_mac.replace(":", "")])
    time.sleep(1)


def served(lab: tap.TapLab) -> dict[int, list[int]]:
    """Return the interrupts so far, by receive queue and CPU."""
    lines = [line.split() for line in lab.dut.get("/proc/interrupts").decode().splitlines()]
    count = len(lines[0])
    rows = {words[-1]: [int(word) for word in words[1 : 1 + count]] for words in lines[1:] if "-rx" in words[-1]}
    return {int(name.rpartition("-")[2]): counts for name, counts in rows.items()}
