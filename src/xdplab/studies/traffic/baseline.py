"""A baseline file: the part of a run that a comparison needs, small enough for a repository: a regression gate in
CI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.decide.compare import POINT, decide, same_points
from xdplab.errors import ResultsError
from xdplab.run.disk import replacing
from xdplab.studies.comparing import ComparedRuns, check_metric, differences
from xdplab.studies.kind import Run
from xdplab.studies.traffic.calibrating import calibrated, usable
from xdplab.studies.traffic.columns import trials_frame
from xdplab.studies.traffic.comparison import changed_files

VERSION = 1
_NEEDED = ("run_id", "point_id", "trial_id", "attempt", "repetition", "verdict", "program_hash")


def save(run: Run[Any], metric: str, path: Path, *, equal: Sequence[Run[Any]] = ()) -> None:
    """Write the baseline of ``run`` for ``metric``; two or more ``equal`` runs say how equal runs spread."""
    if len(equal) == 1:
        raise ResultsError("one equal run has no spread", remedy="give --equal twice or more, or leave it out")
    tables = [one.rows() for one in (run, *equal)]
    for one, table in zip((run, *equal), tables, strict=True):
        check_metric(table, metric, one.directory)
    kept = [_kept(table, metric) for table in tables]
    data = {
        "xdplab_baseline": VERSION, "run": run.directory.name, "metric": metric, "around": run.around(),
        "trials": kept[0], "equal": kept[1:],
    }  # fmt: skip
    with replacing(path, "free some space, or name another file") as scratch:
        scratch.write_text(json.dumps(data, indent=1) + "\n")


def _kept(table: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    names = list(dict.fromkeys([*_NEEDED, *POINT, metric]))
    rows: list[dict[str, Any]] = json.loads(table[names].to_json(orient="records", double_precision=15))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def against(path: Path, run: Run[Any], *, margin: float = MARGIN) -> ComparedRuns:
    """Compare ``run`` to the baseline in ``path``, by the metric that it was saved for. Raises ResultsError."""
    try:
        data = json.loads(path.read_text())
        version = data["xdplab_baseline"]
        first, equal = trials_frame(data["trials"]), [trials_frame(rows) for rows in data["equal"]]
        name, metric, before = str(data["run"]), str(data["metric"]), dict(data["around"])
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}", remedy="`compare RUN --save-baseline FILE` makes one") from None
    except (ValueError, KeyError, TypeError):
        raise ResultsError(f"{path} is not a baseline", remedy="`compare RUN --save-baseline FILE` makes one") from None
    if version != VERSION:
        raise ResultsError(f"{path} is a baseline of version {version}", remedy=f"save it again, as version {VERSION}")
    second = run.rows()
    check_metric(second, metric, run.directory)
    now = run.around()
    kept = calibrated(before, now) if usable(metric, equal) else None
    first, second = same_points(first, second)
    decision = decide(first, second, metric, equal=equal or kept or (), margin=margin)
    names = (f"{name} (baseline)", run.directory.name)
    doubts = dict.fromkeys(names, ()) | {
        names[1]: tuple(f"{one.rule}: {one.what}" for one in run.findings() if one.severity == "warning")
    }
    unlike = (*changed_files(first, second, None, run.directory), *differences(before, now))
    return ComparedRuns(metric, names, unlike, doubts, decision)
