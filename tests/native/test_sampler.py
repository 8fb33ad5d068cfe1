"""sampler: it notes the kernel's CPU ticks and packets, and meanwhile starts no process and writes no file."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from tests.compiled import build_once

from xdplab.counters.readings import parse_samples


@pytest.fixture(scope="module")
def sampler() -> str:
    return build_once("sampler")


@contextmanager
def sampling(sampler: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run it with the signals that a recorder gives it, even if these tests run under nohup."""
    argv = ["env", "--default-signal", sampler, *words]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_start(process: subprocess.Popen[bytes]) -> None:
    """Wait for the sampler's first note."""
    process.stdin.write(b"started\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"started\n"


def cpu_ticks() -> list[str]:
    return [
        line.split()[0] for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu" and line[3] != " "
    ]


def test_its_notes_are_what_the_parser_reads(sampler: str) -> None:
    began = float(Path("/proc/uptime").read_text().split()[0])
    with sampling(sampler, "lo", "0.05") as process:
        await_start(process)
        time.sleep(0.5)
        out, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (0, b"")
    notes = parse_samples(out)
    assert 5 <= len(notes) <= 12
    assert all(len(note.cpus) == len(cpu_ticks()) for note in notes)
    assert began <= notes[0].uptime_s <= notes[-1].uptime_s <= float(Path("/proc/uptime").read_text().split()[0])
    steps = [after.uptime_s - before.uptime_s for before, after in pairwise(notes)]
    assert median(steps) == pytest.approx(0.05, abs=0.02)


def test_it_counts_the_packets_of_its_device(sampler: str) -> None:
    counter = Path("/sys/class/net/lo/statistics/rx_packets")
    with sampling(sampler, "lo", "0.01") as process:
        await_start(process)
        before = int(counter.read_text())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"counted", ("127.0.0.1", 9))
        time.sleep(0.1)
        after = int(counter.read_text())
        if after == before:
            pytest.skip("/sys shows the devices of another network namespace here")
        out, _ = process.communicate(timeout=10)
    seen = [note.rx_packets for note in parse_samples(out)]
    assert seen[0] <= before
    assert seen[-1] >= after > before  # other processes may use the device too
    assert seen == sorted(seen)


def test_a_device_that_is_not_there_and_a_wrong_time_are_refused(sampler: str) -> None:
    for words, code, why in (
        (("nosuch0", "0.1"), 1, "no network device nosuch0"),
        (("../lo", "0.1"), 1, "no network device ../lo"),
        (("lo", "0"), 2, "0 is not a time between 0.001 and 3600 s"),
        (("lo", "nan"), 2, "nan is not a time"),
    ):
        done = subprocess.run([sampler, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == code, words
        assert why in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it(sampler: str, number: signal.Signals) -> None:
    with sampling(sampler, "lo", "3600") as process:
        time.sleep(0.2)
        os.kill(process.pid, number)
        assert process.wait(2) == -number


def test_it_starts_no_process_and_takes_little_time(sampler: str) -> None:
    """In a second with 100 notes: the earlier shell script started two processes per note."""
    with sampling(sampler, "lo", "0.01") as process:
        await_start(process)
        time.sleep(1.0)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        out, _ = process.communicate(timeout=10)
    own_ticks, waited_for_ticks = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    assert (children, waited_for_ticks) == ("", 0)
    assert own_ticks <= 10 * os.sysconf("SC_CLK_TCK") / 100
    assert len(parse_samples(out)) > 50
