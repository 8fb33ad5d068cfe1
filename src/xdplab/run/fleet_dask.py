"""Labs as Dask workers: one process per lab, with that lab as its resource; or the workers of a running cluster.

Start a worker of another cluster so: `dask worker ADDRESS --nthreads 1 --resources "rack-a.yaml=1"`.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

import dask
from distributed import Client, Future, Nanny, Scheduler, SpecCluster, wait
from distributed.security import Security
from tornado.iostream import SSLIOStream

from xdplab.errors import LabError, ResultsWarning
from xdplab.run.fleet import NOTHING, BlockResult
from xdplab.run.state import AnyTrial

START_S = 180.0
"""A worker starts in seconds; three on two busy CPUs were seen to need more than a minute."""
LOOK_S = 5.0
"""How often to check that a silent worker is still there."""

T = TypeVar("T", bound=AnyTrial)

_read = SSLIOStream.read_from_fd


def _read_again(stream: SSLIOStream, buffer: bytearray | memoryview) -> int | None:
    """Read a TLS connection; once more if it reports a broken pipe, which may be another connection's.

    CPython reads without emptying OpenSSL's queue of errors (https://github.com/python/cpython/issues/148594). With
    OpenSSL 3.6 a connection that ends leaves a broken pipe there, which then ends every connection that is read.
    Without this, 20 of 58 starts of three workers lost one or two.
    """
    try:
        return _read(stream, buffer)
    except BrokenPipeError:
        _empty_error_queue()
    try:
        return _read(stream, buffer)
    except BrokenPipeError:
        _empty_error_queue()
        raise


def _empty_error_queue() -> None:
    """CPython empties it where it refuses ciphers."""
    with contextlib.suppress(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers("no such cipher")


SSLIOStream.read_from_fd = _read_again  # type: ignore[assignment, method-assign]  # a worker's process preloads this module


def dask_setup(_worker: object) -> None:
    """Show a worker's warnings as the command does, on one line each: Dask calls this where the module is preloaded."""
    pythons_own = warnings.formatwarning

    def formatted(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        of_python = not issubclass(category, ResultsWarning)
        return pythons_own(message, category, *where, **more) if of_python else f"xdplab: {message}\n"

    warnings.formatwarning = formatted


class DaskFleet(Generic[T]):
    """A `Fleet` whose blocks are tasks. ``measure(lab, block)`` runs in the worker that has the lab."""

    def __init__(self, client: Client, labs: Sequence[str], measure: Callable[[str, Sequence[T]], BlockResult]) -> None:
        self.labs = tuple(labs)
        self._client, self._measure = client, measure
        self._running: dict[Future, str] = {}

    def give(self, lab: str, block: Sequence[T]) -> None:
        self._running[submit(self._client, lab, self._measure, lab, block)] = lab

    def take(self) -> tuple[str, BlockResult]:
        task = self._ended()
        lab = self._running.pop(task)
        try:
            return lab, task.result(timeout=LOOK_S)
        except Exception as error:  # noqa: BLE001  # whatever a worker dies of, its lab is gone and the block is not
            task.cancel()
            return lab, BlockResult((), NOTHING, lost=f"its worker died: {type(error).__name__}: {error}")

    def _ended(self) -> Future:
        """Wait until a task has ended or its worker is gone: Dask would wait for a new worker without end."""
        while True:
            try:
                return next(iter(wait(list(self._running), timeout=LOOK_S, return_when="FIRST_COMPLETED").done))
            except TimeoutError:
                labs = _labs_there(self._client)
            if gone := [task for task, lab in self._running.items() if lab not in labs]:
                return gone[0]


def submit(client: Client, lab: str, work: Callable[..., Any], *arguments: Any) -> Future:
    """Submit a function, once, to the worker that has ``lab``.

    Dask must not repeat it: the journal decides whether a half-measured block is measured again.
    """
    return client.submit(work, *arguments, resources={lab: 1}, pure=False, retries=0)


@contextmanager
def connected(labs: Sequence[str], scheduler: str | None) -> Iterator[Client]:
    """Give a client whose workers have these labs. Raises LabError if a cluster lacks one.

    xdplab's own workers speak TLS with temporary keys: no other user of this machine can give them work.
    """
    with ExitStack() as stack:
        if scheduler is None:
            security = Security.temporary()
            stack.enter_context(dask.config.set(_NO_PAGES))
            cluster = stack.enter_context(_own_cluster(labs, security))
            client = stack.enter_context(Client(cluster, security=security, timeout=START_S))
            _await_workers(client, len(labs))
        else:
            client = stack.enter_context(_of(scheduler))
        _require(client, labs)
        yield client


def _await_workers(client: Client, count: int) -> None:
    """Raise LabError if xdplab's own workers do not start. Dask's own error has numbers where an OSError has a file."""
    try:
        client.wait_for_workers(count, timeout=START_S)
    except TimeoutError:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        raise LabError(
            f"{workers} of {count} workers, one per lab, have started in {START_S:g} s",
            remedy="name fewer labs, or wait until this machine is less busy",
        ) from None


def _of(scheduler: str) -> Client:
    """Connect by TLS only: the answers of a plain connection's peer could run any code here."""
    if not scheduler.startswith("tls://"):
        raise LabError(
            f"--scheduler {scheduler}: the address of a scheduler must be tls://",
            remedy="give scheduler, workers and this user keys (Dask's `distributed.comm.tls`), and name tls://HOST:PORT",
        )
    security = Security(require_encryption=True)
    if not (security.tls_ca_file and security.tls_client_cert):
        raise LabError(
            f"--scheduler {scheduler}: this user has no TLS keys for Dask",
            remedy="set ca-file and client of Dask's `distributed.comm.tls`",
        )
    try:
        return Client(scheduler, security=security, timeout=START_S)
    except OSError as error:
        raise LabError(f"--scheduler {scheduler}: no Dask scheduler answers: {error}") from None


_NO_PAGES: dict[str, list[str]] = {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker", "nanny")}
"""Dask's information pages answer every user of the machine without a key, so xdplab's workers have none."""


def _own_cluster(labs: Sequence[str], security: Security) -> SpecCluster:
    common = {"security": security, "protocol": "tls", "host": "127.0.0.1"}
    each = {"nthreads": 1, "silence_logs": logging.ERROR, "preload": [__name__], **common}
    workers: dict[str, Any] = {lab: {"cls": Nanny, "options": {"resources": {lab: 1}, **each}} for lab in labs}
    options = {"dashboard": False, "dashboard_address": "127.0.0.1:0", "allowed_failures": 0, "port": 0, **common}
    chief = {"cls": Scheduler, "options": options}
    return SpecCluster(workers=workers, scheduler=chief, security=security, silence_logs=logging.ERROR)


def _labs_there(client: Client) -> set[str]:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return {name for worker in workers for name in worker["resources"]}


def _require(client: Client, labs: Sequence[str]) -> None:
    offered = _labs_there(client)
    if missing := [lab for lab in labs if lab not in offered]:
        raise LabError(
            f"no worker has the lab {missing[0]}",
            remedy=f'`dask worker ADDRESS --nthreads 1 --resources "{missing[0]}=1"`',
        )
