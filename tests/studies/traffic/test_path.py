"""The path is proved before a trial; a search compares both ends' counts around each rate."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.errors import HostError, UnsupportedError
from xdplab.studies.traffic import path
from xdplab.studies.traffic.bench import missed_by_the_tg, require_agreement, require_untimed
from xdplab.studies.traffic.path import DutCount, prove, require_way_back


def point(**factors: Any) -> Any:
    values = {
        "mode": "native",
        "engine": "live",
        "xsk_attach": None,
        "program": SimpleNamespace(action="tx"),
        "two_ports": False,
    }
    return SimpleNamespace(**values | factors)


class Sender:
    """A generator whose frames do not come back before the burst ``link_up``."""

    def __init__(self, link_up: int, taken: int = 300) -> None:
        self.bursts: list[float] = []
        self._link_up, self._taken = link_up, taken

    def burst(self, name: str, seconds: float) -> Any:
        assert name == "path"
        self.bursts.append(seconds)
        back = 300 if len(self.bursts) >= self._link_up else 0
        sent = back or self._taken  # a NIC without a link may accept none
        return SimpleNamespace(summary=summary_of(sent, back), ways=())


class OneWaySilent(Sender):
    """Two directions, of which the second carries frames from the burst ``link_up`` on."""

    def burst(self, name: str, seconds: float) -> Any:
        there, back = SimpleNamespace(summary=summary_of(300, 300)), super().burst(name, seconds)
        sums = (300 + back.summary.tx_packets, 300 + back.summary.rx_packets)
        return SimpleNamespace(summary=summary_of(*sums), ways=(there, back))


def summary_of(sent: int, back: int) -> Any:
    return SimpleNamespace(tx_packets=sent, rx_packets=back, foreign_packets=0)


def counting(received: int = 0, sent: int = 0) -> Any:
    return SimpleNamespace(gained=lambda: ({"dut_received": received, "dut_sent": sent}, {}))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "PAUSE_S", 0.001)
    monkeypatch.setattr(path, "CARRIER_S", 0.05)


def test_a_path_that_carries_is_proved_by_one_short_burst() -> None:
    sender: Any = Sender(1)
    assert prove(sender, point(), 3000, counting) == {"sent": 300, "back": 300}
    assert prove(sender, point(), 10, counting) == {"sent": 300, "back": 300}
    assert prove(sender, point(), None, counting) == {"sent": 300, "back": 300}
    assert sender.bursts == [0.1, 0.5, 0.02]
    dropped: Any = Sender(10**9)
    prove(dropped, point(program=SimpleNamespace(action="drop")), None, counting)
    assert len(dropped.bursts) == 1, "nothing is awaited"


def test_a_link_that_comes_up_late_is_waited_for_and_one_that_does_not_is_told_with_the_duts_counts() -> None:
    late: Any = Sender(3)
    assert prove(late, point(), None, counting)["back"] == 300
    never: Any = Sender(10**9)
    assert prove(never, point(), None, counting) == {"sent": 300, "back": 0, "dut_received": 0, "dut_sent": 0}


def test_what_the_dut_received_and_sent_since_it_was_asked() -> None:
    counts = iter(({"rx": 10, "tx": 1}, {"rx": 310, "tx": 201}))
    side: Any = SimpleNamespace(counts=lambda: SimpleNamespace(total=next(counts).__getitem__))
    probe: Any = SimpleNamespace(snapshot=lambda when: {when: b""})
    gained, files = DutCount(probe, side, point()).gained()
    assert gained == {"dut_received": 300, "dut_sent": 200}
    assert list(files) == ["before", "after"]


@pytest.mark.parametrize(
    ("ways", "missing", "expected"),
    [
        (None, False, {"dut_received": 1, "dut_sent": 2}),
        (1, False, {"dut_received": 1, "dut_sent": 30}),
        (2, False, {"dut_received": 1 + 10, "dut_sent": 30 + 3}),
        (2, True, {"dut_received": 1 + 10, "dut_sent": None}),
    ],
)
def test_a_drivers_counts_are_of_the_port_that_receives_and_the_one_that_sends_on(
    ways: int | None, missing: bool, expected: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(files: dict[str, bytes], mode: str, queues: int = 1) -> dict[str, int | None]:
        port = 10 if "second before" in files else 1
        assert set(files) == {f"{'second ' * (port == 10)}{when}" for when in ("before", "after")}
        assert (mode, queues) == ("native", 4 if port == 1 else 1)
        forwarded = None if missing and port == 1 else 3 * port
        return {"dut_rx_packets": port, "dut_tx_packets": 2 * port, "dut_forwarded_packets": forwarded}

    monkeypatch.setattr(path, "columns", SimpleNamespace(packets_counted=counted))
    side: Any = SimpleNamespace(counts=lambda: None)
    first: Any = SimpleNamespace(snapshot=lambda when: {when: b""})
    second: Any = ways and SimpleNamespace(snapshot=lambda when: {f"second {when}": b""})
    count = DutCount(first, side, point(queues=4, ways=ways), second)
    assert count.gained() == (expected, {"before": b"", "after": b""})


def test_a_dut_that_keeps_what_it_receives_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "CARRIER_S", 600.0)
    sender: Any = Sender(10**9)
    found = prove(sender, point(), None, lambda: counting(received=300))
    assert found == {"sent": 300, "back": 0, "dut_received": 300, "dut_sent": 0}
    assert len(sender.bursts) == 3, "one, and two with the DUT's counts"
    slow, late = (Sender(6) for _ in range(2))
    assert prove(slow, point(), None, lambda: counting(300, 300))["back"] == 300, "the TG's end is slow"  # type: ignore[arg-type]
    assert prove(late, point(), None, lambda: counting(40))["back"] == 300, "its link came up just then"  # type: ignore[arg-type]
    down: Any = Sender(6, taken=0)
    assert prove(down, point(), None, lambda: counting())["back"] == 300, "the TG's link was down"


def test_a_direction_that_is_silent_at_first_is_waited_for_though_the_other_carries() -> None:
    sender: Any = OneWaySilent(3)
    two = point(two_ports=True, program=SimpleNamespace(action="redirect"))
    assert prove(sender, two, None, lambda: counting(600, 600))["back"] == 600
    assert len(sender.bursts) == 3


@pytest.mark.parametrize(
    ("factors", "virtual", "refused"),
    [
        ({"engine": "moongen"}, True, True),
        ({"engine": "moongen", "mode": "af_xdp", "xsk_attach": "native"}, True, True),
        ({"engine": "moongen", "mode": "af_xdp", "xsk_attach": "generic"}, True, False),
        ({"engine": "moongen", "mode": "generic"}, True, False),
        ({"engine": "moongen"}, False, False),
        ({"engine": "testpmd"}, True, True),
        ({"engine": "live"}, True, False),
    ],
)
def test_a_trial_that_would_poison_the_lab_is_refused(factors: dict[str, str], virtual: bool, refused: bool) -> None:
    """Its ring filled; the next search reported MRR 0, and the next generic trial lost 100 % and was valid."""
    lab: Any = SimpleNamespace(virtual=virtual)
    with pytest.raises(UnsupportedError, match="MoonGen and testpmd") if refused else nullcontext():
        require_way_back(lab, point(**factors))


def output(*received: int) -> str:
    ready = {"engine": "live", "queues_reached": 1, "cpus": [0], "sched_policy": "", "frame_bytes": 64}
    lines: list[dict[str, Any]] = [{"type": "ready"} | ready]
    for count in received:
        lines.append(
            {
                "type": "summary", "burst": "offer", "duration_s": 0.4, "tx_packets": 40000, "rx_packets": count,
                "lost_packets": 0, "duplicates": 0, "reordered": 0, "foreign_packets": 0, "bad_run_id": 0,
                "limited": None,
                "tx_errors": 0, "tx_by_queue": [40000], "rx_by_queue": [count], "rate_requested_pps": None,
            }
        )  # fmt: skip
        lines.append(
            {
                "type": "histogram", "burst": "offer", "unit": "ns", "scheme": "log-linear", "sub_bits": 7,
                "count": 0, "min": None, "max": None, "sum": 0, "buckets": [],
            }
        )  # fmt: skip
    lines.append({"type": "detached", "bursts": len(received)})
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_searchs_loss_is_the_duts_or_it_is_none() -> None:
    agreeing = {"dut_received": 80000, "dut_sent": 60000}
    require_agreement(point(), output(20000, 40000), agreeing)
    require_agreement(point(), output(20000, 39800), agreeing)
    require_agreement(point(), output(0, 0), {"dut_received": 5, "dut_sent": None})
    with pytest.raises(HostError, match="the DUT sent 60000 back, the TG received 20000"):
        require_agreement(point(), output(20000, 0), agreeing)


@pytest.mark.parametrize(
    ("received", "counts", "missed"),
    [
        ((40000, 30000), {"dut_rx_packets": 80000, "dut_tx_packets": 70000}, 10000),
        ((39000, 30000), {"dut_rx_packets": 80000, "dut_tx_packets": 69000}, 10000),
        (
            (39000, 30000),
            {"dut_rx_packets": 80000, "dut_tx_packets": 75000},
            4000,
        ),  # the warm-up may have lost the rest
        ((40000, 30000), {"dut_rx_packets": 70000, "dut_tx_packets": 70000}, 0),  # at the DUT's own ring
        ((40000, 30000), {"dut_rx_packets": 80000, "dut_tx_packets": 70000, "host_softnet_dropped": 10000}, 0),
        ((40000, 30000), {"dut_rx_packets": None, "dut_tx_packets": 70000}, 0),
        ((40000, 30000), {"dut_rx_packets": 80000, "dut_tx_packets": 70000, "dut_driver": "ixgbe"}, 0),
    ],
)
def test_frames_that_a_search_lost_at_the_tgs_full_ring_are_counted(
    monkeypatch: pytest.MonkeyPatch, received: tuple[int, ...], counts: dict[str, Any], missed: int
) -> None:
    read = {"dut_driver": "veth", "host_softnet_dropped": 0} | counts
    monkeypatch.setattr("xdplab.studies.traffic.bench.packets_counted", lambda *_: read)
    generated = SimpleNamespace(action="tx", workload="array")
    assert missed_by_the_tg(point(mode="generic", queues=2, program=generated), output(*received), {}) == missed


@pytest.mark.parametrize(("runs", "refused"), [("", False), ("7:100", False), ("7:164", True)])
def test_a_rate_of_a_search_with_bpf_statistics_on_is_refused(runs: str, refused: bool) -> None:
    files = {
        f"dut.settings.{when}.txt": f"bpf.run_cnt\t{count}\n".encode()
        for when, count in (("before", "7:100"), ("after", runs))
    }
    with pytest.raises(HostError, match="BPF statistics were on") if refused else nullcontext():
        require_untimed(files)
