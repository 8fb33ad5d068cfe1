"""The parts of a product in which a test is not interested: each writes down what is asked of it, and has an answer."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xdplab.deploy.afxdp import AfxdpRequest
from xdplab.deploy.device import Applied
from xdplab.deploy.xdp import XdpRequest
from xdplab.plan import Point, Trial
from xdplab.programs.build import BuiltProgram
from xdplab.studies.test_frames import TestFrames
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.traffic.prepare import TrialContext
from xdplab.studies.trial_facts import TrialFacts


class Calls(list[str]):
    """What was called, a line each."""

    def of(self, name: str, answer: Any = None) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            words = [*map(shown, given), *(f"{key}={shown(value)}" for key, value in named.items())]
            self.append(" ".join([name, *words]))
            return answer(*given, **named) if callable(answer) else answer

        return call

    def within(self, name: str, answer: Any = None) -> Callable[..., Any]:
        @contextmanager
        def block(*given: Any, **named: Any) -> Iterator[Any]:
            self.of(name)(*given, **named)
            try:
                yield answer
            finally:
                self.append(f"{name} ends")

        return block

    @property
    def lines(self) -> list[str]:
        return "\n".join(self).splitlines()


def shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={shown(one)}" for key, one in value.items())
    if isinstance(value, set):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(shown, value))}]"
    if isinstance(value, Point):
        return f"{value.frame_bytes}B*{value.queues}"
    if isinstance(value, Applied):
        return f"{value.host}.{value.interface} {shown(value.requested)} is {shown(value.obtained)}"
    if isinstance(value, TestFrames):
        return f"{len(value.frames)} frames, the first {shown(value.frames[0].frame)}, of {value.sent}, {value.seed}"
    if isinstance(value, TrialContext | TrialFacts | Trial | KernelSide):
        return type(value).__name__
    if isinstance(value, bytes):
        return f"{value.hex().rstrip('0')} of {len(value)} B"
    if isinstance(value, XdpRequest | AfxdpRequest):
        return f"({' '.join(value.argv('')[1:])})"
    if hasattr(value, "interface") and hasattr(value, "host"):
        return f"{value.host.name}.{value.interface}"
    if hasattr(value, "device") and hasattr(value, "host"):
        return f"{value.host}.{value.device}"
    if isinstance(value, BuiltProgram):
        return value.program.name
    if isinstance(value, Path):
        return str(value)
    return "…" if callable(value) else str(getattr(value, "name", getattr(value, "prefix", value)))


class AtOnce:
    """What would run beside runs at once: so its order is the same each time."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> "AtOnce":
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, work: Callable[..., Any], *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done

    map = map
