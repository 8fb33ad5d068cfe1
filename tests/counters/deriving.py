"""The values that files of counters give, for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xdplab.counters import Counters, Readings, counted


def readings_of(
    *files: Mapping[str, bytes],
    mode: str = "native",
    shared: bool = False,
    dut_cpus: Collection[int] | None = None,
    working: Collection[int] = (),
    queues: int | None = None,
) -> Readings:
    """Return the readings of ``files``: before, after, recorded."""
    merged = {name: data for mapping in files for name, data in mapping.items()}
    return Readings(merged, mode, shared, {} if dut_cpus is None else {"dut": dut_cpus}, working, queues)


def derive(*files: Mapping[str, bytes], **how: object) -> Counters:
    return counted(readings_of(*files, **how))  # type: ignore[arg-type]
