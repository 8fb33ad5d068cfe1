"""Generators at work on a host: they send bursts, for one trial or for several in a row, and keep what they printed.

`Generator` is one session, `BothWays` one for each direction of a link, `Staying` what keeps one across trials.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Protocol

from xdplab.errors import FormatError, KilledError, UnsupportedError, XdplabError
from xdplab.formats.both_ways import both
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
from xdplab.formats.reading import last_words
from xdplab.generators.adapter import XDPGEN, Adapter, GeneratorSettings
from xdplab.hosts import Host
from xdplab.hosts.tool import Message, ToolSession, ending_of

OUTPUT = "xdpgen.jsonl"
OUTPUT_BACK = "xdpgen_back.jsonl"
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


class BothWays:
    """A session for each direction, which sends from the port on which the other one receives.

    What it returns is of both together.
    """

    def __init__(self, forth: Generator, back: Generator) -> None:
        self._there, self._back = forth, back

    @property
    def host(self) -> Host:
        return self._there.host

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self._there.argv, *self._back.argv)

    @property
    def outputs(self) -> dict[str, str]:
        return {OUTPUT: self._there.raw, OUTPUT_BACK: self._back.raw}

    def start(self) -> GeneratorReady:
        """Start both, and return what the first obtained, on the CPUs of both."""
        forth, back = self._there.start(), self._back.start()
        return replace(forth, cpus=(*forth.cpus, *back.cpus))

    def burst(self, name: str, seconds: float) -> Burst:
        """Send both ways for ``seconds``; the two begin within milliseconds of each other."""
        with ThreadPoolExecutor(1) as meanwhile:
            back = meanwhile.submit(self._back.burst, name, seconds)
            forth = self._there.burst(name, seconds)
        return both(forth, back.result())

    def release(self) -> None:
        self._there.release()
        self._back.release()

    def go_on(self) -> None:
        self._there.go_on()
        self._back.go_on()

    def stop(self) -> None:
        try:
            self._there.stop()
        finally:
            self._back.stop()

    def close(self) -> None:
        try:
            self._there.close()
        finally:
            self._back.close()


class Staying:
    """At most one generator, between two trials. A trial takes it for itself, and does not give it back if it fails.

    Starting and ending one takes 0.1 s of a trial. A program whose trial is over leaves meanwhile: the kernel waits
    until no CPU uses it.
    """

    def __init__(self) -> None:
        self._kept: Sender | None = None
        self._leaving: Future[None] | None = None
        self._worker = ThreadPoolExecutor(1)

    def leave(self, program: Any) -> None:
        self._leaving = self._worker.submit(_end, program)

    def await_left(self) -> None:
        """Wait until the program has left. Raises what it ended with; one that was killed has left, too."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            with suppress(KilledError):
                leaving.result()

    def take(self, new: Sender) -> Sender:
        """Return the one that stayed if it is what ``new``, which has not started, would be; end it otherwise.

        One that was killed meanwhile costs no trial: a new one takes its place.
        """
        kept = self._kept
        if kept is not None and (kept.host, kept.argv) == (new.host, new.argv):
            with suppress(XdplabError):
                kept.go_on()
                self._kept = None
                return kept
        self.end()
        return new

    def give(self, generator: Sender) -> None:
        """Have it stay, its trial's end marked. Raises HostError."""
        generator.release()
        self._kept = generator

    def has(self, generator: Sender) -> bool:
        return self._kept is generator

    def end(self) -> None:
        """End both before settings change that they depend on. Raises what the program ended with."""
        with suppress(XdplabError):  # its trials are over and whole: however it ends, nothing of theirs is lost
            if self._kept is not None:
                _end(self._kept)
        self._kept = None
        self.await_left()


def _end(holder: Any) -> None:
    with closing(holder):
        holder.stop()
