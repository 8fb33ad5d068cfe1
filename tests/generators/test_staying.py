"""A generator stays from trial to trial while its settings stay the same, and each trial has its own bursts."""

import contextlib
from contextlib import nullcontext
from threading import Event

import pytest
from tests.generators.conftest import Bench
from tests.waiting import until

from xdplab.errors import FormatError, HostError, KilledError
from xdplab.formats.generator import parse_output
from xdplab.generators import Staying
from xdplab.labs import open_lab

pytestmark = [pytest.mark.root, pytest.mark.lab]


def trial(staying: Staying, bench: Bench, name: str, **changes: float) -> tuple[object, str]:
    generator = staying.take(bench.generator(**changes))
    generator.start()
    generator.burst(name, 0.05)
    staying.give(generator)
    return generator, generator.raw


def test_it_stays_while_the_same_is_asked_and_marks_where_each_trial_ends(traffic_bench: Bench) -> None:
    staying = Staying()
    with traffic_bench.dut("reflect"):
        first, of_first = trial(staying, traffic_bench, "a")
        second, of_second = trial(staying, traffic_bench, "b")
        other, of_other = trial(staying, traffic_bench, "c", frame_bytes=128)
        staying.end()
    assert first is second
    assert other is not second
    said = [parse_output(raw) for raw in (of_first, of_second, of_other)]
    assert [[burst.name for burst in output.bursts] for output in said] == [["a"], ["b"], ["c"]]
    assert [output.bursts[0].summary.lost_packets for output in said] == [0, 0, 0]
    assert said[0].ready == said[1].ready


def attached(bench: Bench) -> bool:
    return "prog/xdp" in bench.lab.tg.run(["ip", "-d", "link", "show", bench.lab.tg_interface]).text


def test_nothing_of_it_is_left_when_it_is_ended(traffic_bench: Bench) -> None:
    staying = Staying()
    trial(staying, traffic_bench, "a")
    assert attached(traffic_bench)
    staying.end()
    staying.end()
    assert not attached(traffic_bench)


def test_one_that_was_killed_meanwhile_costs_no_trial(traffic_bench: Bench) -> None:
    staying = Staying()
    first, _ = trial(staying, traffic_bench, "a", rate_pps=1234.0)
    traffic_bench.lab.tg.run(["pkill", "-KILL", "-f", f"^{traffic_bench.xdpgen} .*--load 1234 "])
    second, raw = trial(staying, traffic_bench, "b", rate_pps=1234.0)
    assert second is not first
    assert len(parse_output(raw).bursts) == 1
    staying.end()


@pytest.mark.parametrize("cut", [1, 2])
def test_a_trial_without_its_mark_is_not_whole(traffic_bench: Bench, cut: int) -> None:
    staying = Staying()
    _, raw = trial(staying, traffic_bench, "a")
    staying.end()
    lines = raw.splitlines(keepends=True)
    with pytest.raises(FormatError, match=r"stops here|whole bursts"):
        parse_output("".join(lines[:-cut]))


def test_an_attached_program_is_awaited_only_as_long_as_there_is_a_controller(traffic_bench: Bench) -> None:
    """It is awaited for five seconds. Here, the connection of a second controller is lost meanwhile."""
    lab = traffic_bench.lab
    with traffic_bench.generator() as first, contextlib.closing(open_lab(lab.name)) as another:
        first.start()
        second = another.tg.start(traffic_bench.generator(run_id="dead").argv, deadline_s=30.0)
        with pytest.raises(HostError, match="no line"):
            second.read_line(0.7)
        another.tg.close()
        assert until(lambda: not lab.tg.run(["pgrep", "-f", f"^{first.argv[0]} .*dead"], check=False).ok, 2.0)


@pytest.mark.parametrize("error", [None, KilledError("by a signal"), HostError("its filter stays")])
def test_a_program_leaves_meanwhile_and_who_awaits_it_has_its_error(error: HostError | None) -> None:
    """One that was killed has left: its trial is whole, and the kernel has released what it held."""
    let_go, done = Event(), list[str]()

    class Program:
        def stop(self) -> None:
            let_go.wait()
            done.append("stopped")
            if error is not None:
                raise error

        def close(self) -> None:
            done.append("closed")

    staying = Staying()
    staying.leave(Program())
    assert done == []
    let_go.set()
    with pytest.raises(HostError, match="its filter stays") if type(error) is HostError else nullcontext():
        staying.end()
    staying.end()
    assert done == ["stopped", "closed"]
