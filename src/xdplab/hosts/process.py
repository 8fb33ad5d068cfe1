"""A command that runs on a host: both streams are always drained; its process group ends at its deadline.

Local and SSH processes differ only in four primitives; reading lines, waiting and ending are the same for both.
"""

from __future__ import annotations

import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import BinaryIO

from xdplab.errors import HostError
from xdplab.hosts import Result, spoken

KILL_AFTER_S = 1.0
"""Seconds between SIGTERM and SIGKILL at the deadline."""

GUARD_S = KILL_AFTER_S + 1.0
"""Seconds after the deadline at which the controller no longer trusts ``timeout`` on the host."""

SEND_S = 30.0
"""Seconds within which a command must read its input."""

TIMEOUT_CODES = frozenset({124, 137, 143, -1})
"""Exit codes of ``timeout`` after it had to act (-1: SSH reports a signal, but not which)."""


def guarded(argv: Sequence[str], deadline_s: float) -> list[str]:
    """Return ``argv`` under coreutils' timeout: the host itself ends the group, even if the controller is gone."""
    return ["timeout", f"--kill-after={KILL_AFTER_S:g}", f"{max(deadline_s, 0.001):.3f}", *argv]


KEPT_BYTES = 1 << 25
"""Bytes of each stream that a `Result` keeps: more than the longest file read from a host."""

STORED_BYTES = 1 << 28
"""Bytes of each stream that are stored for the reader of its lines. The rest is counted and dropped."""

_IN_MEMORY = 1 << 20
_LOOK = 1 << 16


def within(seconds: float, work: Callable[[], object]) -> None:
    """Do ``work`` and raise its error. Raises TimeoutError after ``seconds``; the thread that does it is left behind.

    Neither a write to a pipe nor a request of paramiko has a deadline of its own.
    """
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # it is raised below
            failed.append(error)

    working = threading.Thread(target=attempt, daemon=True)
    working.start()
    working.join(seconds)
    if working.is_alive():
        raise TimeoutError(f"no answer for {seconds:g} s")
    if failed:
        raise failed[0]


class OutputStream:
    """The output of one stream, in a file once it is long, and the position of the reader of its lines."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._stored, self._said = 0, 0
        self._position, self._searched = 0, 0
        self._ended = self._passed_on = False
        self._full: str | None = None
        self._changed = threading.Condition()

    def pump(self, read: Callable[[], bytes]) -> None:
        """Store the output of ``read`` until it returns nothing or fails."""
        try:
            while chunk := read():
                with self._changed:
                    self._changed.wait_for(lambda: not self._passed_on or self._stored < _IN_MEMORY)
                    self._said += len(chunk)
                    self._store(chunk)
                    self._changed.notify_all()
        except (OSError, ValueError, EOFError):
            pass  # the other end is gone or was closed by kill(): the stream has ended
        finally:
            self.end()

    def _store(self, chunk: bytes) -> None:
        if self._full is not None:
            return
        if self._stored + len(chunk) > STORED_BYTES:
            self._full = f"only the first {self._stored:,} bytes were kept"
            return
        try:
            self._file.seek(self._stored)
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            self._full = f"only the first {self._stored:,} bytes were kept: {tempfile.gettempdir()}: {error.strerror}"
            return
        self._stored += len(chunk)

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_end(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, max(timeout_s, 0.0))

    def line(self, timeout_s: float) -> str | None:
        """Return the next line without its end, or None at the end. Raises TimeoutError.

        Raises OverflowError if the line is not stored: the reader was too slow, or the line has no end.
        """
        with self._changed:
            ready = self._changed.wait_for(lambda: self._newline() >= 0 or self._ended or self._full, max(timeout_s, 0))
            if not ready:
                raise TimeoutError
            newline = self._newline()
            if newline < 0 and self._full:
                raise OverflowError(self._full)
            stop = newline if newline >= 0 else self._stored
            if newline < 0 and stop == self._position:
                return None
            text = self._read(self._position, stop).decode(errors="replace")
            self._position = self._searched = stop + (newline >= 0)
            return text

    def _newline(self) -> int:
        """Return where the next line ends, or -1. No byte is searched twice."""
        while self._searched < self._stored:
            piece = self._read(self._searched, min(self._searched + _LOOK, self._stored))
            if (position := piece.find(b"\n")) >= 0:
                self._searched += position
                return self._searched
            self._searched += len(piece)
        return -1

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return self._file.read(stop - start)

    def copy_to(self, sink: BinaryIO) -> None:
        """Write everything to ``sink`` as it comes, until the end, without keeping it.

        A slow sink slows the command, as a pipe does.
        """
        while fresh := self._taken():
            sink.write(fresh)
            sink.flush()

    def _taken(self) -> bytes:
        """Wait for output, remove it from the store and return it; empty at the end."""
        with self._changed:
            self._passed_on = True
            self._changed.wait_for(lambda: self._ended or self._stored > 0)
            fresh = self._read(0, self._stored)
            self._file.seek(0)
            self._file.truncate()
            self._stored = 0
            self._changed.notify_all()
            return fresh

    @property
    def data(self) -> bytes:
        """Return the first `KEPT_BYTES` of it."""
        with self._changed:
            return self._read(0, min(self._stored, KEPT_BYTES))

    @property
    def last(self) -> bytes:
        with self._changed:
            return self._read(max(self._stored - 4096, 0), self._stored)

    @property
    def cut(self) -> str | None:
        """Return a description of what `data` lacks; None if it is complete."""
        with self._changed:
            if self._full is None and self._stored <= KEPT_BYTES:
                return None
            return f"{self._said:,} bytes; {self._full or f'only the first {KEPT_BYTES:,} are passed on'}"


class StreamedProcess(ABC):
    """A `Process` whose subclasses add only how to write, close, end and ask for the exit code."""

    def __init__(self, host: str, argv: Sequence[str], deadline_s: float) -> None:
        self.host = host
        self.argv = tuple(argv)
        self.stdout, self.stderr = OutputStream(), OutputStream()
        self._started = time.monotonic()
        self._deadline = self._started + deadline_s
        self._killed = False

    @abstractmethod
    def _write(self, data: bytes) -> None: ...

    @abstractmethod
    def _close_stdin(self) -> None: ...

    @abstractmethod
    def _kill_group(self) -> None: ...

    @abstractmethod
    def _exit_code(self, timeout_s: float) -> int | None: ...

    @abstractmethod
    def _release(self) -> None:
        """Close pipes and channels, whatever state they are in."""

    def _pump(self, stream: OutputStream, read: Callable[[], bytes]) -> None:
        threading.Thread(target=stream.pump, args=(read,), daemon=True).start()

    def write_line(self, line: str) -> None:
        self.send(line.encode() + b"\n")

    def send(self, data: bytes, *, within_s: float = SEND_S) -> None:
        """Raises HostError if it does not read all of ``data`` in time, or no longer reads."""
        try:
            within(within_s, lambda: self._write(data))
        except TimeoutError:
            raise self._broken(f"has not read its input for {within_s:g} s") from None
        except (OSError, ValueError, EOFError) as error:
            raise self._broken("no longer reads its input") from error

    def feed(self, data: bytes) -> None:
        """Write ``data`` and close standard input, while the output is being drained."""

        def write_and_close() -> None:
            try:
                self._write(data)
                self._close_stdin()
            except (OSError, ValueError, EOFError):
                return  # it ended without reading all its input, as it may

        if data:
            threading.Thread(target=write_and_close, daemon=True).start()
        else:
            write_and_close()

    def read_line(self, timeout_s: float) -> str | None:
        try:
            return self.stdout.line(timeout_s)
        except TimeoutError:
            raise self._broken(f"printed no line for {timeout_s:g} s") from None
        except OverflowError as error:
            raise self._broken(f"printed too much before a line was read: {error}") from None

    def close_stdin(self) -> None:
        try:
            self._close_stdin()
        except (OSError, ValueError, EOFError):
            return  # already closed, at either end

    def wait(self, deadline_s: float) -> Result:
        patience = min(time.monotonic() + deadline_s, self._deadline + GUARD_S)
        ended = self._wait_streams(patience)
        code = self._exit_code(max(patience - time.monotonic(), 0.1)) if ended else None
        timed_out = not self._killed and (code is None or (code in TIMEOUT_CODES and self._overdue()))
        if timed_out:
            self.kill()
            self._wait_streams(time.monotonic() + 1.0)
        self._release()
        duration_s = time.monotonic() - self._started
        code = None if timed_out else code
        cut = self.stdout.cut or self.stderr.cut
        return Result(self.host, self.argv, code, self.stdout.data, self.stderr.data, duration_s, timed_out, cut)

    def pass_through(self, stdout: BinaryIO, stderr: BinaryIO) -> Result:
        copies = [
            threading.Thread(target=stream.copy_to, args=(sink,), daemon=True)
            for stream, sink in ((self.stdout, stdout), (self.stderr, stderr))
        ]
        for copy in copies:
            copy.start()
        result = self.wait(self._deadline - time.monotonic() + GUARD_S)
        for copy in copies:  # a slow reader takes the rest after the command has ended
            copy.join(max(self._deadline + GUARD_S - time.monotonic(), 1.0))
        if any(copy.is_alive() for copy in copies):
            return replace(result, cut="its reader did not take all of it in time")
        return result

    def kill(self) -> None:
        self._killed = True
        self._kill_group()

    def _wait_streams(self, until: float) -> bool:
        return all(stream.wait_end(until - time.monotonic()) for stream in (self.stdout, self.stderr))

    def _overdue(self) -> bool:
        return time.monotonic() >= self._deadline

    def _broken(self, what: str) -> HostError:
        message = self.stderr.last.decode(errors="replace").strip()[-400:]
        return HostError(f"{self.host}: `{spoken(self.argv)}` {what}{': ' + message if message else ''}")
