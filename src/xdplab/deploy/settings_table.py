"""The table of device settings, in the order of writing: later rows depend on earlier ones."""

from __future__ import annotations

from collections.abc import Iterable

from xdplab.deploy.settings import CHANNELS, FEATURES, RINGS, LinkSettings, Setting, Xps
from xdplab.deploy.settings_nic import Coalescing, Governor, IrqAffinity, Napi, Pause, Rss
from xdplab.errors import PlanError

# A queue must exist before it gets an XPS mask, an interrupt or a share of the RSS table.
SETTINGS: tuple[Setting, ...] = (
    Governor(),
    LinkSettings(),
    CHANNELS,
    RINGS,
    FEATURES,
    Napi(),
    Pause(),
    Coalescing(),
    Rss(),
    IrqAffinity(),
    Xps(),
)
BY_PREFIX: dict[str, Setting] = {setting.prefix: setting for setting in SETTINGS}

# The names that a plan's `device:` may use. Queue counts, XPS masks and the link's state follow from other factors.
IN_PLANS = ("rings.", "features.", "coalesce.", "pause.", "napi.", "link.mtu", "link.promisc")


def require_in_plans(names: Iterable[str]) -> None:
    """Raise PlanError for a name that no plan may set on any device."""
    for name in names:
        if not name.startswith(IN_PLANS):
            known = ", ".join(f"{each}NAME" if each.endswith(".") else each for each in IN_PLANS)
            raise PlanError(
                f"device: {name} is not a device setting of a plan",
                remedy=f"write {known}; `queues` sets the number of queues",
            )
