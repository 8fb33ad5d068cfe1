"""Axes of a printed page whose ticks are copies of the first one: matplotlib builds five shapes for each of thousands.

What is drawn stays the same to the byte. Only pages use them, whose axes nobody changes once they are drawn: a box
round the first label, say, would be copied, too.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick, XAxis, YAxis


class _Alike(Axis):
    """An axis whose ticks are copies of its first one, which takes a fiftieth of building them."""

    def _get_tick(self, major: bool) -> Any:
        made = vars(self).get("majorTicks" if major else "minorTicks")
        return _twin(made[0]) if made else super()._get_tick(major)  # type: ignore[misc]

    def _copy_tick_props(self, src: Tick, dest: Tick) -> None:
        """Do nothing: a copy has them."""


def _twin(tick: Any) -> Any:
    twin = copy(tick)
    twin.axes = tick.axes  # to which it says when it has changed
    for name in ("tick1line", "tick2line", "gridline", "label1", "label2"):
        setattr(twin, name, copy(getattr(tick, name)))
    for label in (twin.label1, twin.label2):
        label.set_fontproperties(label.get_fontproperties().copy())
    return twin


class _AlikeX(_Alike, XAxis):
    pass


class _AlikeY(_Alike, YAxis):
    pass


class Panel(Axes):
    """Axes with such ticks."""

    def _init_axis(self) -> None:
        super()._init_axis()  # type: ignore[misc]
        self.xaxis.__class__, self.yaxis.__class__ = _AlikeX, _AlikeY
