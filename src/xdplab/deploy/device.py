"""Device state: saved before a run, set for a block, restored after it, also by another process after a crash."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any

from xdplab.deploy.settings import CHANNELS, FEATURES, Setting, Value, Values, not_understood, read, tool, write
from xdplab.deploy.settings_nic import BY_PREFIX, SETTINGS
from xdplab.deploy.watchdog import restore_script, script_path, unrestored_path
from xdplab.errors import HostError, PlanError, UnsupportedError
from xdplab.formats.ethtool import divided, spread
from xdplab.hosts import Host, Result, run_together

NAMES_TOLD = 8
"""How many setting names an error lists at most: a NIC has sixty features."""

OF_MACHINE = ("governor",)
"""Rows of the whole machine, which no run sets. They are compared when a host comes back, but never restored: meanwhile
`doctor --tune`, another lab's too, may have changed them."""

RSS_ENTRIES = (16, 4096)
"""The sizes that an RSS table may have: Linux drivers have 32 to 2048 entries."""


@dataclass(frozen=True)
class Snapshot:
    """The settings of one interface. ``unsupported`` has, per row, the tool's message on why there is no value, or what
    it printed that is not understood."""

    host: str
    interface: str
    identity: str
    values: Values
    unsupported: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """Read the result of `to_json`."""
        return cls(**data)

    def only(self, keys: Iterable[str]) -> Snapshot:
        """Return the snapshot of these settings alone."""
        return replace(self, values=_only(self.values, keys))

    def of_device(self) -> Snapshot:
        """Return the snapshot without the machine's own settings."""
        return self.only(key for key in self.values if key.partition(".")[0] not in OF_MACHINE)

    def with_queues(self, queues: int) -> Snapshot:
        """Return the snapshot of a device that has ``queues`` queues now.

        An RSS table that used all queues, or that needs more queues than there are, becomes one over all of these.
        """
        table = str(self.values.get("rss.table", "")).split()
        if not table:
            return self
        all_queues = self.values.get("channels.combined") or self.values.get("channels.rx")
        used = int(table[1]) if table[0] == "equal" else len(table) - 1
        if used <= queues and table != ["equal", str(all_queues)]:
            return self
        return replace(self, values=self.values | {"rss.table": f"equal {queues}"})


@dataclass(frozen=True)
class Applied:
    """The requested, former and current settings of an interface, by ``row.name``."""

    host: str
    interface: str
    requested: Values
    before: Values
    obtained: Values

    @property
    def differing(self) -> dict[str, tuple[Value, Value | None]]:
        """The requested and obtained value of every setting that the device changed (it often rounds ring sizes)."""
        pairs = {key: (value, self.obtained.get(key)) for key, value in self.requested.items()}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}

    def require(self, *, rounded: bool = False) -> Applied:
        """Return self, or raise UnsupportedError naming the first setting that is not as requested.

        ``rounded``: numbers may differ, and weights of queues as a table approximates them, but not switches and texts.
        """
        for key, (requested, obtained) in self.differing.items():
            if rounded and (type(requested) is type(obtained) is int or _rounded_weights(requested, obtained)):
                continue
            raise UnsupportedError(
                f"{self.host}: {self.interface}: {key} is {obtained} instead of the requested {requested}"
            )
        return self


def _rounded_weights(requested: Value, obtained: Value | None) -> bool:
    """Tell whether a table approximates the requested weights: ethtool's own division gives the obtained ones.

    The table's size is not among the values: a multiple of the obtained weights' sum.
    """
    weights = [str(value).split() for value in (requested, obtained)]
    if any(table[:1] != ["weight"] for table in weights):
        return False
    wanted, held = ([int(word) for word in table[1:]] for table in weights)
    sizes = range(sum(held), RSS_ENTRIES[1] + 1, sum(held))
    return any(spread("weight", divided(wanted, size)) == obtained for size in sizes if size >= RSS_ENTRIES[0])


def snapshot(host: Host, interface: str) -> Snapshot:
    """Read every setting. Raises HostError if the interface does not exist."""
    return _snapshot_in(host, interface, run_together(host, _snapshot_commands(interface)))


def _snapshot_commands(interface: str) -> list[list[str]]:
    return [*_identity_commands(interface), *(setting.question(interface) for setting in SETTINGS)]


def _snapshot_in(host: Host, interface: str, answers: Sequence[Result]) -> Snapshot:
    link, boot, *shown = answers
    values, unsupported = _values_and_refusals(SETTINGS, shown)
    return Snapshot(host.name, interface, _identity(link.require(), boot), values, unsupported)


def apply(host: Host, interface: str, wanted: Mapping[str, Value], before: Values | None = None) -> Applied:
    """Write the settings that differ, in the table's order, and read them back. ``before``: they were just read.

    Raises PlanError for an unknown setting and UnsupportedError for one that the device lacks, both before anything is
    changed; UnsupportedError with the tool's message if the device refuses a value.
    """
    rows = _rows(wanted)
    before = _read_all(rows, host, interface) if before is None else before
    _require_known(host, interface, wanted, before)
    written = [_write_differences(setting, host, interface, wanted, before) for setting in rows]
    obtained = _read_all(rows, host, interface) if any(written) else before
    return Applied(host.name, interface, dict(wanted), _only(before, wanted), _only(obtained, wanted))


def reread(host: Host, applied: Applied) -> Applied:
    """Return ``applied`` with the device's current values: attaching a program may have changed a setting."""
    obtained = _read_all(_rows(applied.requested), host, applied.interface)
    return replace(applied, obtained=_only(obtained, applied.requested))


def restore(host: Host, interface: str, remembered: Snapshot, now: Values | None = None) -> None:
    """Restore an interface in reverse order, and verify. Restoring twice is harmless.

    A second pass goes forward: for example, a queue's XPS mask can only return after the queue. Then features that the
    driver switched off by itself are requested again. At each step, the RSS table is written for the queues of that
    step: the kernel treats another table as the user's choice, and then refuses fewer queues. Features of a veth have
    no value while its other end has a program: that of a killed generator is awaited. ``now``: the values, if they were
    just read. Raises HostError naming the settings that still differ.
    """
    remembered = remembered.of_device()
    rows = _rows(remembered.values)
    now = _now(host, interface, remembered) if now is None else now
    for setting in (*reversed(rows), *rows):
        wanted = remembered.with_queues(_queues(now)) if setting.prefix == "rss" else remembered
        if _was_written(setting, host, interface, wanted.values, now):
            now = _now(host, interface, remembered)
    until = time.monotonic() + 3  # the kernel takes a dead process' program off under a lock that others hold
    while left := _differing(now, remembered):
        _was_written(FEATURES, host, interface, remembered.values, now)
        with contextlib.suppress(UnsupportedError, HostError):
            for command in FEATURES.ask_anew(host, interface):
                tool(host, command.argv)
        now = _now(host, interface, remembered)
        if time.monotonic() > until or None not in [value for value, _ in left.values()]:
            break
        time.sleep(0.1)
    if left := _differing(now, remembered):
        raise HostError(
            f"{host.name}: {interface} is not restored: {left}", remedy="set these by hand, or recreate the device"
        )


def _was_written(
    setting: Setting, host: Host, interface: str, wanted: Mapping[str, Value], now: Mapping[str, Value]
) -> bool:
    """Write what differs in one row, and tell whether the device may have changed, also where it refused a part."""
    try:
        return _write_differences(setting, host, interface, wanted, now)
    except (UnsupportedError, HostError):  # the caller verifies
        return True


def queues_now(host: Host, interface: str) -> int:
    """Return how many receive queues an interface has now; 1 if its driver has no channel setting."""
    try:
        return _queues(_keyed(CHANNELS, read(CHANNELS, host, interface)))
    except UnsupportedError:
        return 1


def _queues(values: Mapping[str, Value]) -> int:
    return int(values.get("channels.combined") or values.get("channels.rx") or 1)


@dataclass(frozen=True)
class Left:
    """The settings that differ from those before a dead run, and the errors that its watchdog got while restoring."""

    interface: str
    differing: dict[str, tuple[Value | None, Value]]
    messages: str

    @property
    def text(self) -> str:
        return f"{self.interface} is not as it was: {self.differing}; its host's watchdog was told: {self.messages}"


def left_by_the_dead(host: Host, interface: str, state_dir: str) -> Left | None:
    """Return the settings that a watchdog failed to restore; None if there are none."""
    messages = _read_messages(host, interface, state_dir)
    kept, now = _kept(host, interface, state_dir) if messages else (None, {})
    differing = {} if kept is None else _differing(now, kept.of_device())
    return Left(interface, differing, messages) if differing else None


def _read_messages(host: Host, interface: str, state_dir: str) -> str:
    output = host.run(["cat", unrestored_path(interface, state_dir)], check=False)
    return "; ".join(output.text.strip().splitlines()) if output.ok else ""


def settle(host: Host, interface: str, state_dir: str) -> None:
    """Restore the stored state, and keep it stored. Raises HostError naming the settings that still differ."""
    _settle(host, interface, state_dir, *_kept(host, interface, state_dir))
    host.run(["rm", "-f", unrestored_path(interface, state_dir)])


def _settle(host: Host, interface: str, state_dir: str, kept: Snapshot | None, now: Values) -> None:
    if kept is None:
        return
    try:
        restore(host, interface, kept, now)
    except HostError as error:
        if not (messages := _read_messages(host, interface, state_dir)):
            raise
        raise HostError(f"{error.message}; its host's watchdog was told: {messages}", remedy=error.remedy) from error


def remember(host: Host, interface: str, state_dir: str, *, if_kept: Callable[[], None] = lambda: None) -> Snapshot:
    """Return the interface's original state, kept in ``state_dir`` on the host until `restore_remembered`.

    A state stored by an earlier run wins over the interface's current state: that run may have died halfway.
    ``if_kept`` is called then.
    """
    unrestored, path = unrestored_path(interface, state_dir), _path(interface, state_dir)
    stored, messages, *answers = run_together(
        host, [["cat", path], ["cat", unrestored], *_snapshot_commands(interface)]
    )
    taken = _snapshot_in(host, interface, answers)
    if (kept := _kept_in(stored, interface, taken.identity)) is not None:
        if_kept()
        machine = taken.only(key for key in taken.values if key.partition(".")[0] in OF_MACHINE)
        return replace(kept, values=kept.of_device().values | machine.values)
    if messages.ok:  # they belong to the device of another boot
        host.run(["rm", "-f", unrestored])
    script = restore_script(interface, taken.identity, taken.of_device().values, SETTINGS)
    host.put(script.encode(), script_path(interface, state_dir))
    host.put(json.dumps(taken.to_json(), indent=1).encode(), path)
    return taken


def restore_remembered(host: Host, interface: str, state_dir: str) -> Snapshot | None:
    """Restore the state that `remember` stored, verify, and delete it; None if nothing is stored. Repeating it is
    harmless. Raises HostError if the device does not return to its state: the snapshot then stays for another try.
    """
    kept, now = _kept(host, interface, state_dir)
    _settle(host, interface, state_dir, kept, now)
    paths = (path(interface, state_dir) for path in (_path, script_path, unrestored_path))
    host.run(["rm", "-f", *paths])
    return kept


def _kept(host: Host, interface: str, state_dir: str) -> tuple[Snapshot | None, Values]:
    """Return the stored snapshot, unless it belongs to another boot or to a former device of that name, and the current
    values; none without a snapshot."""
    commands = [["cat", _path(interface, state_dir)], *_snapshot_commands(interface)]
    stored, link, boot, *shown = run_together(host, commands)
    kept = _kept_in(stored, interface, _identity(link, boot) if link.ok else None)
    return kept, {} if kept is None else _values_and_refusals(SETTINGS, shown)[0]


def _kept_in(stored: Result, interface: str, identity: str | None) -> Snapshot | None:
    if not stored.ok:
        return None
    try:
        kept = Snapshot.from_json(json.loads(stored.text))
    except (ValueError, TypeError) as error:
        path = stored.argv[-1]
        raise HostError(
            f"{stored.host}: {path}, the state of {interface} before a run, cannot be read: {error}",
            remedy=f"set {interface} as it should be (a reboot does), then remove the file there: `rm {path}`",
        ) from None
    return kept if kept.identity == identity else None


def _path(interface: str, state_dir: str) -> str:
    return str(PurePosixPath(state_dir) / f"device-{interface}.json")


def _identity_commands(interface: str) -> tuple[list[str], list[str]]:
    """Return the commands whose results `_identity` takes."""
    return ["ip", "-j", "link", "show", "dev", interface], ["cat", "/proc/sys/kernel/random/boot_id"]


def _identity(link: Result, boot: Result) -> str:
    """Return boot, index and MAC: a recreated device of the same name has different ones."""
    shown = link.row("ifindex")
    return f"{boot.require().text.strip()} {shown['ifindex']} {shown.get('address')}"


def _rows(wanted: Iterable[str]) -> tuple[Setting, ...]:
    prefixes = {key.partition(".")[0] for key in wanted}
    if unknown := sorted(prefixes - BY_PREFIX.keys()):
        raise PlanError(f"unknown device setting {unknown[0]!r}", remedy=f"settings are {', '.join(BY_PREFIX)}")
    return tuple(setting for setting in SETTINGS if setting.prefix in prefixes)


def _keyed(setting: Setting, values: Values) -> Values:
    return {f"{setting.prefix}.{name}": value for name, value in values.items()}


def _read_all(rows: Sequence[Setting], host: Host, interface: str) -> Values:
    """Return the values of all rows. Raises UnsupportedError for a row that the device lacks."""
    shown = run_together(host, [setting.question(interface) for setting in rows])
    values = (_keyed(setting, setting.values_in(answer)) for setting, answer in zip(rows, shown, strict=True))
    return {key: value for row in values for key, value in row.items()}


def _now(host: Host, interface: str, remembered: Snapshot) -> Values:
    """Return the current values of the rows that a device had; a row may be gone until a later one is restored."""
    rows = _rows(remembered.values)
    return _values_and_refusals(rows, run_together(host, [setting.question(interface) for setting in rows]))[0]


def _values_and_refusals(rows: Iterable[Setting], shown: Iterable[Result]) -> tuple[Values, dict[str, str]]:
    """Return the values of all rows, and for each row without any the tool's message on why."""
    values: Values = {}
    unsupported: dict[str, str] = {}
    for setting, answer in zip(rows, shown, strict=True):
        try:
            values |= _keyed(setting, setting.values_in(answer))
        except UnsupportedError as error:
            unsupported[setting.prefix] = error.message
        if strange := not_understood(setting, answer):
            unsupported[setting.prefix] = strange
    return values, unsupported


def _write_differences(
    setting: Setting, host: Host, interface: str, wanted: Mapping[str, Value], current: Mapping[str, Value]
) -> bool:
    """Write those values of one row that differ from the wanted ones, and return whether there were any."""
    of_row = {key: value for key, value in wanted.items() if key.partition(".")[0] == setting.prefix}
    changes = {key.partition(".")[2]: value for key, value in of_row.items() if current.get(key) != value}
    if changes:
        write(setting, host, interface, changes)
    return bool(changes)


def _differing(now: Mapping[str, Value], remembered: Snapshot) -> dict[str, tuple[Value | None, Value]]:
    """Return the current and the stored value of every setting that differs."""
    return {key: (now.get(key), was) for key, was in remembered.values.items() if now.get(key) != was}


def _require_known(host: Host, interface: str, wanted: Iterable[str], present: Mapping[str, Value]) -> None:
    for key in wanted:
        # The same call may change which queues exist, so the kernel itself checks their masks.
        if key not in present and not key.startswith("xps."):
            of_row = [name for name in present if name.partition(".")[0] == key.partition(".")[0]]
            nearest = set(get_close_matches(key, of_row, n=NAMES_TOLD, cutoff=0.0))
            names = ", ".join(name for name in of_row if name in nearest)
            more = f" and {len(of_row) - NAMES_TOLD} more" if len(of_row) > NAMES_TOLD else ""
            row = BY_PREFIX[key.partition(".")[0]]
            strange = not_understood(row, host.run(row.question(interface), check=False))
            raise UnsupportedError(
                f"{host.name}: {interface} has no setting {key}{f' ({strange})' if strange else ''}",
                remedy=f"it has {names or 'none'}{more}",
            )


def _only(values: Mapping[str, Value], keys: Iterable[str]) -> Values:
    return {key: values[key] for key in keys if key in values}
