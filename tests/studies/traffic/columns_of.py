"""The row of a trial that was never measured: of a burst, facts and columns that a test gives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from xdplab.counters.readings import Readings
from xdplab.formats.generator import Burst
from xdplab.plan import FACTORS
from xdplab.run.columns import Column, ColumnValues
from xdplab.studies.traffic.columns import MEASURED
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.trial_facts import TrialFacts

POINT = {
    "mode": "native", "engine": "live", "arrangement": "shared", "two_ports": False, "ways": 1, "tx_bind": None,
    "timing": "load",
    "queues": 1, "passes": (), "frame_bytes": None,
}  # fmt: skip


def row_of(
    given: Mapping[str, Any] | None = None,
    *,
    burst: Burst | None = None,
    facts: TrialFacts | None = None,
    raw: Path | None = None,
    recorded: Mapping[str, int] | None = None,
    ports: Sequence[Mapping[str, Any]] | None = None,
    **point: Any,
) -> ColumnValues[TrialSource]:
    """Return the row; ``given`` has columns with their values, ``ports`` the counters of the DUT's ports.

    ``recorded`` are the files of the attempt in the journal.
    """
    source = TrialSource.__new__(TrialSource)
    program = SimpleNamespace(file=None, frames=None)
    place = SimpleNamespace(**(POINT | {"program": program} | point))
    known = {
        name: Column[TrialSource](name, "str", "factor", "", _constant(value)) for name, value in (given or {}).items()
    }
    vars(source).update(
        trial=SimpleNamespace(point=place),
        attempt=SimpleNamespace(status="measured", files=recorded or {}),
        facts=facts or TrialFacts(),
        raw=raw or Path("nowhere"),
        factors=dict.fromkeys(factor.column for factor in FACTORS),
        bursts={} if burst is None else {"rate": burst},
        readings=Readings({}, place.mode, place.arrangement == "shared"),
        _files={},
        row=ColumnValues({**MEASURED, **known}, source),
    )
    if ports is not None:
        vars(source)["ports"] = ports
    return source.row


def _constant(value: Any) -> Any:
    return lambda source: value
