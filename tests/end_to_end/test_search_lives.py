"""A search checks before and after each burst what it depends on: its program, its holder, the watchdogs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import source
from xdplab import labs
from xdplab.errors import HostError
from xdplab.plan import Trial, parse_plan
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.run_files import create_run, run_trials_of
from xdplab.studies.trial_facts import TrialFacts

pytestmark = [pytest.mark.root, pytest.mark.lab]

A_DAY_S = 86400.0


@contextmanager
def bench_of(points: dict[str, Any], folder: Path) -> Iterator[tuple[TrialBench, Trial]]:
    """Yield the bench of a search of one point, in its block, and the point's trial."""
    plan = parse_plan({"name": "s", "blocks": [{"points": points, "traffic": {"load": "max"}}]})
    with labs.use_lab(f"netns:search-{os.getpid()}") as lab:
        run = create_run(plan, folder / "runs", lab=lab.name, arrangement=lab.arrangement)
        trials = run_trials_of(run)
        with TrialBench(lab, run, plan, trials) as bench:
            bench.enter_block(trials)
            yield bench, trials[0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TrialBench, Trial]]:
    with bench_of({"accesses": 0}, tmp_path_factory.mktemp("search")) as found:
        yield found


def test_its_program_is_held_for_longer_than_any_search(bench: tuple[TrialBench, Trial], tmp_path: Path) -> None:
    """The host ended a holder after 900 s, and bursts to a DUT without a program counted as measured."""
    study, trial = bench
    with study.attached(trial, tmp_path, TrialFacts()) as send:
        send(1000.0, 0.05)
        lines = study._lab.dut.run(["pgrep", "-a", "timeout"]).text.splitlines()
        (deadline,) = [float(line.split()[3]) for line in lines if "xdpload" in line]
    assert deadline > A_DAY_S


def test_a_program_that_is_gone_is_said_not_measured(bench: tuple[TrialBench, Trial], tmp_path: Path) -> None:
    study, trial = bench
    with pytest.raises(HostError, match="the kernel says nothing is attached"):  # noqa: PT012, SIM117
        with study.attached(trial, tmp_path, TrialFacts()) as send:
            assert send(1000.0, 0.05)[0].summary.rx_packets
            study._lab.dut.run(["pkill", "-KILL", "-x", "xdpload"])
            send(1000.0, 0.05)


def test_a_watchdog_that_is_gone_is_said_not_measured(bench: tuple[TrialBench, Trial], tmp_path: Path) -> None:
    study, trial = bench
    with pytest.raises(HostError, match=r"the former state of v.0 is no longer held"):  # noqa: PT012, SIM117
        with study.attached(trial, tmp_path, TrialFacts()) as send:
            assert send(1000.0, 0.05)[0].summary.rx_packets
            study._held[0]._watchdog._process.close_stdin()  # type: ignore[union-attr]
            send(1000.0, 0.05)


MAP = """
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); }
    answers SEC(".maps");
"""
ASKS = """
    __u32 zero = 0, *answer = bpf_map_lookup_elem(&answers, &zero);
    return answer && *answer == 7 ? XDP_TX : XDP_DROP;
"""


def test_a_users_setup_comes_before_the_first_burst_of_a_search(tmp_path: Path) -> None:
    """Without it, all frames are dropped."""
    (tmp_path / "asks.bpf.c").write_text(source("asks", ASKS, MAP))
    setup = [["sh", "-c", "bpftool map update name answers key 0 0 0 0 value 7 0 0 0"]]
    program = {"file": str(tmp_path / "asks.bpf.c"), "action": "tx", "setup": setup}
    with (
        bench_of({"program": program}, tmp_path) as (bench, trial),
        bench.attached(trial, tmp_path, TrialFacts()) as send,
    ):
        burst, _ = send(1000.0, 0.1)
    assert burst.summary.rx_packets == burst.summary.tx_packets > 0
