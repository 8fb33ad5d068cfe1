"""The table of device settings, in the order of writing: later rows depend on earlier ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from xdplab.deploy.settings import CHANNELS, FEATURES, RINGS, STEERING, XPS, LinkSettings, Setting, Value
from xdplab.deploy.settings_nic import (
    FLOWS,
    Coalescing,
    Governor,
    HashFields,
    IrqAffinity,
    Napi,
    Pause,
    PrivateFlags,
    Rss,
)
from xdplab.errors import PlanError
from xdplab.formats.ethtool import HASH_FIELDS, spread

# A queue must exist before it gets an XPS mask, an interrupt or a share of the RSS table.
SETTINGS: tuple[Setting, ...] = (
    Governor(),
    LinkSettings(),
    CHANNELS,
    RINGS,
    FEATURES,
    PrivateFlags(),
    Napi(),
    Pause(),
    Coalescing(),
    Rss(),
    HashFields(),
    IrqAffinity(),
    XPS,
    *STEERING,
)
BY_PREFIX: dict[str, Setting] = {setting.prefix: setting for setting in SETTINGS}

# The names that a plan's `device:` may use. Queue counts, XPS masks and the link's state follow from other factors.
_ROWS = ("rings", "features", "coalesce", "pause", "napi", "rss", "hash", "flags")
_NAMES = ("link.mtu", "link.promisc")


def require_in_plans(device: Mapping[str, Value]) -> None:
    """Raise PlanError for a name that a plan may not set, and for a value that no device can have."""
    for name, value in device.items():
        if name.partition(".")[0] not in _ROWS and name not in _NAMES:
            names = ", ".join((*(f"{row}.NAME" for row in _ROWS), *_NAMES))
            raise PlanError(
                f"device: {name} is not a device setting of a plan",
                remedy=f"write {names}; `queues` sets the number of queues",
            )
        if remedy := _better(name, value):
            raise PlanError(f"device: {name}: {value} is not a possible value", remedy=remedy)


def _better(name: str, value: Value) -> str | None:
    """Return a remedy for a value that would never be read back as written; None for other values."""
    row, _, part = name.partition(".")
    words = str(value).split()
    if name == "rss.table":
        numbers = [int(word) for word in words[1:] if word.isdecimal()]
        form = spread(words[0], numbers) if words and len(numbers) == len(words) - 1 else None
        remedy = f"write `{form}`" if form else "write `equal QUEUES`, or `weight` and a number per queue"
        return None if form == value else remedy
    if name == "rss.hkey":
        wrong = not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2})+", str(value))
        return 'write it in quotes and in lower case, as `ethtool -x` prints it: "6d:5a:…"' if wrong else None
    if row == "hash":
        if part not in FLOWS:
            return f"the types of flows are {', '.join(FLOWS)}"
        letters = "".join(HASH_FIELDS.values())
        form = "".join(letter for letter in letters if letter in str(value))
        wrong = not form or form != value
        return f"write letters of `{letters}` in this order, such as `sd` or `sdfn`" if wrong else None
    return None
