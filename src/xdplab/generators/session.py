"""A generator at work on a host: it sends bursts, for one trial or for several in a row, and keeps what it printed."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from xdplab.errors import FormatError, HostError, UnsupportedError
from xdplab.formats.generator import (
    Burst,
    BurstBuilder,
    Detached,
    Failure,
    GeneratorInterval,
    GeneratorReady,
    Histogram,
    Record,
    Released,
    Summary,
    kind_of_line,
    parse_line,
)
from xdplab.formats.tool_error import last_words
from xdplab.generators.adapter import XDPGEN, Adapter
from xdplab.generators.settings import GeneratorSettings
from xdplab.hosts.base import Host, Process

OUTPUT = "xdpgen.jsonl"
END_TIMEOUT_S = 10.0
BURST_MARGIN_S = 10.0
"""Setting a burst up and reading it out takes 0.1 s; a busy machine may take longer."""


class Sender(Protocol):
    """What a trial needs of its traffic: one session of a generator, or one for each direction."""

    @property
    def host(self) -> Host: ...

    @property
    def argv(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> dict[str, str]: ...

    def start(self) -> GeneratorReady: ...
    def burst(self, name: str, seconds: float) -> Burst: ...
    def release(self) -> None: ...
    def go_on(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Generator:
    """One session. Use it as a context manager: it ends with its block, whatever happens.

    ``deadline_s`` is the longest the whole session may last: the host ends the process then.
    """

    def __init__(
        self,
        host: Host,
        settings: GeneratorSettings,
        binary: str,
        *,
        deadline_s: float = 3600.0,
        adapter: Adapter = XDPGEN,
    ) -> None:
        self.host = host
        self.settings = settings
        self.argv = tuple(adapter.argv(settings, binary))
        self._capability = adapter.capability(settings.engine)
        self._start_s = adapter.start_s
        self._refusal = adapter.refusal
        self._deadline_s = deadline_s
        self._process: Process | None = None
        self._lines: list[str] = []
        self._ready: GeneratorReady | None = None
        self._ended = False

    @property
    def raw(self) -> str:
        """Every line it has printed, untouched: of a session that went on, its first line and those since then."""
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def outputs(self) -> dict[str, str]:
        """What to keep of the session, by the name of the file in a trial's raw files."""
        return {OUTPUT: self.raw}

    def start(self) -> GeneratorReady:
        """Start it, unless it went on from an earlier trial, and return what it obtained.

        Raises UnsupportedError if the engine cannot do what is asked, HostError with the generator's own reason
        where it fails.
        """
        if self._ready is not None:
            return self._ready
        self._capability.require(self.settings)
        self._process = self.host.start(self.argv, deadline_s=self._deadline_s)
        record = self._next(self._start_s)
        if not isinstance(record, GeneratorReady):
            raise self._surprise(record)
        self._ready = record
        return record

    def burst(self, name: str, seconds: float) -> Burst:
        """Send for ``seconds`` and return the generator's summary. Raises HostError if it fails or falls silent."""
        self._running().write_line(f"burst {name} {seconds:.9g}")
        deadline = time.monotonic() + seconds + self.settings.settle_s + BURST_MARGIN_S
        builder = BurstBuilder()
        while True:
            record = self._next(deadline - time.monotonic())
            if not isinstance(record, GeneratorInterval | Summary | Histogram):
                raise self._surprise(record)
            if burst := builder.take(record):
                return burst

    def release(self) -> None:
        """Make the generator mark a trial's end: output after `go_on` belongs to the next trial. Raises HostError."""
        self._running().write_line("release")
        record = self._next(END_TIMEOUT_S)
        if not isinstance(record, Released):
            raise self._surprise(record)

    def go_on(self) -> None:
        """Begin another trial with a released session. Raises HostError if the generator does not answer."""
        self.release()
        del self._lines[1:]

    def stop(self) -> None:
        """End the generator and wait until it has released its resources. Raises HostError if it fails."""
        process = self._running()
        process.close_stdin()
        record = self._next(END_TIMEOUT_S)
        if not isinstance(record, Detached):
            raise self._surprise(record)
        self._ended = True
        process.wait(END_TIMEOUT_S).require()

    def close(self) -> None:
        """Kill the generator; harmless if it has ended or never started."""
        if self._process is not None and not self._ended:
            self._ended = True
            self._process.kill()
            self._process.wait(END_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> Process:
        if self._process is None or self._ended:
            raise HostError(f"{self.host.name}: {self.argv[0]} is not running", remedy="start() comes first")
        return self._process

    def _next(self, timeout_s: float) -> Record:
        line = self._running().read_line(max(timeout_s, 0.0))
        if line is None:
            raise self._silent_end()
        self._lines.append(line)
        try:
            record = parse_line(line, len(self._lines))
        except FormatError as error:
            raise HostError(f"{self.host.name}: {self.argv[0]}: {error.message}") from error
        if isinstance(record, Failure):
            said = last_words(record.log or "")
            words = f"{record.message} ({record.error or 'unknown'}){f': {said}' if said else ''}{self._last_words()}"
            raise self._failure(f"{record.step}: {words}")
        return record

    def _surprise(self, record: Record) -> HostError:
        return HostError(
            f"{self.host.name}: {self.argv[0]}: a {kind_of_line(record)} line came out of turn: {self._lines[-1][:200]}"
        )

    def _silent_end(self) -> HostError | UnsupportedError:
        result = self._running().wait(END_TIMEOUT_S)
        self._ended = True
        how = "at its deadline" if result.timed_out else f"with exit code {result.exit_code}"
        words = " ".join(result.error_text[-400:].split()) or "it printed nothing more"
        return self._failure(f"it ended {how}: {words}")

    def _last_words(self) -> str:
        """Return what it said on its other stream as it failed, after a colon: DPDK names the cause there."""
        process = self._running()
        process.close_stdin()
        said = " ".join(process.wait(END_TIMEOUT_S).error_text[-400:].split())
        self._ended = True
        return f": {said}" if said else ""

    def _failure(self, words: str) -> HostError | UnsupportedError:
        """Return the error for what it said: trying again helps, or it does not."""
        message, remedy = f"{self.host.name}: {self.argv[0]}: {words}", self._refusal(words)
        return HostError(message) if remedy is None else UnsupportedError(message, remedy=remedy)
