"""A C tool on a host that prints JSON lines and reads commands: one answer per command; all lines are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from xdplab.errors import FormatError, HostError, ProgramError, UnsupportedError, XdplabError
from xdplab.formats.reading import record_of
from xdplab.formats.tool_error import text_of
from xdplab.hosts.base import Host, Process

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Message = dict[str, Any]
ErrorMaker = Callable[[str, Message], XdplabError]
"""From the host's name and the tool's error line to the exception to raise."""

END_DEADLINE_S = 5.0
_Line = TypeVar("_Line", bound="DataclassInstance")


def typed(kind: type[_Line], message: Message) -> _Line:
    """Return the fields of ``kind`` taken from a line. Raises HostError naming one that does not fit."""
    try:
        return record_of(kind, message, f"a {message.get('type')!r} line")
    except FormatError as error:
        raise HostError(error.message) from error


# Errors that are unrelated to the driver or the program: permission, memory, another user's program.
_HOST_ERRNOS: dict[type[XdplabError], frozenset[str]] = {
    UnsupportedError: frozenset({"EBUSY", "EEXIST", "EPERM", "ENODEV", "ENOMEM"}),
    ProgramError: frozenset({"EPERM", "ENOMEM"}),
}
# This is the card's memory, not the host's: netdevsim and nfp return it for a map with too many entries.
_DRIVERS_OWN = frozenset({("offload map", "ENOMEM")})


def error_by_step(classes: Mapping[str, type[XdplabError]]) -> ErrorMaker:
    """Return a function that maps a tool's error line to its step's class of error: this determines the verdict.

    Other steps, and errors of the host itself, become HostError.
    """

    def make(host: str, message: Message) -> XdplabError:
        step = str(message.get("step"))
        kind, number = classes.get(step, HostError), str(message.get("error"))
        if number in _HOST_ERRNOS.get(kind, ()) and (step, number) not in _DRIVERS_OWN:
            kind = HostError
        return kind(f"{host}: {step}: {text_of(message)}")

    return make


class JsonSession:
    """One running tool. It always ends with its block; the kernel then releases what it held."""

    def __init__(self, host: Host, argv: Sequence[str], *, deadline_s: float, error: ErrorMaker) -> None:
        self.host = host
        self.argv = tuple(argv)
        self._error = error
        self._lines: list[str] = []
        self._ended = False
        self._process: Process = host.start(argv, deadline_s=deadline_s)

    @property
    def raw(self) -> str:
        """Every line that the tool has printed, unchanged."""
        return "".join(f"{line}\n" for line in self._lines)

    def read(self, kind: str, timeout_s: float) -> Message:
        """Return its next line, which must be of type ``kind``. Raises the typed error it reports, else HostError."""
        line = self._process.read_line(timeout_s)
        if line is None:
            raise self._silent_end()
        self._lines.append(line)
        message = self._parse(line)
        if message.get("type") == "error":
            raise self._error(self.host.name, message)
        if message.get("type") != kind:
            raise HostError(f"{self.host.name}: {self.argv[0]} answered {line!r} instead of a {kind!r} line")
        return message

    def ask(self, command: str, kind: str, timeout_s: float = 10.0) -> Message:
        """Send one command line and return its answer."""
        self._process.write_line(command)
        return self.read(kind, timeout_s)

    def ask_each(self, commands: Sequence[str], kind: str, timeout_s: float = 10.0) -> list[Message]:
        """Send all command lines at once and return their answers. A refusal is raised once all are answered."""
        self._process.write_line("\n".join(commands))
        answers: list[Message] = []
        refused: XdplabError | None = None
        for _ in commands:
            try:
                answers.append(self.read(kind, timeout_s))
            except (ProgramError, UnsupportedError) as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return answers

    def finish(self, kinds: Sequence[str], timeout_s: float = END_DEADLINE_S) -> list[Message]:
        """Close its input, return its last lines (one of each of ``kinds``, in order) and wait for its end."""
        self._process.close_stdin()
        messages = [self.read(kind, timeout_s) for kind in kinds]
        self._close(timeout_s)
        return messages

    def close(self) -> None:
        """End it without further commands; harmless if it has ended."""
        if not self._ended:
            self._process.kill()
            self._close(END_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close(self, deadline_s: float) -> None:
        self._ended = True
        self._process.close_stdin()
        self._process.wait(deadline_s)

    def _parse(self, line: str) -> Message:
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            message = None
        if not isinstance(message, dict):
            raise HostError(f"{self.host.name}: {self.argv[0]} printed {line!r}, which is not one of its JSON lines")
        return message

    def _silent_end(self) -> HostError:
        self._ended = True
        result = self._process.wait(END_DEADLINE_S)
        how = f"with exit code {result.exit_code}" if result.exit_code is not None else "at its deadline"
        words = result.error_text[-400:] or "it printed nothing more"
        return HostError(f"{self.host.name}: {self.argv[0]} ended {how}: {words}")
