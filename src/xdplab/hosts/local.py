"""The machine the controller runs on, reached without SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, cast

from xdplab.errors import HostError
from xdplab.hosts import Result
from xdplab.hosts.process import StreamedProcess, guarded
from xdplab.run.disk import sync_one

_CHUNK = 1 << 16


class LocalProcess(StreamedProcess):
    """A child process in a group of its own."""

    def __init__(self, host: str, argv: Sequence[str], deadline_s: float) -> None:
        super().__init__(host, argv, deadline_s)
        pipe = subprocess.PIPE
        command = guarded(argv, deadline_s)
        try:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise HostError(f"{host}: cannot start `{argv[0]}`: {error}") from error
        self._stdin = cast("IO[bytes]", self._child.stdin)
        for stream, pipe_end in ((self.stdout, self._child.stdout), (self.stderr, self._child.stderr)):
            descriptor = cast("IO[bytes]", pipe_end).fileno()
            self._pump(stream, partial(os.read, descriptor, _CHUNK))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._stdin.fileno(), view) :]

    def _close_stdin(self) -> None:
        self._stdin.close()

    def _kill_group(self) -> None:
        # After the wait its PID is free unless its group lives: another process may have it.
        if self._child.returncode is not None and Path(f"/proc/{self._child.pid}").exists():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)

    def _exit_code(self, timeout_s: float) -> int | None:
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code  # as a shell reports it

    def _release(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        for pipe_end, stream in ((self._child.stdout, self.stdout), (self._child.stderr, self.stderr)):
            if pipe_end and stream.wait_end(0):  # a pump that still reads keeps its file descriptor
                pipe_end.close()
        with contextlib.suppress(OSError):
            self._stdin.close()


class LocalHost:
    """This machine as a `Host`."""

    def __init__(self, name: str = "local") -> None:
        self.name = name

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"", check: bool = True) -> Result:
        process = LocalProcess(self.name, argv, deadline_s)
        process.feed(stdin)
        result = process.wait(deadline_s + 2.0)
        return result.require() if check else result

    def start(self, argv: Sequence[str], *, deadline_s: float) -> LocalProcess:
        return LocalProcess(self.name, argv, deadline_s)

    def put(self, data: bytes | Path, remote: str, *, mode: int = 0o644) -> None:
        target = Path(remote)
        content = data.read_bytes() if isinstance(data, Path) else data
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).chmod(mode)
                Path(temporary).replace(target)
                sync_one(target.parent.resolve())  # its names must be on disk, too
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise HostError(f"{self.name}: cannot write {remote}: {error.strerror or error}") from error

    def get(self, remote: str) -> bytes:
        try:
            return Path(remote).read_bytes()
        except OSError as error:
            raise HostError(f"{self.name}: cannot read {remote}: {error.strerror or error}") from error

    def await_return(self) -> None:
        """It is never lost."""

    def close(self) -> None:
        """There is nothing to close."""
