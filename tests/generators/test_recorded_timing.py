"""Frames of a capture leave with its gaps: by the receiver's stamps, and by what the sender says of itself."""

from collections.abc import Callable
from itertools import count, takewhile
from statistics import median

import pytest
from tests.generators.conftest import Bench

from xdplab.errors import HostError
from xdplab.formats.generator import Burst
from xdplab.formats.pcapng import write_pcap

pytestmark = [pytest.mark.root, pytest.mark.lab]

Send = Callable[..., Burst]
TIMES_MS = (0.0, 0.0, 0.3, 4.0, 4.1, 9.0, 21.0)
FRAMES = [bytes(36) + (50220).to_bytes(2, "big") + bytes([number]) * 62 for number in range(len(TIMES_MS))]
SECONDS = 0.4


def put(bench: Bench, tmp_path_factory: pytest.TempPathFactory, times_ms: tuple[float, ...]) -> str:
    file = tmp_path_factory.mktemp("capture") / "some.pcap"
    write_pcap(FRAMES, file, [round(ms * 1e6) for ms in times_ms])
    path = f"{bench.lab.work_dir(bench.lab.tg)}/recorded.pcap"
    bench.lab.tg.put(file, path)
    return path


def schedule(speed: float) -> list[float]:
    """Return when the frames of a burst are due, in ms: the next round follows after the mean gap."""
    period = TIMES_MS[-1] * len(TIMES_MS) / (len(TIMES_MS) - 1)
    rounds = (n // len(TIMES_MS) * period + TIMES_MS[n % len(TIMES_MS)] for n in count())
    return list(takewhile(lambda ms: ms < SECONDS * 1e3, (ms / speed for ms in rounds)))


@pytest.mark.parametrize(("speed", "queues"), [(1.0, 1), (2.0, 1), (0.5, 1), (1.0, 2)])
def test_the_receivers_stamps_follow_the_captures_gaps(
    traffic_bench: Bench, one_burst: Send, tmp_path_factory: pytest.TempPathFactory, speed: float, queues: int
) -> None:
    path, due = put(traffic_bench, tmp_path_factory, TIMES_MS), schedule(speed)
    with traffic_bench.queues(queues), traffic_bench.echo("times") as dut:
        burst = one_burst("afxdp", file=path, speed=speed, seconds=SECONDS, queues=queues)
        lines = [(dut.read_line(5.0) or "").split() for _ in due]
    came = sorted((int(ns), bytes.fromhex(frame)[-1]) for frame, ns in lines)
    numbers = [n % len(FRAMES) for n in range(len(due))]
    assert [n for _, n in came] == numbers if queues == 1 else sorted(n for _, n in came) == sorted(numbers)
    errors_ms = [(ns - came[0][0]) / 1e6 - ms for (ns, _), ms in zip(came, due, strict=True)]
    assert abs(median(errors_ms)) < 0.5, errors_ms  # others may take the CPU for a while; gaps are up to 12 ms
    summary, late = burst.summary, burst.lateness
    assert late is not None
    assert (summary.tx_packets, late.count) == (len(due), len(due))
    assert summary.rate_requested_pps == pytest.approx(len(due) / SECONDS)
    assert (late.percentile(50.0) or 0) < 0.5e6


@pytest.mark.parametrize(
    ("times", "words"),
    [((5.0,) * 7, "all frames have one time stamp"), ((0, 1, 2, 1.5, 3, 4, 5), "frame 4 was captured before frame 3")],
)
def test_stamps_without_gaps_are_refused(
    traffic_bench: Bench, tmp_path_factory: pytest.TempPathFactory, times: tuple[float, ...], words: str
) -> None:
    path = put(traffic_bench, tmp_path_factory, times)
    with traffic_bench.generator("afxdp", file=path, speed=1.0) as generator, pytest.raises(HostError, match=words):
        generator.start()
