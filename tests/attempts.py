"""Attempts as a run's journal has them."""

from typing import Any

from xdplab.run.state import Attempt, Status


def attempt_of(
    trial_id: str, number: int = 1, *, status: Status = "measured", reason: str | None = None, took_s: float = 1.0,
    wall_s: float | None = None, facts: dict[str, Any] | None = None, files: dict[str, int] | None = None
) -> Attempt:  # fmt: skip
    """Return a finished attempt; ``wall_s`` is ``took_s`` by default."""
    return Attempt(
        trial_id, number, status, reason, took_s, took_s if wall_s is None else wall_s, facts or {}, files or {}
    )
