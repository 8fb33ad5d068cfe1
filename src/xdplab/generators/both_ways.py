"""Two sessions of a generator that send at the same time, each from the port on which the other one receives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, GeneratorReady
from xdplab.generators.session import OUTPUT, Generator
from xdplab.hosts.base import Host

OUTPUT_BACK = "xdpgen_back.jsonl"


class BothWays:
    """A session for each direction. What it returns is of both together."""

    def __init__(self, there: Generator, back: Generator) -> None:
        self._there, self._back = there, back

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
        there, back = self._there.start(), self._back.start()
        return replace(there, cpus=(*there.cpus, *back.cpus))

    def burst(self, name: str, seconds: float) -> Burst:
        """Send both ways for ``seconds``; the two begin within milliseconds of each other."""
        with ThreadPoolExecutor(1) as meanwhile:
            back = meanwhile.submit(self._back.burst, name, seconds)
            there = self._there.burst(name, seconds)
        return both(there, back.result())

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
