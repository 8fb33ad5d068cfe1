"""The command line in processes that need not import anything: forks of one that has imported all of xdplab.

A short command spends most of its CPU time on imports. `tests/cli/test_startup.py` counts what each command imports;
tests of what a command does start it here, without the process that makes tables beside a run. Each has a process, a
directory, an environment and files of its own.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

LIBRARIES = ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg")
NOT_IMPORTED = ("xdplab.__main__", "xdplab.run.fleet_dask", "xdplab.studies.traffic.fleet")
"""The first runs the command line; the others import Dask, which reads the environment then."""
MESSAGE_BYTES = 1 << 18


def serve(requests: socket.socket) -> None:
    """Fork for each request; answer with the process' number, and with its status when it ends."""
    import xdplab
    from xdplab.cli import main
    from xdplab.studies import maker

    for module in pkgutil.walk_packages(xdplab.__path__, "xdplab."):
        if module.name not in NOT_IMPORTED:
            with contextlib.suppress(ImportError):  # scripts for hosts, and parts that need an extra
                importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "dask" not in sys.modules
    maker.beside = contextlib.nullcontext  # it would import all of it once more
    gc.freeze()  # a collection in a fork would write to all pages that it shares
    running: dict[int, int] = {}
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                pid = running.pop(ready)
                os.close(ready)
                requests.send(json.dumps({"ended": pid, "status": os.waitpid(pid, 0)[1]}).encode())
                continue
            message, files, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
            if not message:  # those who asked are gone, also if they were killed
                for pid in running.values():
                    os.kill(pid, signal.SIGTERM)
                return
            pid = os.fork()
            if pid == 0:
                _become(json.loads(message), files, [requests.fileno(), *running])
                main()
                return
            for file in files:
                os.close(file)
            running[os.pidfd_open(pid)] = pid
            requests.send(json.dumps({"started": pid}).encode())


def _become(asked: dict[str, Any], files: list[int], others: list[int]) -> None:
    for file in others:
        os.close(file)
    for file, number in zip([os.open(os.devnull, os.O_RDONLY), *files], range(3), strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["xdplab", *asked["argv"]]


@functools.cache
def _server() -> socket.socket:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "PYDANTIC_DISABLE_PLUGINS": "1"}
    argv = [sys.executable, "-P", __file__, str(there.fileno())]
    subprocess.Popen(argv, pass_fds=(there.fileno(),), env=environment, stdin=subprocess.DEVNULL)
    there.close()
    return here


_statuses: dict[int, int] = {}
"""Of ended processes that nobody has waited for yet."""


def _answer(timeout_s: float | None) -> int | None:
    """Take one answer of the server: a number if a process has started, None if one has ended. Raises TimeoutError."""
    server = _server()
    if not select.select([server], [], [], timeout_s)[0]:
        raise TimeoutError
    said = json.loads(server.recv(MESSAGE_BYTES))
    if "ended" in said:
        _statuses[said["ended"]] = said["status"]
    return said.get("started")


class Started:
    """A running command with the interface of a Popen that captures: its output is whole when it has ended."""

    def __init__(self, *argv: str, cwd: Path | None = None) -> None:
        self.args, self.returncode = ["xdplab", *argv], None
        self._files = [os.fdopen(os.memfd_create(name), "rb") for name in ("out", "err")]
        asked = {"argv": argv, "cwd": str(cwd or Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(_server(), [json.dumps(asked).encode()], [file.fileno() for file in self._files])
        while (pid := _answer(None)) is None:
            pass
        self.pid = pid

    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        while self.returncode is None:
            if self.pid in _statuses:
                self.returncode = os.waitstatus_to_exitcode(_statuses.pop(self.pid))
                break
            try:
                _answer(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return standard output and standard error, at the command's end. Raises TimeoutExpired."""
        self.wait(timeout)
        said = []
        for file in self._files:
            file.seek(0)
            said.append(file.read().decode())
            file.close()
        return said[0], said[1]


def xdplab(*argv: str, cwd: Path | None = None, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, as `python -m xdplab` does. Raises TimeoutExpired."""
    started = Started(*argv, cwd=cwd)
    try:
        out, err = started.communicate(timeout_s)
    finally:
        started.kill()
        started.wait()
    return subprocess.CompletedProcess(started.args, started.wait(), out, err)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
