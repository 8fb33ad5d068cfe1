"""A value that changes from one run to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangeOverTime:
    """A value that is another one from ``run`` on than up to ``before``. ``otherwise``: what else differs between them.

    ``share`` of the old value; null where that is 0. ``low`` and ``high``: its 95 % interval, of a measured value; null
    for a count, which is exact.
    """

    metric: str
    point: str
    place: str | None
    old: float
    new: float
    share: float | None
    low: float | None
    high: float | None
    before: str
    run: str
    before_path: str
    path: str
    otherwise: tuple[str, ...]

    @property
    def size(self) -> str:
        if self.share is not None and self.low is not None and self.high is not None:
            return f"{self.share:+.1%} [{self.low:+.1%}, {self.high:+.1%}]"
        return f"{self.old:,.10g} → {self.new:,.10g} ({self.new - self.old:+,.10g})"

    @property
    def around(self) -> str:
        return "; ".join(self.otherwise) or "program, kernel, xdplab and window are the same"

    @property
    def text(self) -> str:
        return f"Changed: {self.metric} of {self.point}: {self.size} from {self.before} to {self.run}; {self.around}"
