"""The neighbour study without a lab: what iperf3 prints, rows, quotients that are paired, and why a cell is null."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pandas as pd
import pytest

from xdplab.errors import FormatError, HostError, LabError, ProgramError, UnsupportedError
from xdplab.labs import Lab
from xdplab.run.frames import why_null
from xdplab.run.progress import silent
from xdplab.studies.neighbour.points import ARMS, NONE, YOURS, NeighbourPoint, NeighbourRequest, gather, smallest
from xdplab.studies.neighbour.rows import NeighbourFacts, by_arm, ratios
from xdplab.studies.neighbour.runs import STUDY, NeighbourStudy
from xdplab.studies.neighbour.tcp import (
    AFTER,
    BEFORE,
    FULL,
    PACED,
    Transfer,
    parse_iperf3,
    require_through_port,
    require_tool,
)
from xdplab.studies.points import StudyTrial

SPEED = {NONE: 8.0, "XDP_PASS native": 2.0, "XDP_PASS generic": 4.0, "pass tcx": 6.0}
BUSY = "cpu 9 9 9 9 9 9 9\ncpu0 100 0 {} 0 0 0 50\ncpu1 0 0 {} 0 0 0 0\n"


def printed(received: int = 125_000_000, seconds: float = 1.0, rtt_us: int = 15, streams: int = 1) -> bytes:
    """What `iperf3 --json` prints, of it what is read."""
    sender = {"sender": {"mean_rtt": rtt_us, "retransmits": 3}}
    end = {"streams": [sender] * streams, "sum_received": {"bytes": received, "seconds": seconds}}
    return json.dumps({"end": end | {"sender_tcp_congestion": "cubic"}}).encode()


def test_a_transfer_is_what_the_receiver_got_and_what_the_sender_saw() -> None:
    assert parse_iperf3(printed(1000, 2.0, 17)) == Transfer(1000, 2.0, 17, 3, "cubic")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"error": "unable to connect to server: Connection timed out"}', HostError),
        (printed(streams=2), FormatError),
        (b'{"end": {}}', FormatError),
        (b"iperf3: no", FormatError),
    ],
)
def test_anything_else_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_iperf3(data)


def test_without_the_tool_it_is_unsupported_and_the_package_is_named() -> None:
    host = SimpleNamespace(name="dut", run=lambda *_, **__: SimpleNamespace(ok=False))
    with pytest.raises(UnsupportedError, match=r"dut.*iperf3") as caught:
        require_tool(cast("Lab", SimpleNamespace(dut=host, tg=host)))
    assert "apt install iperf3" in str(caught.value.remedy)


@pytest.mark.parametrize(("port_bytes", "passes"), [(1000, True), (1040, True), (999, False), (0, False)])
def test_what_tcp_received_without_the_dut_s_port_is_refused(port_bytes: int, passes: bool) -> None:
    lab = cast("Lab", SimpleNamespace(name="one.yaml", dut_interface="eth1"))
    with contextlib.nullcontext() if passes else pytest.raises(UnsupportedError, match=r"one.yaml.*eth1"):
        require_through_port(lab, port_bytes, received_bytes=1000)


def test_without_a_program_tcp_waits_as_after_an_attach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    module = "xdplab.studies.neighbour.runs"
    monkeypatch.setattr(f"{module}.time.sleep", lambda _: done.append("settled"))
    monkeypatch.setattr(f"{module}.transfer", lambda *_: done.append("sent"))
    monkeypatch.setattr(f"{module}.offloads", lambda *_: "none")
    monkeypatch.setattr(NeighbourStudy, "at", lambda *_: None)
    session = NeighbourStudy(cast("Any", SimpleNamespace(directory=SimpleNamespace(path=tmp_path))))
    session._lab = cast("Any", MagicMock())
    session.measure(cast("Any", SimpleNamespace(point=NeighbourPoint("netns", NONE, 1))), tmp_path, NeighbourFacts())
    assert done == ["settled", "sent"]


def test_your_program_adds_its_arms_and_is_kept(tmp_path: Path) -> None:
    assert [point.arm for point in gather(NeighbourRequest()).points] == [*SPEED]
    with pytest.raises(ProgramError):
        gather(NeighbourRequest(file=str(written(tmp_path, "SEC("))))
    gathered = gather(NeighbourRequest(file=str(written(tmp_path, "int mine(struct xdp_md *c) { return XDP_PASS; }"))))
    assert [point.arm for point in gathered.points] == [*ARMS]
    assert {point.sha256 is None for point in gathered.points if YOURS in point.arm} == {False}
    assert len(gathered.files) == 1


def written(folder: Path, function: str) -> Path:
    path = folder / "mine.bpf.c"
    path.write_text(f'#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nSEC("xdp") {function}\n')
    return path


def test_a_lab_is_required_and_the_smallest_run_still_has_intervals() -> None:
    with pytest.raises(LabError):
        gather(NeighbourRequest(places=("host",)))
    with pytest.raises(UnsupportedError, match="instructions"):
        gather(NeighbourRequest(places=("vm:6.12:count",)))
    assert smallest(NeighbourRequest()).repetitions >= 5


class Prepared(NeighbourStudy):
    """TCP with known numbers: each repetition is faster than the one before it; one arm is not supported."""

    def enter_block(self, trials: Any) -> None:
        pass

    def measure(self, trial: StudyTrial[NeighbourPoint], raw: Path, facts: NeighbourFacts) -> None:
        if trial.point.arm not in SPEED:
            raise UnsupportedError("TCP does not get through your program: it came to a standstill")
        received = round(SPEED[trial.point.arm] * trial.repetition * 1e8)
        (raw / FULL).write_bytes(printed(received))
        (raw / PACED).write_bytes(printed(rtt_us=round(100 / SPEED[trial.point.arm])))
        (raw / BEFORE).write_text(BUSY.format(100, 100))
        (raw / AFTER).write_text(BUSY.format(180, 300))
        facts.dut_offloads, facts.tg_offloads, facts.label = "gro", "tso gso", "a lab"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    mine = written(tmp_path, "int mine(struct xdp_md *c) { return XDP_DROP; }")
    run = STUDY.start(NeighbourRequest(repetitions=5, file=str(mine)), tmp_path / "runs")
    monkeypatch.setattr(NeighbourStudy, "enter_block", Prepared.enter_block)
    monkeypatch.setattr(NeighbourStudy, "measure", Prepared.measure)
    run.measure(silent())
    return run


def test_a_row_has_throughput_cpu_per_gigabyte_and_round_trip(run: Any) -> None:
    row = run.rows().set_index(["arm", "repetition"]).loc[(NONE, 1)]
    assert (row["throughput_bps"], row["rtt_us"]) == (6.4e9, 12)
    assert (row["cpu_s"], row["cpu_s_per_gb"]) == (2.8, 3.5), "of all CPUs: softirq work may be on a sender's"


def test_quotients_are_paired_so_a_drift_of_all_arms_widens_nothing(run: Any) -> None:
    of_arms = ratios(run.rows(), "throughput_bps")
    assert [*of_arms] == [*SPEED][1:]
    assert [of.value for of in of_arms.values()] == pytest.approx([0.25, 0.5, 0.75])
    assert all(of.high / of.low < 1.001 for of in of_arms.values())
    assert "0.25 [0.25, 0.25] (XDP_PASS native) to 0.75" in run.summary()[0]


def test_two_labs_of_one_label_are_told_apart_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("netns:a", "netns:b")
    run = STUDY.start(NeighbourRequest(repetitions=5, places=places), tmp_path)
    monkeypatch.setattr(NeighbourStudy, "enter_block", Prepared.enter_block)
    monkeypatch.setattr(NeighbourStudy, "measure", Prepared.measure)
    run.measure(silent())
    throughput, *_ = run.summary()
    assert all(f"(a lab, {place})" in throughput for place in places)
    assert run.tables()["arms"].frame["place"].nunique() == by_arm(run.rows())["label"].nunique() == 2


def test_an_arm_without_tcp_is_null_with_its_reason_in_table_and_rows(run: Any) -> None:
    rows = run.rows()
    missing = rows[rows["arm"].str.startswith(YOURS)]
    assert missing["throughput_bps"].isna().all()
    assert why_null(missing, "cpu_s_per_gb").str.contains("does not get through").all()
    table = run.tables()["arms"].frame.set_index("arm")
    assert list(table["n"]) == [5, 5, 5, 5, 0, 0]
    assert "does not get through" in table.loc["yours native", "why not"]
    assert table["× throughput"].isna().to_dict()[NONE]


def test_a_mark_counts_the_trials_that_are_in_it(run: Any) -> None:
    rows = run.rows().query("label == 'a lab'")
    lost = rows["arm"].eq(NONE) & rows["repetition"].eq(5)
    marks = by_arm(rows.assign(throughput_bps=rows["throughput_bps"].mask(lost))).set_index(["panel", "x"])["n"]
    assert marks[("throughput, Gbit/s", NONE)] == 4
    assert marks.drop(("throughput, Gbit/s", NONE)).eq(5).all()


def test_the_figure_has_each_measured_arm_in_each_panel(run: Any) -> None:
    run.draw_figures()
    marks = pd.read_csv(run.directory.path / "figures" / "neighbour.csv")
    assert set(marks.groupby("panel")["x"].apply(list).map(tuple)) == {tuple(SPEED)}
    assert marks["low"].notna().all()
