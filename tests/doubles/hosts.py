"""Hosts for tests: prepared answers instead of a machine, and this machine behind a command, such as a namespace's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdplab.errors import HostError
from xdplab.hosts import Result
from xdplab.hosts.local import LocalHost, LocalProcess


class Played:
    """A host that answers a command from a table and has a few files; it refuses what it does not have.

    A command is what stands in ``commands`` without the environment before it; one that ends with ``*`` is the
    beginning of commands, and the longest one counts. ``ran`` are the commands that came.
    """

    def __init__(
        self, commands: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None, name: str = "dut"
    ) -> None:
        self.commands, self.files, self.name = dict(commands or {}), dict(files or {}), name
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], *, check: bool = True, **_: Any) -> Result:
        self.ran.append(list(argv))
        text = self.answer(argv)
        code, refusal = (0, b"") if text is not None else (127, b"no such command is played")
        result = Result(self.name, tuple(argv), code, (text or "").encode(), refusal, 0.0)
        return result.require() if check else result

    def answer(self, argv: Sequence[str]) -> str | None:
        """Return the output of a command, or None for one that is refused."""
        line = " ".join(argv[3:] if argv[0] == "env" else argv)
        if line in self.commands:
            return self.commands[line]
        begins = [key for key in self.commands if key.endswith("*") and line.startswith(key[:-1])]
        return self.commands[max(begins, key=len)] if begins else None

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise HostError(f"{self.name}: cannot read {path}")
        return self.files[path].encode()


class Within(LocalHost):
    """This machine, with a command before each of the host's commands."""

    def __init__(self, name: str, *before: str) -> None:
        super().__init__(name)
        self._before = before

    def run(self, argv: Sequence[str], **more: Any) -> Result:
        return super().run([*self._before, *argv], **more)

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        return super().start([*self._before, *argv], deadline_s=deadline_s)


def in_namespace(name: str) -> Within:
    """Return this machine, seen from inside a network namespace."""
    return Within(name, "ip", "netns", "exec", name)


def with_folder(folder: Path, at: str) -> Within:
    """Return this machine with a test's folder in the place of one of its own."""
    return Within("dut", "unshare", "-m", "sh", "-c", f'mount --bind "$0" {at} && exec "$@"', str(folder))
