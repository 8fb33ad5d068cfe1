"""`sadf -j`: sar's record of CPU use (`-u ALL -P ALL`) and network rates (`-n DEV`), one sample an interval."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import (
    as_list,
    as_object,
    count_field,
    count_of,
    json_of,
    number_field,
    optional_number,
    refuse,
    text_field,
)

TOOL = "sadf"


@dataclass(frozen=True)
class CpuLoad:
    """Shares of one CPU in percent; ``cpu`` is its number, None for all together.

    ``soft`` (softirqs) is None if sar ran without `-u ALL`.
    """

    cpu: int | None
    idle: float
    iowait: float
    soft: float | None

    @property
    def busy(self) -> float:
        """Percent of the time spent working; includes steal, but not waiting for a disk."""
        return 100.0 - self.idle - self.iowait


@dataclass(frozen=True)
class InterfaceRate:
    """Rates of one interface: packets and 1000-byte kilobytes per second."""

    interface: str
    rx_pps: float
    tx_pps: float
    rx_kbytes_per_s: float
    tx_kbytes_per_s: float


@dataclass(frozen=True)
class SarSample:
    """One interval of ``interval_s`` whole seconds that ended at ``ended_at`` (date and time as sadf wrote them)."""

    ended_at: str
    interval_s: int
    cpus: tuple[CpuLoad, ...]
    interfaces: tuple[InterfaceRate, ...]


def parse_sadf(data: bytes | str) -> tuple[SarSample, ...]:
    """Return the samples of `sadf -j FILE -- -u ALL -P ALL -n DEV`; none if sar ended before its first interval.

    Raises FormatError on anything else.
    """
    root = as_object(json_of(data, TOOL), TOOL)
    hosts = as_list(as_object(root.get("sysstat"), TOOL).get("hosts"), TOOL)
    if len(hosts) != 1:
        refuse(TOOL, f"{len(hosts)} hosts instead of one")
    return tuple(_sample(as_object(item, TOOL)) for item in as_list(as_object(hosts[0], TOOL).get("statistics"), TOOL))


def _sample(fields: dict[str, object]) -> SarSample:
    stamp = as_object(fields.get("timestamp"), TOOL)
    network = as_object(fields.get("network", {}), TOOL)
    return SarSample(
        ended_at=f"{text_field(stamp, 'date', TOOL)} {text_field(stamp, 'time', TOOL)}",
        interval_s=count_field(stamp, "interval", TOOL),
        cpus=tuple(_cpu(as_object(item, TOOL)) for item in as_list(fields.get("cpu-load", []), TOOL)),
        interfaces=tuple(_interface(as_object(item, TOOL)) for item in as_list(network.get("net-dev", []), TOOL)),
    )


def _cpu(fields: dict[str, object]) -> CpuLoad:
    name = text_field(fields, "cpu", TOOL)
    return CpuLoad(
        cpu=None if name == "all" else count_of(name, TOOL),
        idle=number_field(fields, "idle", TOOL),
        iowait=number_field(fields, "iowait", TOOL),
        soft=optional_number(fields.get("soft")),
    )


def _interface(fields: dict[str, object]) -> InterfaceRate:
    return InterfaceRate(
        interface=text_field(fields, "iface", TOOL),
        rx_pps=number_field(fields, "rxpck", TOOL),
        tx_pps=number_field(fields, "txpck", TOOL),
        rx_kbytes_per_s=number_field(fields, "rxkB", TOOL),
        tx_kbytes_per_s=number_field(fields, "txkB", TOOL),
    )
