"""What one engine of a generator can do, known before it starts: what it cannot do is `unsupported`, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdplab.errors import UnsupportedError
from xdplab.generators.settings import GeneratorSettings

MOONGEN, TESTPMD = ("moongen", "moongen-hw"), ("testpmd",)
BY_DPDK = (*MOONGEN, *TESTPMD)
"""Engines whose generator is a DPDK program: it polls the TG's port, and no program of the kernel's is there."""


def least_frame_bytes(settings: GeneratorSettings) -> int:
    """Return the smallest test frame with these headers, FCS included (native/common/payload.h)."""
    if settings.frames.ip_version == 6:
        return 88
    return 64 if settings.frames.vlan is None else 72


Wanted = Callable[[GeneratorSettings], bool]
WANTED: tuple[tuple[str, Wanted, str], ...] = (
    ("vlan", lambda settings: settings.frames.vlan is not None, "sends no VLAN tag"),
    ("two ports", lambda settings: settings.receive_on is not None, "receives on the port it sends on only"),
    ("imix", lambda settings: bool(settings.frames.imix), "sends frames of one size only, no IMIX"),
    ("pace", lambda settings: settings.rate_pps is not None, "sends as fast as possible only"),
    ("stamp", lambda settings: settings.frames.stamp != "none", "does not stamp frames"),
    ("pieces", lambda settings: settings.xdpgen.alone is not None, "has no piece that works alone"),
    ("file", lambda settings: settings.frames.file is not None, "does not send the frames of a file"),
)
"""What some engines cannot do: its name, whether settings ask for it, and what to say of an engine that cannot.

``pieces``: sender and receiver can be measured without a link.
"""


@dataclass(frozen=True)
class Capabilities:
    """One engine. ``frame_bytes`` are the smallest and the largest frame, FCS included.

    ``batches``: frames handed over at once at a paced load, where a small batch keeps the pace, and at the largest.
    ``queue_per_cpu``: a CPU reaches one queue only (its number modulo the queues), so that queues need CPUs.
    ``can``: the names of what it can do of `WANTED`. ``addresses``: those of its frames, by setting, if it has no
    others.
    """

    generator: str
    engine: str
    frame_bytes: tuple[int, int]
    max_queues: int
    max_flows: int
    batches: tuple[int, int]
    queue_per_cpu: bool
    can: frozenset[str] = frozenset()
    ip_versions: tuple[int, ...] = (4,)
    addresses: Mapping[str, Any] = field(default_factory=dict)

    def batch(self, *, paced: bool) -> int:
        """Return the batch of a plan that asks for none: the same at every paced rate, so that no curve has a step."""
        return self.batches[0 if paced else 1]

    def queues_reached(self, queues: int, cpus: Sequence[int]) -> int:
        """Return how many of ``queues`` get traffic from senders on ``cpus``."""
        return len({cpu % queues for cpu in cpus}) if self.queue_per_cpu else queues

    def refusal(self, settings: GeneratorSettings) -> str | None:
        """Return why these settings are impossible, or None."""
        smallest, largest = max(self.frame_bytes[0], least_frame_bytes(settings)), self.frame_bytes[1]
        frames, flows = settings.frames, settings.addresses.flows
        reached = self.queues_reached(settings.queues, settings.cpus)
        checks = (
            *((name in self.can or not wanted(settings), reason) for name, wanted, reason in WANTED),
            (frames.ip_version in self.ip_versions, f"sends no IPv{frames.ip_version}"),
            (smallest <= min(frames.sizes), f"sends frames of {smallest} to {largest} bytes"),
            (max(frames.sizes) <= largest, f"sends frames of {smallest} to {largest} bytes"),
            (1 <= settings.queues <= self.max_queues, f"reaches at most {self.max_queues} queues"),
            (1 <= flows <= self.max_flows, f"sends at most {self.max_flows} flows"),
            (not settings.cpus or reached == settings.queues, f"reaches {reached} queues from CPUs {settings.cpus}"),
            (not self._others(settings), f"has addresses of its own: write `{self.own_addresses}`"),
        )
        return next((reason for possible, reason in checks if not possible), None)

    @property
    def own_addresses(self) -> str:
        """Return what a plan's ``traffic`` has to say for the addresses of this engine's frames."""
        return ", ".join(f"{name}: {value}" for name, value in self.addresses.items())

    def _others(self, settings: GeneratorSettings) -> list[str]:
        return [name for name, default in self.addresses.items() if getattr(settings.addresses, name) != default]

    def require(self, settings: GeneratorSettings) -> None:
        """Raise UnsupportedError naming generator, engine and limit where these settings are impossible."""
        if reason := self.refusal(settings):
            raise UnsupportedError(f"{self.generator}, engine {self.engine}: {reason}")
