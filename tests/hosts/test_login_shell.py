"""A server answers as others do although its login shell greets, its locale is missing, or its sudo warns."""

import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_DATA

from xdplab.errors import HostError
from xdplab.hosts.lifeline import Lifeline
from xdplab.hosts.ssh import SshHost

GREETING = "Welcome to rack 7."
LOCALE = "bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX.UTF-8)"


class Channel:
    """A channel as sshd gives it: a command run by the user's shell, whose start-up files may print first."""

    def __init__(self, argv: Sequence[str], before: str) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._process = subprocess.Popen(["sh", "-c", before + shlex.join(argv)], **pipes)  # type: ignore[call-overload]
        self.exit_status, self.status_event, self.closed = -1, threading.Event(), False
        self.lock, self.remote_chanid, self.transport = threading.Lock(), 0, self
        self.clear_to_send, self.clear_to_send_lock = threading.Event(), threading.Lock()
        self.clear_to_send.set()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self.exit_status = self._process.wait()
        self.status_event.set()

    def recv(self, size: int) -> bytes:
        return self._process.stdout.read1(size)

    def recv_stderr(self, size: int) -> bytes:
        return self._process.stderr.read1(size)

    def _wait_for_send_window(self, size: int) -> int:
        return min(size, 1 << 15)

    def is_active(self) -> bool:
        return True

    def _send_message(self, message: paramiko.Message) -> None:
        sent = paramiko.Message(message.asbytes())
        assert (sent.get_byte(), sent.get_int()) == (cMSG_CHANNEL_DATA, self.remote_chanid)
        self._process.stdin.write(sent.get_binary())
        self._process.stdin.flush()

    def _send_eof(self) -> None:
        self._process.stdin.close()

    def settimeout(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Server(SshHost):
    """An SSH host whose channels end in a shell of this machine."""

    connected = True  # type: ignore[assignment]

    def __init__(self, before: str = "") -> None:
        self.name, self._before = "server", before

    def channel(self, argv: Sequence[str]) -> Channel:  # type: ignore[override]
        return Channel(argv, self._before)


SHELLS = {
    "quiet": "",
    "greets": f"echo {shlex.quote(GREETING)}; ",
    "greets without a line's end": f"printf %s {shlex.quote(GREETING)}; ",
    "warns": f"echo {shlex.quote(LOCALE)} >&2; ",
    "does both, at length": f"for i in $(seq 3000); do echo {GREETING!r}; echo {LOCALE!r} >&2; done; ",
}


@pytest.mark.parametrize("before", SHELLS.values(), ids=SHELLS.keys())
def test_a_command_prints_what_it_prints_whatever_the_login_shell_says(before: str, tmp_path: Path) -> None:
    host = Server(before)
    content = bytes(range(256)) * 300
    host.put(content, str(tmp_path / "file"))
    assert host.get(str(tmp_path / "file")) == content
    result = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    process = host.start(["cat"], deadline_s=10)
    process.write_line("a line")
    assert process.read_line(5) == "a line"
    process.close_stdin()
    assert process.wait(5).ok


@pytest.mark.parametrize("shell", ["quiet", "greets", "greets without a line's end", "warns"])
def test_a_lifeline_waits_for_its_own_word(shell: str) -> None:
    channel = Channel(["sh", "-c", "echo alive; cat"], SHELLS[shell])
    Lifeline("server", channel).close()  # type: ignore[arg-type]
    channel._send_eof()


def test_a_shell_that_runs_nothing_is_quoted() -> None:
    result = Server("echo This account is closed.; exit 1; ").run(["true"], check=False)
    assert not result.ok
    with pytest.raises(HostError, match=r"no lifeline: This account is closed\."):
        Lifeline("server", Channel(["true"], "echo This account is closed.; exit 1; "))  # type: ignore[arg-type]
