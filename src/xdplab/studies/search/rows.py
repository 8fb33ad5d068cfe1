"""A search's table: one row per attempt that ended, from the journal alone."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from math import nan
from typing import Any

import pandas as pd

from xdplab.analysis.intervals import t_quantile
from xdplab.analysis.sentences import Estimate, estimate, sentence, span
from xdplab.plan import Trial
from xdplab.plan.factors import changed
from xdplab.run.frames import NULL_REASONS
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of, facts_of
from xdplab.studies.meaning import supported
from xdplab.studies.search.rfc2544 import Rfc2544
from xdplab.studies.search.study import PointSearch, SearchFacts
from xdplab.studies.trial_facts import device_columns

COLUMNS = (
    *("ndr_pps", "ndr_upper_pps", "pdr_pps", "pdr_upper_pps"),
    *("mrr_pps", "mrr_low_pps", "mrr_high_pps", "mrr_offered_pps", "mrr_loss_ratio"),
    *("generator_pps", "livelock", "limited_by", "ndr_limited_by"),
)
TABLE = "searches.parquet"


def row_of(trial: Trial, attempt: Attempt) -> dict[str, Any]:
    """Return one attempt's row; rates in frames per second, latencies in ns, null if nothing was found."""
    facts = facts_of(SearchFacts, attempt)
    search = facts.search
    flat: dict[str, Any] = {}
    if search is not None:
        flat = vars(search) | {"ndr_pps": search.ndr.lower_pps, "ndr_upper_pps": search.ndr.upper_pps}
        flat |= {"pdr_pps": search.pdr.lower_pps, "pdr_upper_pps": search.pdr.upper_pps}
    return {
        "trial_id": trial.trial_id,
        "pdr_key": trial.point.pdr_key,
        **trial.point.factors(),
        **device_columns(facts.device),
        "repetition": trial.repetition,
        "lab": facts.lab,
        **{name: flat.get(name) for name in COLUMNS},
        **(_latencies(search) if search else {}),
        **(_rfc2544(search.rfc2544) if search and search.rfc2544 else {}),
        "accesses_at_share": search.accesses.enough if search and search.accesses else None,
        "status": attempt.status,
        "reason": attempt.reason,
        NULL_REASONS.name: json.dumps(_reasons(search, flat, attempt.reason), sort_keys=True),
    }


def _reasons(search: PointSearch | None, values: Mapping[str, Any], why: str | None) -> dict[str, str]:
    """Return why columns are null, and the tests of RFC 2544 that have none, by their names."""
    if search is None:
        return dict.fromkeys(COLUMNS, str(why))
    reasons = {name: "the search found none" for name in COLUMNS if values.get(name) is None}
    reasons |= {"latency": search.latency_missing} if search.latency_missing else {}
    reasons |= {name: "too few stamped frames" for name, value in _latencies(search).items() if value is None}
    return reasons | (search.rfc2544.missing if search.rfc2544 else {})


def _latencies(search: PointSearch) -> dict[str, Any]:
    return {
        f"latency_{100 * at.pdr_share:.0f}pdr_{quantile}": getattr(at, quantile)
        for at in search.latency or ()
        for quantile in ("p50_ns", "p99_ns", "max_ns")
    }


def _rfc2544(tests: Rfc2544) -> dict[str, Any]:
    """Return the columns of RFC 2544's tests: rates in frames per second, bursts in frames."""
    latency, bursts = tests.latency, tests.back_to_back
    row: dict[str, Any] = {"max_pps": tests.max_pps, "max_is": tests.max_is}
    row["loss_curve"] = json.dumps([asdict(at) for at in tests.loss])
    if latency is not None:
        row |= {f"latency_throughput_{name}": value for name, value in vars(latency).items()}
    if bursts is not None:
        frames = {"mean": bursts.mean, "min": min(bursts.frames), "max": max(bursts.frames), "sd": bursts.sd}
        row |= {f"back_to_back_{name}": value for name, value in frames.items()}
        row |= {"back_to_back_repetitions": len(bursts.frames), "back_to_back_step": bursts.step_frames}
        row |= {"back_to_back_pps": bursts.rate_pps, "buffer_s": bursts.buffer_s}
    return row


def search_table(run: RunDirectory, trials: Mapping[str, Trial]) -> pd.DataFrame:
    """Return the table of a search's run: one row per attempt."""
    return pd.DataFrame([row_of(trials[a.trial_id], a) for a in attempts_of(run)])


def shown(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the table for a reader: rates in kpps, NDR and PDR as their two bounds."""
    return [
        {
            "point": point_label(row),
            "NDR kpps": _between(row["ndr_pps"], row["ndr_upper_pps"]),
            "NDR limited by": row["ndr_limited_by"],
            "PDR kpps": _between(row["pdr_pps"], row["pdr_upper_pps"]),
            "PDR limited by": row["limited_by"],
            "MRR kpps": _kpps(row["mrr_pps"]),
        }
        for row in _rows(table)
    ]


def rfc2544_tables(table: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the tables that RFC 2544 and RFC 9004 require, one row per frame size; empty without such a search."""
    measured = [row for row in _rows(table) if row.get("loss_curve") is not None]
    rows = sorted(measured, key=lambda row: (point_label(row, of_frames=False), row["frame_bytes"] or 0))
    shares = sorted({at["share"] for row in rows for at in json.loads(row["loss_curve"])}, reverse=True)
    return {
        "throughput": [_throughput(row) for row in rows],
        "latency": [
            {"point": point_label(row), "load kpps": _kpps(row.get("latency_throughput_load_pps")),
             **{f"{name} µs": _number(row.get(f"latency_throughput_{name}_ns"), 1e3) for name in _LATENCY},
             "repetitions": _number(row.get("latency_throughput_repetitions"), 1)}
            for row in rows
        ],
        "loss": [{"point": point_label(row), **_losses(row, shares)} for row in rows],
        "back_to_back": [_bursts(row) for row in rows],
    }  # fmt: skip


def rfc2544_lines(table: pd.DataFrame) -> dict[str, str]:
    """Return what these tables mean, in a line each: the range over the searches that have the result.

    A latency's repetitions are not kept, so it has no interval.
    """
    passed, lossless, bursts = (list[tuple[str, Estimate]]() for _ in range(3))
    rows = [row for row in _rows(table) if row.get("loss_curve") is not None]
    for row in rows:
        label, percent_pps = point_label(row), row["max_pps"] / 100
        offered = [at["offered_pps"] for at in json.loads(row["loss_curve"]) if at["loss_ratio"] == 0]
        lossless += [(label, estimate(max(offered) / percent_pps))] if offered else []
        passed += [] if row["ndr_pps"] is None else [(label, estimate(row["ndr_pps"] / percent_pps))]
        mean, sd, n = (row.get(f"back_to_back_{name}") for name in ("mean", "sd", "repetitions"))
        half = nan if sd is None or n is None or n < 2 else t_quantile(0.975, n - 1) * sd / n**0.5
        bursts += [] if mean is None else [(label, estimate(mean, mean - half, mean + half))]
    of_maximum = " % of the maximum rate"
    lines = {
        "throughput": ("without loss goes", passed, span(passed, of_maximum, exact=True) if passed else ""),
        "loss": ("no frame is lost at", lossless, span(lossless, of_maximum, exact=True) if lossless else ""),
        "back_to_back": ("a burst passes whole of", bursts, supported(bursts, "frames")),
    }
    return {
        name: sentence(f"{begin} {text}" + (f", in {len(of)} of {len(rows)} searches" if len(of) < len(rows) else ""))
        for name, (begin, of, text) in lines.items()
        if text
    }


_LATENCY = ("mean", "least", "greatest")
_BURSTS = {"mean": "average frames", "min": "least", "max": "most", "sd": "SD", "repetitions": "repetitions"}


def _throughput(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    ndr, most = row["ndr_pps"], row["max_pps"]
    part = None if ndr is None else f"{ndr / most:.1%}"
    return {
        "point": point_label(row),
        "throughput kpps": _between(ndr, row["ndr_upper_pps"]),
        "limited by": row["ndr_limited_by"],
        "maximum kpps": _kpps(most),
        "maximum of the": row["max_is"],
        "share": part,
    }


def _losses(row: Mapping[Hashable, Any], shares: list[float]) -> dict[str, str | None]:
    """Return the loss by requested share; a generator that is slower than the link offers less than was requested."""
    curve = json.loads(row["loss_curve"])
    at = {one["share"]: f"{one['loss_ratio']:.2%}" for one in curve}
    most = max(one["offered_pps"] for one in curve) / row["max_pps"]
    return {"most offered": f"{most:.1%}", **{f"{share:.0%}": at.get(share) for share in shares}}


def _bursts(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    frames = {title: row.get(f"back_to_back_{name}") for name, title in _BURSTS.items()}
    missing = json.loads(row[NULL_REASONS.name])
    return {
        "point": point_label(row),
        **{title: None if number is None else f"{number:.6g}" for title, number in frames.items()},
        "step": _number(row.get("back_to_back_step"), 1),
        "corrected buffer ms": _number(row.get("buffer_s"), 1e-3),
        "remark": missing.get("back_to_back", missing.get("buffer")),
    }


def _number(value: float | None, unit: float) -> str | None:
    return None if value is None else f"{value / unit:.4g}"


def answer(table: pd.DataFrame) -> list[str]:
    """Return what was found, in sentences: a point's rates, of several the range of each; then `remarks`."""
    measured = [row for row in _rows(table) if row["status"] == "measured"]
    if not measured:
        return ["No point was searched to its end.", *remarks(table)]
    rates = [(name, [row[f"{name.lower()}_pps"] for row in measured]) for name in ("PDR", "NDR", "MRR")]
    parts = [f"{_WORDS[name]} ({name}) {_range(values)}" for name, values in rates]
    at = point_label(measured[0]) if len(measured) == 1 else f"Of {len(measured)} searches, from least to most"
    return [f"{at}: {', '.join(parts)}.", *remarks(table)]


_WORDS = {"PDR": "with little loss", "NDR": "without loss", "MRR": "at the highest load"}


def _range(rates: list[float | None]) -> str:
    known_rates = [rate for rate in rates if rate is not None]
    if not known_rates:
        return "none"
    low, high = _kpps(min(known_rates)), _kpps(max(known_rates))
    return f"{low} kpps" if low == high else f"{low} to {high} kpps"


def remarks(table: pd.DataFrame) -> list[str]:
    """Return a line for each point that livelocks, and for each that was not searched, with the reason."""
    pairs = ((point_label(row), _remark(row)) for row in _rows(table))
    return [f"{point}: {text}" for point, text in pairs if text]


def _rows(table: pd.DataFrame) -> list[dict[Hashable, Any]]:
    return table.astype("object").where(table.notna(), None).to_dict("records")


def point_label(row: Mapping[Any, Any], *, of_frames: bool = True) -> str:
    """Return the description of a point, from its row; without its frame size if not ``of_frames``."""
    accesses = "" if row.get("accesses") is None else f" N={row['accesses']:g}"
    place = f"{row['program_name']}{accesses} {row['mode']} {row['queues']}q"
    of_one_size = of_frames and row["frame_bytes"] is not None
    size = f" {row['frame_bytes']} B" if of_one_size else ""
    values = {str(name): value for name, value in row.items() if value is not None}
    others = changed(values, "program_name", "accesses", "mode", "queues", "frame_bytes", "load")
    return ", ".join([place + size, *others])


def _kpps(rate: float | None) -> str:
    return "–" if rate is None else f"{rate / 1e3:.4g}"


def _between(lower: float | None, upper: float | None) -> str:
    if lower is None:
        return "none" if upper is None else f"< {_kpps(upper)}"
    return f"{_kpps(lower)}–{_kpps(upper)}" if upper is not None else f"≥ {_kpps(lower)}"


def _remark(row: Mapping[Hashable, Any]) -> str:
    if row["status"] != "measured":
        return f"{row['status']}: {row['reason']}"
    limits = {"NDR": ("ndr_limited_by", "ndr_upper_pps"), "PDR": ("limited_by", "pdr_upper_pps")}
    of_the_tg = [goal for goal, (by, upper) in limits.items() if row[by] == "generator" and row[upper] is not None]
    parts = []
    if of_the_tg:
        parts.append(
            f"the TG made the upper bound of {' and '.join(of_the_tg)}: it sent fewer frames than asked for, stood "
            "still at times and caught up in bunches, or did not take all that came back, and the losses are no more "
            "than that makes"
        )
    if row["livelock"]:
        mrr, pdr = row["mrr_pps"], row["pdr_pps"]
        parts.append(
            f"livelock: the MRR, {_kpps(mrr)} kpps, lies {1 - mrr / pdr:.0%} below the PDR: more load, less forwarded"
        )
    return "; ".join(parts)
