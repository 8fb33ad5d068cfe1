"""A generator at work on a host: it sends bursts, for one trial or for several in a row, and keeps what it printed."""

from __future__ import annotations

import time
from typing import Protocol

from xdplab.errors import FormatError, UnsupportedError, XdplabError
from xdplab.formats.generator import (
    Burst,
    BurstBuilder,
    GeneratorInterval,
    GeneratorReady,
    Histogram,
    Record,
    Summary,
    record_of_line,
)
from xdplab.formats.tool_error import last_words
from xdplab.generators.adapter import XDPGEN, Adapter
from xdplab.generators.settings import GeneratorSettings
from xdplab.hosts.base import Host
from xdplab.hosts.tool import Message, ToolSession, ending_of

OUTPUT = "xdpgen.jsonl"
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


class Generator(ToolSession):
    """One session. ``raw`` of a session that went on has its first line and those since then."""

    def __init__(
        self,
        host: Host,
        settings: GeneratorSettings,
        binary: str,
        *,
        deadline_s: float = 3600.0,
        adapter: Adapter = XDPGEN,
    ) -> None:
        super().__init__(host, adapter.argv(settings, binary), deadline_s=deadline_s)
        self.settings = settings
        self._adapter = adapter
        self._capability = adapter.capability(settings.engine)
        self._ready: GeneratorReady | None = None

    @property
    def outputs(self) -> dict[str, str]:
        """What to keep of the session, by the name of the file in a trial's raw files."""
        return {OUTPUT: self.raw}

    def start(self) -> GeneratorReady:
        """Start it, unless it went on from an earlier trial, and return what it obtained.

        Raises UnsupportedError if the engine cannot do what is asked, HostError with the generator's own reason
        where it fails.
        """
        if self._ready is None:
            self._capability.require(self.settings)
            self.open()
            record = self._record(self._adapter.start_s)
            if not isinstance(record, GeneratorReady):
                raise self.surprise("ready")
            self._ready = record
        return self._ready

    def burst(self, name: str, seconds: float) -> Burst:
        """Send for ``seconds`` and return the generator's summary. Raises HostError if it fails or falls silent."""
        self.send(f"burst {name} {seconds:.9g}")
        deadline = time.monotonic() + seconds + self.settings.settle_s + BURST_MARGIN_S
        builder = BurstBuilder()
        while True:
            record = self._record(deadline - time.monotonic())
            if not isinstance(record, GeneratorInterval | Summary | Histogram):
                raise self.surprise("summary")
            if burst := builder.take(record):
                return burst

    def release(self) -> None:
        """Make the generator mark a trial's end: output after `go_on` belongs to the next trial. Raises HostError."""
        self.ask("release", "released")

    def go_on(self) -> None:
        """Begin another trial with a released session. Raises HostError if the generator does not answer."""
        self.release()
        del self._lines[1:]

    def stop(self) -> None:
        """End the generator and wait until it has released its resources. Raises HostError if it fails."""
        self.finish(["detached"])

    def _record(self, timeout_s: float) -> Record:
        message = self.message(timeout_s)
        try:
            return record_of_line(message, len(self._lines))
        except FormatError as error:
            raise self.failure(error.message) from error

    def refused(self, message: Message) -> XdplabError:
        """The generator ends after an error."""
        log = message.get("log")
        causes = (last_words(log) if isinstance(log, str) else "", ending_of(self.wait_end()))
        what = f"{message.get('message')} ({message.get('error') or 'unknown'})"
        return self.failure(": ".join([str(message.get("step")), what, *filter(None, causes)]))

    def failure(self, text: str) -> XdplabError:
        """UnsupportedError if trying again does not help."""
        remedy = self._adapter.refusal(text)
        if remedy is None:
            return super().failure(text)
        return UnsupportedError(f"{self.host.name}: {self.argv[0]}: {text}", remedy=remedy)
