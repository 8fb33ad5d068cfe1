"""What a probe says: an answer for each thing that was tried, and what the port's counters made of known bursts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STRAYS = 10
"""Frames of others that may come with a burst."""
Tried = Literal["works", "fails", "refused", "not tried"]


@dataclass(frozen=True)
class ProbeAnswer:
    """One thing that was tried; it ``fails`` if nothing refused it, and yet it does not work.

    ``words``: those of the kernel that refused it, or why it was not tried. ``found``: what came of it. ``announced``:
    what netlink or ethtool says of it; null if they say nothing. ``disagrees``: what was announced is not what came.
    """

    topic: str
    question: str
    tried: str
    result: Tried
    found: str | None = None
    words: str | None = None
    announced: str | None = None
    disagrees: bool = False


@dataclass(frozen=True)
class ProbedBurst:
    """A burst of ``sent`` frames for which the program decided ``action``; it saw ``seen`` of them itself.

    ``returned``: frames that the TG received. ``rose``: each counter that rose, those of `ethtool -S` by name, those of
    the link as ``link.rx.packets``; ``exact``: those that rose by exactly ``seen``.
    """

    mode: str
    action: str
    sent: int
    seen: int
    returned: int
    rose: dict[str, int]
    exact: list[str]


@dataclass(frozen=True)
class ProbedRow:
    """What the table of drivers says of a burst: ``counters`` are to count ``due`` frames, and counted ``counted``.

    ``kind``: frames that were ``received``, ``sent`` back, or those of the action.
    """

    kind: str
    action: str
    counters: list[str]
    due: int
    counted: int

    @property
    def disagrees(self) -> bool:
        """Frames of others may come meanwhile, but no counter misses one."""
        return not self.due <= self.counted <= self.due + STRAYS

    @property
    def text(self) -> str:
        return (
            f"{', '.join(self.counters)} ({self.kind}) counted {self.counted:,} of {self.due:,} frames, {self.action}"
        )


@dataclass(frozen=True)
class ProbedPort:
    """A port, and all answers. ``port``: the lab, or the interface; null, as ``bus``, in what is published.

    ``virtual``: whether the lab is; null of an interface alone. ``in_table``: whether the table of drivers has a row
    for it. ``date``: ISO 8601 with the zone.
    """

    port: str | None
    virtual: bool | None
    driver: str
    firmware: str
    bus: str | None
    kernel: str
    date: str
    answers: list[ProbeAnswer]
    bursts: list[ProbedBurst]
    in_table: bool
    table: list[ProbedRow]

    @property
    def disagreements(self) -> list[str]:
        """Return a line for each answer that is not as announced, and for each count that is not as in the table."""
        return [
            *(f"{a.topic} {a.question}: {a.result}; announced is {a.announced}" for a in self.answers if a.disagrees),
            *(row.text for row in self.table if row.disagrees),
        ]

    @property
    def card(self) -> str:
        return f"{self.driver}{' (virtual)' if self.virtual else ''}, Linux {self.kernel}"
