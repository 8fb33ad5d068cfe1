"""Hosts: run, start, put and get on one machine, local (`local`) or over SSH (`ssh`).

The interface of a host: a namespace, a guest or a server in a rack.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from xdplab.errors import HostError
from xdplab.formats.reading import message_of

BASH = ("bash", "--norc", "-c")
"""Begun by sshd, bash reads its user's ~/.bashrc, which may take long, print or change anything."""


@dataclass(frozen=True)
class Result:
    """A command that ended.

    ``exit_code`` is null if the deadline ended it, and 128 + N (or -1, if SSH does not pass N on) after signal N. If it
    printed too much to keep, ``cut`` says how much, and the output is only the beginning.
    """

    host: str
    argv: tuple[str, ...]
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    duration_s: float
    timed_out: bool = False
    cut: str | None = None

    @property
    def ok(self) -> bool:
        """True if it exited with 0 and its whole output was kept."""
        return self.exit_code == 0 and self.cut is None

    @property
    def killed(self) -> bool:
        """True if SIGHUP, SIGINT, SIGKILL, SIGTERM or a signal that SSH does not name ended it; a crash is none."""
        return self.exit_code in (-1, 128 + 1, 128 + 2, 128 + 9, 128 + 15)

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode(errors="replace").strip()

    def _error_line(self) -> str:
        """Return the error on the last line of a C tool's standard output; empty if it has none."""
        try:
            last = json.loads(self.text.splitlines()[-1])
        except (IndexError, ValueError, RecursionError):
            return ""
        return message_of(last) if isinstance(last, dict) and last.get("type") == "error" else ""

    def require(self) -> Result:
        """Return self, or raise HostError with host, command, exit code and the end of the command's output."""
        if self.ok:
            return self
        how = "passed its deadline" if self.timed_out else f"exited with {self.exit_code}"
        if self.cut is not None:
            raise HostError(f"{self.host}: `{spoken(self.argv)}` {how} and printed too much: {self.cut}")
        message = self._error_line() or self.error_text or self.text.strip()
        raise HostError(f"{self.host}: `{spoken(self.argv)}` {how}: {message[-400:] or 'it printed nothing'}")

    def rows(self, *needed: str) -> list[dict[str, Any]]:
        """Return the JSON list of objects that it printed, each with the ``needed`` keys.

        Raises HostError for anything else: a tool that exits with 0 may be another tool of that name.
        """
        try:
            rows = json.loads(self.text)
        except (ValueError, RecursionError):
            rows = None
        if isinstance(rows, list) and all(isinstance(row, dict) and row.keys() >= {*needed} for row in rows):
            return rows
        raise self.nonsense()

    def row(self, *needed: str) -> dict[str, Any]:
        """Return the first of its `rows`, which must be there."""
        for row in self.rows(*needed):
            return row
        raise self.nonsense()

    def nonsense(self) -> HostError:
        """Return the error to raise if a tool exited with 0 but printed something that it never prints."""
        output = f"printed {self.text[:60]!r}" if self.text.strip() else "printed nothing"
        return HostError(
            f"{self.host}: `{spoken(self.argv)}` {output}, which is not output of {self.argv[0]}",
            remedy=f"is it the right {self.argv[0]} that is first in the PATH there?",
        )


def spoken(argv: Sequence[str]) -> str:
    """Return a command as text for a message, without a script in it."""
    return " ".join("…" if "\n" in word else word for word in argv)


class Process(Protocol):
    """A command that runs on a host while the controller continues."""

    argv: tuple[str, ...]

    def write_line(self, line: str) -> None:
        """Send one line to its standard input."""

    def read_line(self, timeout_s: float) -> str | None:
        """Return its next line of standard output, or None at its end. Raises HostError after ``timeout_s``."""

    def send(self, data: bytes, *, within_s: float = 30.0) -> None:
        """Send bytes to its standard input. Raises HostError if it has not taken them all after ``within_s``."""

    def close_stdin(self) -> None: ...

    def wait(self, deadline_s: float) -> Result:
        """Drain both streams until it ends. ``stdout`` holds all lines, those read before included, up to 32 MiB."""

    def pass_through(self, stdout: BinaryIO, stderr: BinaryIO) -> Result:
        """Copy both streams to the sinks, as they come, until it ends or its deadline has passed."""

    def kill(self) -> None:
        """End its process group now."""


class CommandRunner(Protocol):
    """What runs short commands on one machine: a `Host`, or a `Reader`, which takes less time."""

    @property
    def name(self) -> str: ...

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, check: bool = True) -> Result: ...


class Host(Protocol):
    """One machine under the lab's control, reached by paths and argument vectors only, never by a shell string."""

    name: str

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        """Run to its end; the remote process group is ended at the deadline. ``check`` raises on failure."""

    def start(self, argv: Sequence[str], *, deadline_s: float) -> Process:
        """Start and return; the remote process group is ended no later than the deadline."""

    def put(self, data: bytes | Path, remote: str, *, mode: int = 0o644) -> None:
        """Write a file (parents made)."""

    def get(self, remote: str) -> bytes: ...

    def await_return(self) -> None:
        """Wait until a lost host answers again. Raises HostLostError if it does not come back."""

    def close(self) -> None: ...


# Each command's output goes straight to standard output; its exit code and its errors follow, between two marks.
_ASK = """\
ask() {
    { said=$("$@" 2>&1 >&3 3>&-); code=$?; } 3>&1 </dev/null
    printf '\\n%s %s\\n%s\\n%s\\n' "$mark" "$code" "$said" "$mark"
}
"""


def run_together(host: Host, commands: Sequence[Sequence[str]], *, deadline_s: float = 30.0) -> list[Result]:
    """Run commands one after another, each to its end and with an empty standard input; return each one's result.

    A result's duration is that of all. Raises HostError if the host cannot be asked, or if they have not all ended
    after ``deadline_s``: it names the one that had not.
    """
    if not commands:
        return []
    mark = secrets.token_hex(8)
    lines = [f"mark={mark}", _ASK, *(f"ask {shlex.join(argv)}" for argv in commands)]
    shown = host.run(["sh", "-c", "\n".join(lines)], deadline_s=deadline_s, check=False)
    # By turns what a command printed, and its exit code with its errors.
    parts = (b"\n" + shown.stdout).split(b"\n" + mark.encode())
    ends = [part[1:].split(b"\n", 1) for part in parts[1:-1:2]]
    answers = [(output[1:], code, error) for output, (code, error) in zip(parts[::2], ends, strict=False)]
    if len(answers) < len(commands):
        if shown.timed_out:
            raise HostError(f"{host.name}: `{spoken(commands[len(answers)])}` passed its deadline")
        raise shown.require().nonsense()
    return [
        Result(host.name, tuple(argv), int(code), output, error, shown.duration_s)
        for argv, (output, code, error) in zip(commands, answers, strict=True)
    ]


__all__ = ["Host", "Process", "Result"]
