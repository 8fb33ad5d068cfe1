"""What a probe asks of its host and how it names the answers: a host that answers in words of its own."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.counters import probe
from xdplab.errors import HostError
from xdplab.hosts import Result
from xdplab.plan import UserMetric

ORDER = ["driver", "settings", "ethtool", "softnet", "iplink", "procstat"]


def result(argv: Sequence[str], exit_code: int | None, out: bytes, err: bytes = b"") -> Result:
    return Result("h", tuple(argv), exit_code, out, err, 0.0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_snapshot_keeps_each_answer_or_its_message_in_the_order_that_hides_its_own_work(when: Any) -> None:
    asked: list[Any] = []

    def take(readings: list[Any], deadline_s: float) -> list[Result]:
        asked.extend((readings, deadline_s))
        lines = [" ".join(reading.words) for reading in readings]
        fails = {"ethtool -S v1": (1, b"", b"no stats\n"), "timeout 10 heat": (124, b"", b"")}
        return [result((), *fails.get(line, (0, line.encode(), b""))) for line in lines]

    one = probe.CounterProbe(None, "dut", "v1", "/d", SimpleNamespace(take=take))  # type: ignore[arg-type]
    metrics = [UserMetric(name="heat", argv=["heat"], when=when), UserMetric(name="no", argv=["no"], when=_other(when))]
    files = one.snapshot(when, metrics, clock=["cpuclock"])
    names = [name.split(".")[1] for name in files]
    counters = ORDER if when == "before" else [name for name in reversed(ORDER) if name != "driver"]
    around = ["clock", *counters, "metric_heat"] if when == "before" else [*counters, "metric_heat", "clock"]
    assert (names, asked[1]) == (around, 50.0)
    assert files[f"dut.ethtool.{when}.err"] == b"no stats"
    assert files[f"dut.metric_heat.{when}.err"] == b"it was ended at its deadline"
    assert files[f"dut.clock.{when}.jsonl"] == b"cpuclock"
    assert files[f"dut.iplink.{when}.json"] == b"ip -s -j link show dev v1"
    assert {reading.kind for reading in asked[0]} == {"run", "file", "settings"}


def _other(when: str) -> Any:
    return {"before": "after", "after": "before"}[when]


def host(
    *, fails: str = "", error: type[Exception] = HostError, ends: dict[str, tuple[int, bytes, bytes]], log: list[str]
) -> Any:
    """A host whose recorders write down what they are asked; one of them cannot be started."""

    def start(argv: Sequence[str], deadline_s: float) -> Any:
        name = "perf" if "perf" in argv else "sar" if "sh" in argv else "samples"
        if name == fails:
            raise error(f"no {name}")
        log.append(f"{name} start {deadline_s:g} {argv[-1]}")
        verbs = {verb: lambda *given, verb=verb: log.append(f"{name} {verb}") for verb in
                 ("write_line", "read_line", "close_stdin")}  # fmt: skip

        def wait(seconds: float) -> Result:
            log.append(f"{name} wait {seconds:g}")
            return result(argv, *ends[name])

        return SimpleNamespace(wait=wait, **verbs)

    return SimpleNamespace(start=start)


def test_recorders_are_started_and_ended_together_and_each_leaves_its_record_or_why_not() -> None:
    log: list[str] = []
    ends = {"perf": (0, b"started\n{}", b""), "samples": (2, b"started\n", b"")}
    there = host(fails="sar", ends=ends, log=log)
    reader = SimpleNamespace(finish=lambda: log.append("reader finish"))
    one = probe.CounterProbe(there, "tg", "v1", "/d", reader, sampler="/s")  # type: ignore[arg-type]
    recording = one.start(["perf", "sar", "samples"], events=["a", "b"], deadline_s=7)
    begun = ["perf start 7 cat", "samples start 7 0.1"]
    told = ["perf write_line", "samples write_line", "perf read_line", "samples read_line"]
    assert log == begun + told
    files = recording.stop()
    assert log[6:] == ["perf close_stdin", "samples close_stdin", "perf wait 10", "samples wait 10"]
    runs = {name: json.loads(files.pop(f"tg.{name}.run.json")) for name in ("perf", "samples", "sar")}
    assert files == {"tg.perf.out": b"{}", "tg.samples.err": b"it exited with 2", "tg.sar.err": b"no sar"}
    assert [runs[name]["exit_code"] for name in ("perf", "samples", "sar")] == [0, 2, None]
    assert (runs["samples"]["argv"], runs["sar"]["argv"]) == (["/s", "v1", "0.1"], ["sh", "/d/sar.sh"])
    assert recording.stop() == {}, "they have ended"
    one.close()
    assert log[-1] == "reader finish"


def test_a_recorder_that_has_ended_is_not_waited_for_and_its_message_is_kept() -> None:
    log: list[str] = []
    recording = probe.Recording("dut")

    def gone(line: str) -> None:
        raise HostError("it has ended")

    recording.start(host(ends={"perf": (1, b"", b"no such event\n")}, log=log), probe.recorder("perf"), ["perf"], 7)
    recording.processes["perf"].write_line = gone  # type: ignore[method-assign]
    recording.await_started()
    assert recording.stop()["dut.perf.err"] == b"no such event"
    assert log == ["perf start 7 perf", "perf close_stdin", "perf wait 10"]


def test_recorders_that_were_started_are_ended_whatever_fails() -> None:
    log: list[str] = []
    ends = dict.fromkeys(("perf", "sar"), (0, b"", b""))
    one = probe.CounterProbe(host(ends=ends, log=log), "dut", "v1", "/d", None)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        one.start(["perf", "nonsuch"], deadline_s=7)
    assert log == [], "one that is not there is not left out in silence"
    with one.make_ready(["perf", "sar"], deadline_s=7) as recording:
        assert set(recording.processes) == {"perf", "sar"}
    assert log[2:] == ["perf close_stdin", "sar close_stdin", "perf wait 1", "sar wait 1"]
    log.clear()
    gone = probe.CounterProbe(host(fails="sar", error=OSError, ends=ends, log=log), "dut", "v1", "/d", None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no sar"):
        gone.start(["perf", "sar"], deadline_s=7)
    assert log == ["perf start 7 cat", "perf close_stdin", "perf wait 1"]
