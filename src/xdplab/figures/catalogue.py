"""The figures by name, and the one way to ask for them: choose rows, arrange factors, build the view, draw.

The columns that the album's figures read, and a table of trials without the others.

Half of the columns and most of a table's bytes serve no figure: the reasons of nulls alone are two thirds of a row.
Selecting rows copies every column, so figures are drawn from a narrow table. Its texts are categories, which are read,
copied and counted many times faster: a run has few levels and many rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xdplab.analysis.series import SERIES, key_of, reached, rows_where, settled, with_baselines
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures import views, views_traffic
from xdplab.figures.caption import OF_A_CAPTION, why_null
from xdplab.figures.factors import (
    ALIASES,
    FACTORS,
    FigureChoice,
    FigureRequest,
    arrange,
    believable,
    compound,
    is_believable,
    label_column,
    levels,
    taken,
)
from xdplab.figures.marks import View
from xdplab.figures.views import need, only
from xdplab.lazy import lazily

with lazily():
    from xdplab.figures import draw as drawer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xdplab.figures.draw import Panels


@dataclass(frozen=True)
class FigureEntry:
    """``select`` takes the settled trials and the value asked for; it returns (rows, value column) or raises.

    ``hues`` and ``panels`` are the factors preferred there; ``across`` names those that the figure is there to compare.
    """

    text: str
    select: Callable[[pd.DataFrame, str | None], tuple[pd.DataFrame, str]]
    build: Callable[[FigureRequest], View]
    x: str = "accesses"
    hues: tuple[str, ...] = ("queues", "program_name", "frame_bytes", "working_set_bytes", "mode")
    panels: tuple[str, ...] = ("mode",)
    across: tuple[str, ...] = ()


NO_ACCESSES = "no program with a known number of accesses: a plan's `workload` has one"


def _by_accesses(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    counted = only(trials, trials["accesses"].notna(), NO_ACCESSES)
    return _lines(need(with_baselines(counted), value, f"no trial has {value}"), value)


_BESIDE = ("frame_bytes", "imix", "queues")
"""Factors that plans vary at one N, beside a line over N of one of their levels."""


def _lines(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    """Leave out series that were tried at one N (by size or queues) if others have two or more: they make no line.

    One of another N than 0 stays where no other of its setting has a line: its baseline is still to be measured. So
    does N = 0 of a mode without a line, of a size and queues that have one.
    """
    held, setting = key_of(trials, SERIES), key_of(trials, tuple(name for name in SERIES if name not in _BESIDE))
    shown = is_believable(trials, value)
    of_each = trials["accesses"].groupby(held)
    has_line = trials["accesses"][shown].groupby(held[shown]).nunique().reindex(held).ge(2).to_numpy()
    if not has_line.any():
        return trials
    mode, beside = trials["mode"], key_of(trials, _BESIDE)
    is_bar = mode.isin(mode[has_line]) | ~beside.isin(beside[has_line])
    of_a_line = setting.isin(setting[has_line])
    alone = of_each.transform("nunique").eq(1) & (of_each.transform("max").eq(0) & is_bar | of_a_line)
    return rows_where(trials, ~(shown & alone))


def _throughput(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    rows = _by_accesses(_at_max(trials), value)
    if rows["accesses"][is_believable(rows, value)].nunique() < 2:
        raise NotApplicableError("only one N was measured: a plan's `accesses` takes several")
    return rows, value


def _baseline(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    trials = _at_max(trials)
    rows = only(trials, trials["accesses"].eq(0), "N = 0 was not measured: add 0 to `accesses`")
    return _mixes_as_sizes(need(rows, value, f"no trial of N = 0 has {value}")), value


def _mixes_as_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Give frames of several sizes (IMIX) a place of their own among the sizes."""
    mixed = rows["frame_bytes"].isna() & rows["imix"].notna()
    if not mixed.any():
        return rows
    labels = rows["imix"].astype("object").map(FACTORS["imix"].label)
    return rows.assign(frame_bytes=rows["frame_bytes"].astype("object").where(~mixed, labels), imix=None)


def _at_max(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep maximum load, if it was measured: a paced load only shows what was offered, not the capacity."""
    unpaced = trials["rate_requested_pps"].isna()
    return rows_where(trials, unpaced) if unpaced.any() else trials


def _programs(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    only(
        trials,
        trials["accesses"].isna() & trials["program_name"].notna(),
        "no trial of a user's own program was measured: a plan's `program` names one",
    )
    rows = _at_max(trials)
    rows = rows.assign(program=views.program_labels(rows))
    return need(rows, value, f"no trial has {value}"), value


BUSY = ("cpu_busy_cores", "host_busy_cores")


def _busy(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    names = [value] if value else BUSY
    for name in names:
        if trials[name].notna().any():
            return _by_accesses(_at_max(trials), name), name
    raise NotApplicableError(f"CPU use was not measured{why_null(trials, names[-1:])}")


def _service_time(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    rows = _by_accesses(_at_max(trials), value or "ns_per_packet")
    return rows, value or "ns_per_packet"


def _access_cost(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    """Keep each series' largest N: there, the cost of one access (access_ns / N) is most precise."""
    trials = _at_max(trials)
    counted = only(trials, trials["accesses"].gt(0), "no program with accesses was measured")
    need(counted, "access_ns", "no trial has access_ns")
    held = key_of(counted, SERIES)
    largest = counted["accesses"].where(counted["access_ns"].notna()).groupby(held).transform("max")
    largest = largest.fillna(
        counted["accesses"].groupby(held).transform("max")
    )  # the caption names a series that has none
    last = counted[counted["accesses"].eq(largest)]
    names = label_column(last, ("program_name",), alone=True)
    per = last["accesses"].astype("Float64")
    beside = last["testrun_ns"].where(last["access_ns"].notna())
    columns = {"an_access_ns": last["access_ns"] / per, "testrun_an_access_ns": beside / per}
    return last.assign(program=names, **columns), "an_access_ns"


def _lookup_cost(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    """Keep each series' largest N, as `_access_cost` does; ``left_out`` counts the points without `entries`."""
    counted = trials[trials["accesses"].gt(0)]
    nothing = "no lookups in maps of given `entries` were measured: plans/maps.yaml has them"
    lookups = only(counted, counted["entries"].notna(), nothing)
    measured = need(lookups, "testrun_ns", f"no lookup was test-run{why_null(lookups, ['testrun_ns'])}")
    largest = measured["accesses"].groupby(key_of(measured, SERIES)).transform("max")
    last = measured[measured["accesses"].eq(largest)]
    left_out = counted.loc[counted["entries"].isna(), "point_id"].nunique()
    each = last["testrun_ns"] / last["accesses"].astype("Float64")
    return last.assign(a_lookup_ns=each, left_out=left_out), "a_lookup_ns"


LOADLESS = tuple(name for name in SERIES if name not in ("load", "rate_requested_pps", "batch"))  # max has its own


def _latency(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    """Show three quantiles for a single N, and two where several N need the hues."""
    absent = f"latency was not measured{why_null(trials, ['latency_p50_ns'])}"
    stamped = only(trials, trials["latency_p50_ns"].notna(), absent)
    key = key_of(stamped, (*LOADLESS, "accesses"))
    headline = key.isin(key[stamped["rate_requested_pps"].notna()])
    rows = only(
        stamped, headline, "at maximum load the round trip is queueing: add a paced load, `load: [max, 20kpps]`"
    )
    only(rows, reached(rows) & rows["rate_requested_pps"].notna(), "no paced load was reached")
    one = rows["accesses"].nunique() <= 1
    return views_traffic.melted_latency(rows, ("p50", "p99", "p99.9") if one else ("p50", "p99")), "latency_ns"


def _counters(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    counted = only(trials, trials["accesses"].notna(), NO_ACCESSES)
    rows = views_traffic.melted_counters(with_baselines(_at_max(counted)))
    if not is_believable(rows, "counter_value").any():
        why = why_null(trials, [counter.column for counter in views_traffic.COUNTERS])
        raise NotApplicableError(f"no counter has a value{why}")
    return _lines(rows, "counter_value"), "counter_value"


def _evenness(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    """Keep the smallest N: it shows the steering best."""
    several = only(trials, trials["queues"].gt(1), "only one queue was used: a plan's `queues` takes more")
    least = several["accesses"].min()
    rows = several if pd.isna(least) else several[several["accesses"].eq(least).fillna(False).astype(bool)]
    queues = views_traffic.melted_queues(rows)
    return need(queues, "queue_share", "frames by queue were not counted"), "queue_share"


def _harness(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    return views_traffic.pieces(_at_max(trials)), "piece_ns"


def _labs(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    """Separate the modes only: rates relative to their own point are comparable otherwise."""
    rows = views_traffic.relative_rates(trials)
    alike = [name for name in FACTORS if name in rows and name not in ("lab", "mode", "arrangement", "engine")]
    return rows.astype(dict.fromkeys(alike, "object")).assign(**dict.fromkeys(alike, None)), "lab_ratio"


CATALOGUE: dict[str, FigureEntry] = {
    "throughput": FigureEntry("forwarding rate against accesses per packet", _throughput, views.throughput),
    "baseline": FigureEntry(
        "forwarding rate of the program without accesses, by frame size", _baseline, views.baseline,
        x="frame_bytes", hues=("mode", "queues"), panels=("queues",),
    ),
    "programs": FigureEntry(
        "forwarding rate by program, the user's own among them", _programs, views.programs, x="program",
        hues=("mode", "queues"), panels=("queues", "frame_bytes"),
    ),
    "latency": FigureEntry(
        "round trip by load", _latency, views_traffic.latency, x="load",
        hues=("accesses", "quantile", "mode", "queues"), panels=("mode",),
    ),
    "service_time": FigureEntry(
        "CPU time per packet against N, with its line", _service_time, views_traffic.service_time,
    ),
    "access_cost": FigureEntry(
        "CPU time of one access, by program and mode", _access_cost, views_traffic.access_cost, x="program",
        hues=("mode",), panels=("working_set_bytes", "queues"),
    ),
    "lookup_cost": FigureEntry(
        "time of one lookup against the entries of its map, by kind of map", _lookup_cost, views_traffic.lookup_cost,
        x="entries", hues=("map_type",), panels=("hit",),
    ),
    "harness": FigureEntry(
        "what a packet's time on shared CPUs is made of, by mode", _harness, views_traffic.harness, x="mode",
        hues=("piece",), panels=("queues", "frame_bytes"),
    ),
    "busy": FigureEntry("busy CPUs against accesses per packet", _busy, views.busy),
    "counters": FigureEntry(
        "perf and other counters against accesses per packet", _counters, views_traffic.counters,
        hues=("mode", "queues", "program_name"), panels=("counter",),
    ),
    "evenness": FigureEntry(
        "frames by receive queue", _evenness, views_traffic.evenness, x="queue", hues=("mode",),
        panels=("queues", "frame_bytes"),
    ),
    "labs": FigureEntry(
        "the labs of one run side by side, over the points that several measured", _labs, views_traffic.labs, x="lab",
        hues=("mode",), panels=(), across=("lab", "kernel"),
    ),
}  # fmt: skip


VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("throughput", "baseline", "programs"), tuple(views.RATES)),
    "busy": BUSY,
    "service_time": ("ns_per_packet",),
}
"""The columns that a figure can show; its axis names what they are."""


def entry_named(name: str) -> FigureEntry:
    """Return a catalogue entry. Raises FigureError for an unknown name."""
    if name not in CATALOGUE:
        raise FigureError(f"unknown figure {name!r}", remedy=f"one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def chosen(trials: pd.DataFrame, where: Mapping[str, object]) -> pd.DataFrame:
    """Return the rows where each named column has the value, or one of the values, asked for. Raises FigureError."""
    for word, wanted in where.items():
        name = word if word in trials else ALIASES.get(word, word)
        if name not in trials:
            raise FigureError(f"where: no column {word!r}", remedy=f"for example {', '.join(FACTORS)}")
        wanted_all = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
        values = levels(trials, name)
        among = [value for value in values if value in wanted_all or str(value) in wanted_all]  # a shell has texts only
        trials = trials[trials[name].isin(among).fillna(False).astype(bool)]
        if trials.empty:
            listing = ", ".join(map(str, values)) or "only nulls"
            raise FigureError(f"where: no trial has {word} = {wanted!r}", remedy=f"there is {listing}")
    return trials


def prepared(name: str, trials: pd.DataFrame, choice: FigureChoice) -> tuple[FigureEntry, FigureRequest]:
    """Return the entry and the request with its layout, factors that still vary as its ``rest``.

    Raises FigureError.
    """
    entry, value = entry_named(name), choice.value
    if value is not None and value not in trials:
        raise FigureError(f"no column {value!r}", remedy="a rate, a time or a share of trials.parquet")
    others = VALUES.get(name, ())
    if value is not None and value not in others:
        values_text = f"it shows {', '.join(others)}" if others else "it has its own values"
        raise FigureError(f"{name} does not show {value}: {values_text}", remedy="run.plot draws any column")
    if trials.empty:
        raise NotApplicableError("no trial was measured")
    rows, column = entry.select(settled(trials), value)
    shown = believable(rows, column)
    layout = arrange(shown, entry.x, choice, entry.hues, entry.panels)
    return entry, FigureRequest(name, rows, layout, column)


def view(name: str, trials: pd.DataFrame, **choice: Any) -> View:
    """Return the marks and look of a figure; ``choice`` has the fields of `FigureChoice`.

    Raises FigureError, NotApplicableError.
    """
    if name == views_traffic.COMPARE:
        raise FigureError("compare needs two runs", remedy="use compare_view(compare(a, b)) or xdplab compare A B")
    wanted = FigureChoice(**choice)
    entry, request = prepared(name, chosen(trials, wanted.where or {}), wanted)
    return entry.build(replace(request, layout=compound(request.shown, request.layout)))


def figure(name: str, trials: pd.DataFrame, *, ax: Axes | None = None, **options: Any) -> Axes | Panels:
    """Draw one figure of the catalogue from trials; return its Axes, or an array of them.

    ``options`` are those of `xdplab.figures.factors.taken`. Raises FigureError with what to choose if the trials do
    not fit one figure.
    """
    choice, style = taken(options)
    return drawer.draw(view(name, trials, **vars(choice)), style, ax=ax)


REASONS = "null_reasons"
READ = frozenset(
    {
        *FACTORS,
        *OF_A_CAPTION,
        *("run_id", "trial_id", "attempt", "verdict", "limited_by", "rules_version", "path", "rate_requested_pps"),
        *("tx_packets", "offered_pps", "forwarded_pps", "forwarded_l2_bps", "ns_per_packet", "access_ns"),
        *("testrun_raw_ns", "testrun_ns", "program_run_ns", "sender_ns", "receiver_ns", "harness_ns"),
        *("latency_p50_ns", "latency_p99_ns", "latency_p999_ns", "latency_from", "rx_by_queue", "evenness"),
        *("cpu_busy_cores", "host_busy_cores", "cycles", "instructions", "ipc", "branches", "branch_misses"),
        *("l1d_loads", "l1d_misses", "perf_packets", "host_cycles", "host_instructions", "host_context_switches"),
        *("softnet_dropped", "softnet_squeezed", "xsk_dropped"),
    }
)
"""`tests/figures/test_reading.py` looks for every column that the figures' modules name."""
OF_ONE_TRIAL = ("trial_id", "rx_by_queue")
"""Texts that differ from trial to trial."""


def narrowed(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that figures read, texts as sorted categories, unless they are such or ordered ones already;
    of the reasons of nulls those of figures."""
    kept = trials[[name for name in trials if name in READ]]
    texts = [str(name) for name, dtype in kept.dtypes.items() if name == REASONS or _is_text(dtype)]
    texts = [name for name in texts if name not in OF_ONE_TRIAL]
    return kept.assign(**{name: _categories(kept[name], _of_figures if name == REASONS else str) for name in texts})


def read_narrowed(path: Path) -> pd.DataFrame:
    """Read a table of trials as `narrowed` leaves it, without ever holding the rest. Raises OSError, ValueError."""
    import pyarrow.parquet as pq

    names = [name for name in pq.read_schema(path).names if name in READ]
    file = pq.ParquetFile(path, read_dictionary=[name for name in names if name not in OF_ONE_TRIAL], memory_map=True)
    count = max(1, MOST_CELLS // max(1, file.metadata.num_rows))
    columns = [names[first : first + count] for first in range(0, len(names), count)]
    trials = pd.concat([narrowed(file.read(some).to_pandas()) for some in columns], axis=1)
    numbers = {name: trials[name] for name in names if pd.api.types.is_numeric_dtype(trials[name])}
    empty: dict[object, pd.Series] = {}  # one for all that are null throughout, which often are a fifth of the table
    nulls = {name: empty.setdefault(cells.dtype, cells) for name, cells in numbers.items() if cells.isna().all()}
    return trials.assign(**nulls)


MOST_CELLS = 5_000_000
"""Cells that are read at once: of a million trials all columns, as Arrow and as pandas have them, took three times the
memory of what is left."""


def _is_text(dtype: object) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        levels = dtype.categories
        settled = dtype.ordered or (levels.dtype == "str" and levels.is_monotonic_increasing)
        return not settled and pd.api.types.is_string_dtype(levels.dtype)
    return isinstance(dtype, pd.StringDtype)


def _categories(texts: pd.Series, change: Callable[[str], str]) -> pd.Categorical:
    """Return texts as categories in order; each text is changed once."""
    whole = texts.astype("category").cat
    place, levels = pd.factorize(pd.Series([change(text) for text in whole.categories], dtype="str"), sort=True)
    codes = np.append(place, -1)[whole.codes.to_numpy()]  # code -1 is null, and stays so
    return pd.Categorical.from_codes(codes, categories=levels)


def _of_figures(text: str) -> str:
    return json.dumps({name: reason for name, reason in json.loads(text).items() if name in READ})
