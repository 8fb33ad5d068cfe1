"""Queue counts of the DUT and the TG, changed in the order that a veth pair with XDP attached allows.

While an end carries XDP its receive queues must not be fewer than the peer's transmit queues (the kernel answers
EINVAL). So transmit queues shrink first, then receive queues change, then transmit queues grow. This is valid at every
step for both ends, and harmless if the two are separate cards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from xdplab.deploy.device import Applied
from xdplab.deploy.settings import CHANNELS, Counted, Values, write
from xdplab.errors import UnsupportedError
from xdplab.formats.ethtool import Channels, MaxAndCurrent, most_queues
from xdplab.hosts import Host

E = TypeVar("E")
T = TypeVar("T")
LINK_S, LOOK_S = 10.0, 0.1
_Step = Callable[[str, int, int], bool]
"""Whether the step changes a count of this name from the second to the third argument."""

_STEPS: tuple[_Step, ...] = (
    lambda name, was, will: name == "tx" and will < was,
    lambda name, was, will: name != "tx",
    lambda name, was, will: name == "tx" and will > was,
)


@dataclass(frozen=True)
class Endpoint:
    """One end of the lab's link."""

    host: Host
    interface: str

    def await_link(self) -> None:
        """Wait for a link, `LINK_S` at most: some cards are reset as a program is attached or a setting changes.

        Where none comes, what is sent next does not arrive, and says so.
        """
        until = time.monotonic() + LINK_S
        while self.host.run(["cat", f"/sys/class/net/{self.interface}/carrier"], check=False).text.strip() != "1":
            if time.monotonic() > until:
                return
            time.sleep(LOOK_S)

    def channels(self) -> tuple[Counted, Counted]:
        """Return the current channel counts and their maximums; both empty if the driver has none to set."""
        try:
            return CHANNELS.read_both(self.host, self.interface)
        except UnsupportedError:
            return {}, {}


def of_each(ends: Iterable[E], ask: Callable[[E], T]) -> list[T]:
    """Ask all ends at the same time, for a command of each takes as long as one; return the answers in their order."""
    with ThreadPoolExecutor() as meanwhile:
        return list(meanwhile.map(ask, ends))


def queue_limit(end: Endpoint) -> int:
    """Return how many queues an interface can have each way; 1 if its driver has no channel setting."""
    return _limit(*end.channels())


def set_queues(dut: Endpoint, tg: Endpoint | None, queues: int) -> tuple[Applied, ...]:
    """Give both ends ``queues`` queues each way and return what was requested and obtained, DUT first.

    ``tg`` is null if the kernel does not have it: under DPDK the generator makes its own queues.

    Raises UnsupportedError naming the end that cannot, before anything is changed, or with ethtool's words.
    XPS masks of added queues are empty.
    """
    ends = (dut,) if tg is None else (dut, tg)
    before, wanted = zip(*of_each(ends, lambda end: _plan(end, queues)), strict=True)
    rows = [*zip(ends, before, wanted, strict=True)]
    for step in _STEPS:
        of_each(rows, partial(_take_step, step))
    return tuple(one.require() for one in of_each(rows, lambda row: _applied(*row)))


def _take_step(step: _Step, row: tuple[Endpoint, Counted, Counted]) -> None:
    end, was, will = row
    change: Values = {name: n for name, n in will.items() if n != was.get(name) and step(name, was.get(name, 0), n)}
    if change:
        _write(end, was, {**will} if "combined" in will else change)


def _write(end: Endpoint, was: Counted, change: Values) -> None:
    """Raise UnsupportedError if the driver cannot change its queues (vmxnet3), or not to this number."""
    try:
        write(CHANNELS, end.host, end.interface, change)
    except UnsupportedError as error:
        has = was.get("combined") or min(filter(None, was.values()), default=None)
        raise UnsupportedError(error.message, remedy=f"{end.interface} has queues: {has}" if has else None) from error


def _plan(end: Endpoint, queues: int) -> tuple[Counted, Counted]:
    """Return the current and the wanted counts of an end."""
    current, limits = end.channels()
    most = _limit(current, limits)
    if not 1 <= queues <= most:
        raise UnsupportedError(f"{end.host.name}: {end.interface} can have 1 to {most} queues, not {queues}")
    if limits.get("combined"):  # beside separate ones, drivers refuse combined queues (bnxt_en) or add them (ice)
        return current, {"combined": queues} | {name: 0 for name in ("rx", "tx") if current.get(name)}
    names = [name for name in ("rx", "tx") if limits.get(name)] or [name for name in current if current[name]]
    return current, dict.fromkeys(names, queues)


def _limit(current: Counted, limits: Counted) -> int:
    maximum, now = (Channels(n.get("rx"), n.get("tx"), n.get("combined")) for n in (limits, current))
    return most_queues(MaxAndCurrent(maximum, now))


def _applied(end: Endpoint, before: Counted, wanted: Counted) -> Applied:
    requested, was, obtained = (_keyed(values, wanted) for values in (wanted, before, end.channels()[0]))
    return Applied(end.host.name, end.interface, requested, was, obtained)


def _keyed(values: Counted, names: Iterable[str]) -> Values:
    return {f"channels.{name}": values[name] for name in names if name in values}
