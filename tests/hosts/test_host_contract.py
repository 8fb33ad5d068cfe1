"""What every Host does, local or over SSH."""

import hashlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from xdplab.errors import HostError
from xdplab.hosts import Host, process, ssh
from xdplab.hosts.process import KEPT_BYTES
from xdplab.labs import Lab

STUBBORN = "trap '' TERM; sh -c 'trap \"\" TERM; exec sleep 60' & exec sleep 60"


def test_arguments_arrive_as_they_are(host: Host) -> None:
    nasty = ["a b", "", "$HOME", "`id`", "it's", 'say "hi"', "*", "back\\slash", "new\nline", "ünï"]
    result = host.run(["printf", "%s\\0", *nasty])
    assert result.stdout.decode().split("\0")[:-1] == nasty
    session = host.run(["cut", "-d", " ", "-f", "6", "/proc/self/stat"]).text
    assert int(session) != os.getsid(0), "its terminal, and with it Ctrl-C, is not the user's"


def test_both_streams_are_drained_however_much_comes(host: Host) -> None:
    result = host.run(["sh", "-c", "head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero"])
    assert (len(result.stdout), len(result.stderr)) == (5_000_000, 5_000_000)


MEMORY = """
import resource, sys, threading, time
from xdplab import labs
from xdplab.hosts.local import LocalHost
host = LocalHost() if sys.argv[1] == "local" else labs.open_lab(sys.argv[1]).dut
host.run(["true"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = host.run(["timeout", sys.argv[2], *sys.argv[3:]], deadline_s=200, check=False)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(result.exit_code, len(result.stdout), (after - before) * 1024, result.ok, result.cut)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["local", pytest.param("ssh", marks=pytest.mark.root)])
def test_what_never_stops_printing_goes_to_a_file_and_it_is_said(where: str, request: pytest.FixtureRequest) -> None:
    """It used 1.7 GB of memory after four seconds of `yes`."""
    place = where if where == "local" else request.getfixturevalue("ssh_lab").name
    argv = [sys.executable, "-c", MEMORY, place, "20", "sh", "-c", "yes | head -c 400000000; yes | timeout 4 cat"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    exit_code, kept, grown, ok, cut = done.stdout.split(maxsplit=4)
    assert (int(exit_code), ok) == (124, "False")
    assert int(kept) == KEPT_BYTES
    assert int(grown) < 50_000_000
    assert re.fullmatch(r"[\d,]+ bytes; only the first 268,\d+,\d+ bytes were kept\n", cut)


def test_too_much_output_is_an_error_that_says_so(host: Host) -> None:
    with pytest.raises(HostError, match=r"head -c 40000000 /dev/zero` exited with 0 and printed too much: 40,000,000"):
        host.run(["head", "-c", "40000000", "/dev/zero"])


def test_a_line_that_has_no_end_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STORED_BYTES", 1 << 20)
    endless = host.start(["cat", "/dev/zero"], deadline_s=30)
    with pytest.raises(HostError, match=r"printed too much before a line was read: only the first [\d,]+ bytes were"):
        endless.read_line(20)
    endless.kill()
    endless.wait(5)


def test_lines_are_read_however_many_come(host: Host) -> None:
    counting = host.start(["seq", "-f", "%0100.0f", "11000"], deadline_s=60)  # 1.1 MB: more than is kept in memory
    lines = []
    while (line := counting.read_line(20)) is not None:
        lines.append(line)
    assert lines == [f"{number:0100}" for number in range(1, 11001)]
    assert counting.wait(5).stdout.count(b"\n") == 11000


class SlowSink(io.BytesIO):
    """A file whose writes are slow."""

    def write(self, data: Any) -> int:
        time.sleep(0.05)
        return super().write(data)


@pytest.mark.thorough
def test_what_is_passed_through_arrives_whole_at_a_slow_reader(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STORED_BYTES", 2 << 20)
    sink = SlowSink()
    command = ["sh", "-c", "sleep 1; exec seq 1000000"]  # it is passed through from its first byte on
    done = host.start(command, deadline_s=100).pass_through(sink, io.BytesIO())
    assert done.exit_code == 0
    assert done.cut is None
    assert (
        hashlib.sha256(sink.getvalue()).digest()
        == hashlib.sha256(b"".join(b"%d\n" % number for number in range(1, 1000001))).digest()
    )


class SlowEnd(io.BytesIO):
    """A file whose last write, after the command has ended, is slow."""

    def write(self, data: Any) -> int:
        time.sleep(3)
        return super().write(data)


@pytest.mark.thorough
def test_what_a_reader_takes_after_the_end_is_waited_for(host: Host) -> None:
    sink = SlowEnd()
    assert host.start(["echo", "all of it"], deadline_s=20).pass_through(sink, io.BytesIO()).cut is None
    assert sink.getvalue() == b"all of it\n"


def test_input_goes_in_while_output_comes_out(host: Host) -> None:
    data = bytes(range(256)) * 20_000
    assert host.run(["cat"], stdin=data).stdout == data


def test_a_command_that_reads_no_input_ends_all_the_same(host: Host) -> None:
    assert host.run(["true"], stdin=b"x" * 3_000_000).ok
    process = host.start(["sleep", "8"], deadline_s=20.0)
    began = time.monotonic()
    process.feed(b"x" * 9_000_000)  # type: ignore[attr-defined]
    assert time.monotonic() - began < 4.0
    process.kill()


def test_rows_lack_no_key_that_is_needed(host: Host) -> None:
    """Another tool of that name ends with 0, too."""
    printed = host.run(["echo", '[{"a": 1, "b": 2}, {"a": 1}]'])
    assert len(printed.rows("a")) == 2
    for rows in (printed.rows, printed.row):
        with pytest.raises(HostError):
            rows("a", "b")
    assert host.run(["echo", "[]"]).rows("a") == []
    with pytest.raises(HostError):
        host.run(["echo", "[]"]).row("a")


def test_failure_names_host_command_code_and_last_line(host: Host) -> None:
    with pytest.raises(HostError, match=rf"{host.name}: `sh -c echo why >&2; exit 3` exited with 3: why"):
        host.run(["sh", "-c", "echo why >&2; exit 3"])
    assert host.run(["sh", "-c", "exit 3"], check=False).exit_code == 3


def test_a_missing_command_is_named(host: Host) -> None:
    result = host.run(["no-such-tool"], check=False)
    assert result.exit_code == 127
    assert "no-such-tool" in result.error_text


def test_the_deadline_ends_the_whole_group_also_what_ignores_sigterm(host: Host) -> None:
    marker = f"{60 + time.time_ns() % 1_000_000 / 1e7:.7f}"
    started = time.monotonic()
    result = host.run(["sh", "-c", STUBBORN.replace("sleep 60", f"sleep {marker}")], deadline_s=0.3, check=False)
    assert result.timed_out
    assert result.exit_code is None
    assert 0.3 <= time.monotonic() - started < 3.0
    assert host.run(["pgrep", "-f", f"^sleep {marker}"], check=False).exit_code == 1


def test_a_child_that_outlives_its_parent_at_the_deadline_is_ended_too(host: Host) -> None:
    marker = f"{70 + time.time_ns() % 1_000_000 / 1e7:.7f}"
    command = ["sh", "-c", f"(trap '' TERM; exec sleep {marker}) & sleep 60"]
    assert host.run(command, deadline_s=0.3, check=False).timed_out
    assert host.run(["pgrep", "-f", f"^sleep {marker}"], check=False).exit_code == 1


def test_the_last_output_before_the_deadline_is_kept(host: Host) -> None:
    result = host.run(["sh", "-c", "echo said; sleep 60"], deadline_s=0.3, check=False)
    assert (result.timed_out, result.text) == (True, "said\n")


def test_line_by_line(host: Host) -> None:
    process = host.start(["sh", "-c", 'while read x; do echo "got $x"; done; echo bye; printf rest'], deadline_s=10)
    process.write_line("one")
    assert process.read_line(5) == "got one"
    process.write_line("two words")
    assert process.read_line(5) == "got two words"
    process.close_stdin()
    assert [process.read_line(5), process.read_line(5), process.read_line(5)] == ["bye", "rest", None]
    result = process.wait(5)
    assert result.text == "got one\ngot two words\nbye\nrest"
    assert result.exit_code == 0


def test_a_line_that_does_not_come_is_an_error_with_the_commands_message(host: Host) -> None:
    process = host.start(["sh", "-c", "echo busy >&2; sleep 60"], deadline_s=10)
    with pytest.raises(HostError, match=r"printed no line for 1 s: busy"):
        process.read_line(1.0)
    process.kill()
    assert process.wait(2).exit_code in (137, -1)


def test_kill_ends_it_now(host: Host) -> None:
    process = host.start(["sh", "-c", STUBBORN], deadline_s=60)
    started = time.monotonic()
    process.kill()
    result = process.wait(5)
    assert time.monotonic() - started < 1.0
    assert not result.ok
    assert not result.timed_out


@pytest.mark.root
def test_kill_over_ssh_ends_what_has_no_group_yet(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remote side reports its process id before `timeout` makes a group of it: a kill in between found no group."""
    monkeypatch.setattr(ssh, "TELL_GROUP", ssh.TELL_GROUP.replace('exec "$@"', "while :; do :; done"))
    process = ssh_lab.dut.start(["true"], deadline_s=30)
    process.kill()
    result = process.wait(10)
    assert not result.timed_out
    assert result.exit_code is not None, "it still runs"


def test_writing_to_what_has_ended_is_an_error(host: Host) -> None:
    process = host.start(["sh", "-c", "echo gone >&2"], deadline_s=5)
    process.wait(5)
    with pytest.raises(HostError, match="no longer reads its input"):
        process.write_line("hello?")


@pytest.mark.parametrize("command", ["sleep 60", "sleep 60 & exit 0"])
def test_waiting_less_than_it_takes_ends_it(command: str, host: Host) -> None:
    process = host.start(["sh", "-c", command], deadline_s=60)
    started = time.monotonic()
    assert process.wait(0.2).timed_out
    assert time.monotonic() - started < 2.0


def test_output_passes_through_as_it_comes(host: Host) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    sinks = io.BufferedWriter(out), io.BufferedWriter(err)  # what is held back there is not seen
    result = host.start(["sh", "-c", "echo a; echo b >&2; exit 9"], deadline_s=5).pass_through(*sinks)
    assert (result.exit_code, result.cut, out.getvalue(), err.getvalue()) == (9, None, b"a\n", b"b\n")


def test_files_go_and_come_back(host: Host, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    source = tmp_path / "source"
    source.write_bytes(data)
    for number, what in enumerate((data, source)):
        remote = f"{tmp_path}/remote/new folder/-{number}"
        for mode in (0o640, 0o750):  # then it is there already
            host.put(what, remote, mode=mode)
        assert host.get(remote) == data
        assert host.run(["stat", "-c", "%a", remote]).text == "750\n"
    assert host.run(["ls", f"{tmp_path}/remote/new folder"]).text == "-0\n-1\n"  # no temporary file is left


def test_a_file_costs_in_proportion_to_its_size(host: Host, tmp_path: Path) -> None:
    def cpu_s(mib: int) -> float:
        began_s = time.process_time()
        host.put(bytes(mib << 20), f"{tmp_path}/remote")
        return time.process_time() - began_s

    cpu_s(1)
    assert cpu_s(64) < 3 * 16 * cpu_s(4)


def test_files_of_the_kernel_can_be_read(host: Host) -> None:
    assert host.get("/proc/self/status").startswith(b"Name:")


def test_a_file_that_cannot_be_read_or_written_is_named(host: Host) -> None:
    with pytest.raises(HostError, match=f"{host.name}: cannot read /nowhere"):
        host.get("/nowhere")
    with pytest.raises(HostError, match=r"/proc/nowhere/at/all"):
        host.put(b"", "/proc/nowhere/at/all")


def test_a_command_costs_milliseconds(host: Host) -> None:
    samples = sorted(host.run(["true"]).duration_s for _ in range(20))
    assert samples[10] < 0.05, f"median {samples[10] * 1e3:.1f} ms"


@pytest.mark.root
def test_a_file_is_whole_or_not_there_on_a_full_disk(ssh_lab: Lab) -> None:
    """Pipelined writes would drop the error: an empty file would exist, and its writer would not know."""
    host = ssh_lab.dut
    host.run(["sh", "-c", "mkdir /tmp/small && mount -t tmpfs -o size=64k small /tmp/small"])
    try:
        host.put(b"old", "/tmp/small/state")
        for size in (100_000, 5_000_000):
            for name in ("state", "new"):
                with pytest.raises(HostError, match=rf"cannot write /tmp/small/{name}: .*No space left on device"):
                    host.put(b"x" * size, f"/tmp/small/{name}")
        assert host.get("/tmp/small/state") == b"old"
        assert host.run(["ls", "-A", "/tmp/small"]).text == "state\n"
        host.run(["sh", "-c", "head -c 1000000 /dev/zero >/tmp/small/fill"], check=False)
        with pytest.raises(HostError, match="No space left on device"):
            host.put(b'{"a": 1}' * 500, "/tmp/small/state")
        assert host.get("/tmp/small/state") == b"old"
    finally:
        host.run(["sh", "-c", "umount /tmp/small && rmdir /tmp/small"])


@pytest.mark.thorough
@pytest.mark.root
def test_a_host_that_takes_nothing_more_ends_a_transfer(ssh_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "FILE_S", 1.0)
    monkeypatch.setattr(ssh, "MOST_BYTES", 0)
    host = ssh.SshHost("dut", ssh_lab.dut._address)  # type: ignore[attr-defined]
    sleeper = host.start(["sleep", "600"], deadline_s=900)
    above = (
        "p=$$; until grep -q ^sshd /proc/$p/comm; do p=$(awk '$1==\"PPid:\"{print $2}' /proc/$p/status); done; echo $p"
    )
    sshd = host.run(["sh", "-c", above]).text.strip()
    ssh_lab.dut.run(["kill", "-s", "STOP", sshd])
    monkeypatch.setattr(ssh, "CONNECT_S", 2.0)
    try:
        for transfer in (lambda: host.get("/etc/hostname"), lambda: host.put(b"x" * 5_000_000, "/tmp/x")):
            began = time.monotonic()
            with pytest.raises(HostError):
                transfer()
            assert time.monotonic() - began < 40
        with pytest.raises(HostError, match="has not read its input for 1 s"):
            sleeper.send(b"x" * 8_000_000, within_s=1.0)
    finally:
        ssh_lab.dut.run(["kill", "-s", "KILL", sshd])
        host.close()
