"""The table of device settings. Its order is the order of writing: what later rows need comes first."""

from __future__ import annotations

from xdplab.deploy.settings import CHANNELS, RINGS, Features, LinkSettings, Setting, Xps
from xdplab.deploy.settings_nic import Coalescing, Governor, IrqAffinity, Napi, Pause, Rss

# A queue must exist before it gets an XPS mask, an interrupt or a share of the RSS table.
SETTINGS: tuple[Setting, ...] = (
    Governor(),
    LinkSettings(),
    CHANNELS,
    RINGS,
    Features(),
    Napi(),
    Pause(),
    Coalescing(),
    Rss(),
    IrqAffinity(),
    Xps(),
)
BY_PREFIX: dict[str, Setting] = {setting.prefix: setting for setting in SETTINGS}
