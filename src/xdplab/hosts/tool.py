"""A tool on a host that prints JSON lines and reads commands: C tools and traffic generators. All lines are kept.

with ToolSession(host, [binary, "--step"], deadline_s=60.0) as session:
    session.open()
    ready = fields(Ready, session.read("ready"))
    answer = session.ask("count", "count")
    session.finish(["detached"])

Readings of one host over one channel that stays open: an SSH command of its own costs 4 ms before it runs.

    reader = Reader(host, path)       # `path`: the C tool there, built by `deploy.native`
    reader.run(["ip", "-j", "link"])  # a Result, as of `Host.run`
    reader.finish()

The tool is started with the first reading, and again after one that failed. Between two readings it sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from xdplab.errors import FormatError, HostError, KilledError, ProgramError, UnsupportedError, XdplabError
from xdplab.formats.reading import as_object, json_of, message_of, record_of
from xdplab.hosts import Host, Process, Result

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Message = dict[str, Any]
Refusals = Mapping[str, type[XdplabError]]
"""The class of error by the step that an error line names: this determines the verdict. Other steps: HostError."""

ANSWER_S = 30.0
END_S = 10.0
PROGRAM_REFUSALS: Refusals = MappingProxyType(
    dict.fromkeys(("open", "rodata", "init", "max-entries", "map", "load", "testrun"), ProgramError)
    | {"device": UnsupportedError}
)
"""The steps at which a tool that loads a program refuses the program itself."""

# Errors that are unrelated to the driver or the program: permission, memory, another user's program, a port that is
# down or gone (ENOLINK: the device of a program's link is).
_HOST_ERRNOS: dict[type[XdplabError], frozenset[str]] = {
    UnsupportedError: frozenset({"EBUSY", "EEXIST", "EPERM", "ENODEV", "ENOLINK", "ENETDOWN", "ENOMEM"}),
    ProgramError: frozenset({"EPERM", "ENOMEM"}),
}
# This is the card's memory, not the host's: netdevsim and nfp return it for a map with too many entries.
_DRIVERS_OWN = frozenset({("offload map", "ENOMEM")})
_Line = TypeVar("_Line", bound="DataclassInstance")


def fields(kind: type[_Line], message: Message) -> _Line:
    """Return the fields of ``kind`` taken from a line. Raises HostError naming one that does not fit."""
    try:
        return record_of(kind, message, f"a {message.get('type')!r} line")
    except FormatError as error:
        raise HostError(error.message) from error


def error_class(message: Message, refusals: Refusals) -> type[XdplabError]:
    """Return the class of a tool's error line."""
    step, errno = str(message.get("step")), str(message.get("error"))
    kind = refusals.get(step, HostError)
    of_host = errno in _HOST_ERRNOS.get(kind, ()) and (step, errno) not in _DRIVERS_OWN
    return HostError if of_host else kind


class ToolSession:
    """One tool, which runs from `open` on. It always ends with its block; the kernel then releases what it held.

    ``deadline_s`` is the longest it may run: the host ends it then.
    """

    def __init__(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        deadline_s: float,
        refusals: Refusals = MappingProxyType({}),
    ) -> None:
        self.host = host
        self.argv = tuple(argv)
        self._deadline_s = deadline_s
        self._refusals = refusals
        self._lines: list[str] = []
        self._process: Process | None = None

    @property
    def raw(self) -> str:
        """Every line that the tool has printed, unchanged."""
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def running(self) -> bool:
        """Whether it was opened, and its end is not known."""
        return self._process is not None

    def open(self) -> None:
        """Start the tool; harmless while it runs."""
        if self._process is None:
            self._process = self.host.start(self.argv, deadline_s=self._deadline_s)

    def send(self, text: str) -> None:
        """Send lines. If it has ended, the next `read` says why."""
        try:
            self._running().write_line(text)
        except HostError as error:
            if error.__cause__ is None:  # it runs, and does not read
                raise

    def message(self, timeout_s: float = ANSWER_S) -> Message:
        """Return its next line. Raises what `refused` makes of an error line, and `failure` if it ends."""
        line = self._running().read_line(max(timeout_s, 0.0))
        if line is None:
            result = self.wait_end()
            how = "at its deadline" if result.timed_out else f"with exit code {result.exit_code}"
            error = self.failure(f"it ended {how}: {ending_of(result) or 'it printed nothing more'}")
            raise KilledError(error.message) if result.killed and type(error) is HostError else error
        self._lines.append(line)
        try:
            message = as_object(json_of(line, "its output"), "its output")
        except FormatError as error:
            raise self.failure(error.message) from error
        if message.get("type") == "error":
            raise self.refused(message)
        return message

    def read(self, kind: str, timeout_s: float = ANSWER_S) -> Message:
        """Return its next line, which must be of type ``kind``."""
        message = self.message(timeout_s)
        if message.get("type") != kind:
            raise self.surprise(kind)
        return message

    def ask(self, command: str, kind: str, timeout_s: float = ANSWER_S) -> Message:
        """Send one command and return its answer."""
        self.send(command)
        return self.read(kind, timeout_s)

    def ask_each(self, commands: Sequence[str], kind: str, timeout_s: float = ANSWER_S) -> list[Message]:
        """Send all command lines at once and return their answers. A refusal is raised once all are answered."""
        self.send("\n".join(commands))
        answers: list[Message] = []
        refusal: XdplabError | None = None
        for _ in commands:
            try:
                answers.append(self.read(kind, timeout_s))
            except (ProgramError, UnsupportedError) as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        return answers

    def finish(self, kinds: Sequence[str] = ()) -> list[Message]:
        """Close its input, return its last lines (one of each of ``kinds``, in order) and wait for its end.

        Raises HostError if it fails.
        """
        self._running().close_stdin()
        messages = [self.read(kind, END_S) for kind in kinds]
        result = self.wait_end()
        if result.killed:
            raise KilledError(self.failure(f"it was killed ({result.exit_code}): {ending_of(result)}").message)
        result.require()
        return messages

    def close(self) -> None:
        """Kill it; harmless if it does not run."""
        if self._process is not None:
            self._process.kill()
            self.wait_end()

    def wait_end(self) -> Result:
        """Close its input and wait for its end."""
        process = self._running()
        self._process = None
        process.close_stdin()
        return process.wait(END_S)

    def failure(self, text: str) -> XdplabError:
        """Return the error for ``text``, which says what happened."""
        return HostError(f"{self.host.name}: {self.argv[0]}: {text}")

    def refused(self, message: Message) -> XdplabError:
        kind = error_class(message, self._refusals)
        return kind(f"{self.host.name}: {message.get('step')}: {message_of(message)}")

    def surprise(self, kind: str) -> XdplabError:
        """Return the error for a last line that is not of type ``kind``."""
        return self.failure(f"it printed {self._lines[-1][:200]!r} instead of a {kind!r} line")

    def _running(self) -> Process:
        if self._process is None:
            raise self.failure("it is not running")
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ending_of(result: Result) -> str:
    """Return the end of a tool's other stream, on one line: DPDK and sudo name the cause there."""
    return " ".join(result.error_text[-400:].split())


SESSION_S = 14 * 86400.0
"""The longest time that it stays open. The end of its connection ends it sooner."""
RENEWED_BYTES = 1 << 24
"""Characters of answers after which the tool is started anew: a process's output is kept until it ends."""
NEW_DROP_IN = "`xdplab lab sudoers INVENTORY` prints what /etc/sudoers.d/xdplab needs"


@dataclass(frozen=True)
class HostReading:
    """What is read: ``run`` a command, a ``file``, or ``settings`` of a port and of files by their patterns."""

    words: tuple[str, ...]
    kind: Literal["run", "file", "settings"] = "run"

    @property
    def spoken(self) -> tuple[str, ...]:
        """The command that it stands for."""
        return {"run": (), "file": ("cat",), "settings": ("reader", "settings")}[self.kind] + self.words

    def line(self) -> str:
        return " ".join([self.kind, *(word.encode(errors="surrogateescape").hex() for word in self.words)])


class Reader(ToolSession):
    """One host's readings; one thread at a time."""

    def __init__(self, host: Host, binary: str) -> None:
        super().__init__(host, [binary], deadline_s=SESSION_S)
        self._characters = 0

    @property
    def name(self) -> str:
        return self.host.name

    def run(self, argv: Sequence[str], *, deadline_s: float = ANSWER_S, check: bool = True) -> Result:
        """Run a short command to its end. ``check`` raises HostError if it fails."""
        (result,) = self.take([HostReading(tuple(argv))], deadline_s=deadline_s)
        return result.require() if check else result

    def take(self, readings: Sequence[HostReading], *, deadline_s: float = ANSWER_S) -> list[Result]:
        """Take the readings one after another, by one request; return each one's result.

        Raises HostError if the tool ends, or has not taken all of them after ``deadline_s``.
        """
        until = time.monotonic() + deadline_s
        if self._characters > RENEWED_BYTES:
            self._characters = 0
            if self.running:  # it may have been closed since
                self.finish()
        self.open()
        try:
            self.send("\n".join(reading.line() for reading in readings))
            return [self._result(reading, until) for reading in readings]
        except BaseException:
            self.close()  # a command may hang
            raise

    def _result(self, reading: HostReading, until: float) -> Result:
        began = time.monotonic()
        try:
            answer = self.read("answer", until - began)
        except HostError:
            if self.running and time.monotonic() >= until:
                waited_s = time.monotonic() - began
                Result(self.name, reading.spoken, None, b"", b"", waited_s, timed_out=True).require()
            raise
        self._characters += len(self._lines.pop())
        output, error = (bytes.fromhex(answer[stream]) for stream in ("output", "error"))
        return Result(self.name, reading.spoken, answer["exit_code"], output, error, time.monotonic() - began)

    def failure(self, text: str) -> XdplabError:
        """The remedy if sudo refuses the tool."""
        error = super().failure(text)
        error.remedy = NEW_DROP_IN if "sudo: " in text else None
        return error
