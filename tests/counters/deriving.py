"""The values that files of counters give, for tests."""

import json
from collections.abc import Collection, Mapping

from xdplab.counters.columns import Counters, counted
from xdplab.counters.readings import Readings


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


def link(rx: int, tx: int) -> bytes:
    """Return what `ip -s -j link` says of an interface with these packets."""
    none = {"bytes": 0, "errors": 0, "dropped": 0}
    stats = {"rx": {"packets": rx, **none}, "tx": {"packets": tx, **none}}
    return json.dumps([{"ifname": "eth1", "stats64": stats, "xdp": {"attached": []}}]).encode()


def derive(*files: Mapping[str, bytes], **how: object) -> Counters:
    return counted(readings_of(*files, **how))  # type: ignore[arg-type]
