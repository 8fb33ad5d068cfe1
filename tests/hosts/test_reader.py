"""Readings by one process that stays: each is what the command or the file itself says, byte by byte."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.compiled import build_once
from tests.waiting import until

from xdplab.errors import HostError
from xdplab.hosts.local import LocalHost, LocalProcess
from xdplab.hosts.tool import RENEWED_BYTES, HostReading, Reader

EACH_BYTE = bytes(range(1, 256)).decode(errors="surrogateescape")


class Counted(LocalHost):
    """A host that knows what was started on it."""

    def __init__(self) -> None:
        super().__init__("here")
        self.processes: list[LocalProcess] = []

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        process = super().start(argv, deadline_s=deadline_s)
        self.processes.append(process)
        return process

    def pids(self) -> list[int]:
        """Return the running readers: each is the only child of its `timeout`."""
        found = []
        for process in self.processes:
            parent = process._child.pid
            children = Path(f"/proc/{parent}/task/{parent}/children")
            found += [int(pid) for pid in children.read_text().split()] if children.exists() else []
        return found


@pytest.fixture(scope="module")
def tool() -> str:
    return build_once("reader")


@pytest.fixture
def host() -> Counted:
    return Counted()


@pytest.fixture
def reader(tool: str, host: Counted) -> Iterator[Reader]:
    made = Reader(host, tool)
    yield made
    made.close()


def python(code: str) -> HostReading:
    return HostReading((sys.executable, "-c", code))


def test_commands_and_files_say_what_they_say_without_it(reader: Reader, host: Counted, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1000)
    commands = [("printf", "%s|", "", " ", "a b", "two\nlines", "$HOME", EACH_BYTE), ("ls", "/proc/self"), ("true",)]
    asked = [
        *(HostReading(argv) for argv in commands),
        HostReading((str(tmp_path / "file"),), "file"),
        HostReading(("/proc/version",), "file"),
    ]
    results = reader.take(asked)
    plain = {"env": {**os.environ, "LC_ALL": "C"}, "capture_output": True, "check": True}
    for argv, result in zip(commands, results, strict=False):
        assert result.require().stdout == subprocess.run(argv, **plain).stdout  # type: ignore[call-overload]
    assert results[3].stdout == (tmp_path / "file").read_bytes()
    assert results[4].stdout == Path("/proc/version").read_bytes()
    assert len(host.processes) == 1


def test_each_failure_is_the_readings_own_with_its_words(reader: Reader) -> None:
    asked = [
        python("import sys; sys.stderr.write('no'); sys.exit(3)"),
        python("import os; os.kill(os.getpid(), 9)"),
        HostReading(("no-such-command",)),
        HostReading(("/etc/passwd",)),
        HostReading(("/no/such/file",), "file"),
        HostReading(("/",), "file"),
        HostReading(("echo", "still here")),
    ]
    results = reader.take(asked)
    assert [result.exit_code for result in results] == [3, 137, 127, 126, 1, 1, 0]
    assert [result.error_text for result in results[:1] + results[2:]] == [
        "no",
        "no-such-command: No such file or directory",
        "/etc/passwd: Permission denied",
        "/no/such/file: No such file or directory",
        "/: Is a directory",
        "",
    ]
    with pytest.raises(HostError, match=r"here: `cat /no/such/file` exited with 1: /no/such/file: No such file"):
        results[4].require()


def test_a_command_that_fails_is_an_error_unless_its_result_is_looked_at(reader: Reader) -> None:
    with pytest.raises(HostError, match="`false` exited with 1"):
        reader.run(["false"])
    assert reader.run(["false"], check=False).exit_code == 1


def test_both_streams_may_be_long_and_the_input_is_empty(reader: Reader) -> None:
    code = (
        "import sys; sys.stderr.write('e' * 3000000); sys.stdout.write('o' * 3000000); sys.exit(len(sys.stdin.read()))"
    )
    (result,) = reader.take([python(code)])
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"o" * 3000000, b"e" * 3000000)


def test_a_command_that_hangs_is_named_and_ended_and_the_next_reading_works(reader: Reader, host: Counted) -> None:
    with pytest.raises(HostError, match=r"`sleep 600` passed its deadline"):
        reader.take([HostReading(("echo", "1")), HostReading(("sleep", "600"))], deadline_s=0.5)
    assert until(lambda: host.pids() == [], 5.0)
    assert reader.run(["echo", "2"]).text == "2\n"


def test_a_reader_that_is_killed_is_an_error_and_then_a_new_one(reader: Reader, host: Counted) -> None:
    assert reader.run(["echo", "1"]).text == "1\n"
    (pid,) = host.pids()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(HostError, match="reader"):
        reader.run(["echo", "2"])
    assert reader.run(["echo", "3"]).text == "3\n"


def test_an_answer_that_comes_back_cut_is_an_error(tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.write_text("""#!/bin/sh\nread -r line\nprintf '{"type":"answer","exit_co'\n""")
    torn.chmod(0o755)
    with pytest.raises(HostError, match="not JSON"):
        Reader(LocalHost("here"), str(torn)).run(["true"])


def test_it_is_renewed_before_its_answers_fill_the_store(reader: Reader, host: Counted, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(RENEWED_BYTES // 2))
    for _ in range(3):
        assert len(reader.take([HostReading((str(tmp_path / "large"),), "file")])[0].stdout) == RENEWED_BYTES // 2
    assert len(host.processes) == 3
    assert len(host.pids()) == 1
    reader.close()
    assert reader.run(["echo", "again"]).text == "again\n"


def test_it_sleeps_between_readings_and_ends_with_its_input(reader: Reader, host: Counted) -> None:
    reader.run(["true"])
    (pid,) = host.pids()

    def used() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = used()
    time.sleep(0.3)
    assert used() == before
    reader.finish()
    assert host.pids() == []


@pytest.mark.parametrize("line", ["", "look 2f", "file", "run", "file 2", "file 2x", "file 2f00", "file 2f 2f"])
def test_what_is_no_request_is_refused(tool: str, line: str) -> None:
    done = subprocess.run([tool], input=f"{line}\n", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert '"type":"error"' in done.stdout
    assert '"step":"request"' in done.stdout
