"""The figures of an import: those of XDP traffic, whose marks lead to the lines of its logs."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.errors import FigureError
from xdplab.studies.kind import Run
from xdplab.studies.traffic.pictures import Place, draw, figure, matches, names
from xdplab.thesis.language import shown_label
from xdplab.thesis.published import RANKS, Spec, as_printed, figure_named, place_names, ranked
from xdplab.thesis.source import Found, raw_logs
from xdplab.thesis.views import USER, VALUES, Source, corrected_rows, published_view, source_of

__all__ = ["draw", "explain", "figure", "names"]


def explain(run: Run[Any], figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
    """Return the lines of the logs behind the marks of a published figure."""
    return lines_of(run.attempts(), figure, mark, data)


_FILES = {"throughput": "generator", "latency": "generator", "softirq": "sar"}


def lines_of(trials: pd.DataFrame, figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
    """Return the lines of the logs behind the marks of a published ``figure`` that ``mark`` names.

    ``mark`` is ``PANEL|HUE|X`` as in the figure's CSV; parts may be omitted, and panels abbreviated. If ``data`` names
    an import's logs, the lines themselves are shown. Raises FigureError if there is no such mark.
    """
    return list(_of_published(trials, figure_named(figure), mark, data))


def _chosen(place: Place, mark: str) -> bool:
    """True where ``mark`` names a place by its labels in either language."""
    panel, hue, x = (shown_label(label, "en") for label in place)
    return matches(place, mark) or matches((panel, hue, x), mark)


def _of_published(trials: pd.DataFrame, spec: Spec, mark: str, data: Sequence[Path]) -> Iterator[str]:
    source = source_of(trials)
    by_trial = (
        trials.sort_values("attempt", kind="stable").drop_duplicates("trial_id", keep="last").set_index("trial_id")
    )
    printed, better = as_printed(source.printed, spec), corrected_rows(source, spec)
    places = _places(printed, spec) | _places(better, spec)
    chosen = [place for place in places if _chosen(place, mark)]
    if not chosen:
        raise FigureError(
            f"{spec.file} has no mark {mark!r}", remedy=f"for example {'|'.join(next(iter(places), ('',)))}"
        )
    drawn = {tuple(row[:3]): row[3] for row in _values(source, spec)}
    for place in chosen:
        yield f"{spec.file}: {' | '.join(place)}"
        value = drawn.get(place)
        yield f"  as published: {'no mark' if value is None else f'{value:g}'}"
        yield from _trial_lines(_at(printed, spec, place), spec, by_trial, data)
        rows = _at(better.assign(value=better["value"] / VALUES[spec.family][1]), spec, place)
        values = rows["value"].dropna()
        unit = UNITS.get(spec.family, "counts")
        yield f"  corrected: {f'{values.mean():g} {unit}, mean of {len(values)} trials' if len(values) else 'no mark'}"
        for row in rows.to_dict("records"):
            trial = by_trial.loc[[str(row["trial_id"])]].iloc[0]
            yield f"    {_trial_line(row)}; {_logs(by_trial, str(row['trial_id']))}"
            if not pd.isna(row["value"]):
                yield f"      {_formula(row, trial, spec, source.clock)}"


def _trial_line(row: Mapping[Hashable, Any]) -> str:
    value = f"nothing: {row['why']}" if pd.isna(row["value"]) else f"{row['value']:g}"
    return f"{row['mode']}, repetition {row['repetition']:g}, {row['frame_bytes']:g} B: {value}"


UNITS = {"throughput": "Gbit/s", "latency": "µs", "softirq": "%"}


def _formula(row: Mapping[Hashable, Any], trial: pd.Series, spec: Spec, clock: float) -> str:
    """Return how a trial's corrected value is computed: counter, file and line, and the formula with its numbers."""
    if spec.family == "throughput":
        by_tg = trial["forwarded_source"] == "tg"
        counter = (
            "the generator's count of received frames"
            if by_tg
            else f"txpck/s of {trial['dut_interface']}, frames a second that the DUT's interface sent, as the mean of "
            f"{_steady(trial, None)[1]}"
        )
        where = f"{trial['generator_file']}:{trial['generator_line']}" if by_tg else str(trial["sar_file"])
        ratio = f" / {clock:.6f} (its clock over the DUT's)" if by_tg and clock != 1 else ""
        rate, seconds = float(trial["forwarded_pps"]), float(trial["forwarded_window_s"])
        return (
            f"{counter}, {where}: {rate:.1f} frames per second over {seconds:.1f} s{ratio} × {row['frame_bytes']:g} B "
            f"× 8 / 10⁹ = {row['value']:g} Gbit/s"
        )
    if spec.family == "latency":
        left_open = trial["latency_open_ns"]
        error = "" if pd.isna(left_open) else f" ± {float(left_open) / 1e3:.3g} µs left open by the digits"
        where = f"{trial['generator_file']}:{trial['generator_line']}"
        return f"{trial['latency_how']}, rows up to {where}: {row['value']:g} µs{error}"
    if spec.family != "softirq":
        return f"perf's count of the DUT, {trial['perf_file']}: {row['value']:g}"
    if row["cpu"] == USER:
        where = f"{_steady(trial, None)[1]} of {trial['sar_file']}"
        return f"%usr and %sys of all CPUs summed, mean of {where}: {row['value']:g} %"
    cpu = int(float(row["cpu"]))
    count, where = _steady(trial, cpu)
    total = f"{row['value'] * count:.2f} / {count}" if count else "a mean over samples whose lines are not known"
    return f"%soft (in %) of CPU {cpu}, mean of {where} of {trial['sar_file']}: {total} = {row['value']:g} %"


def _steady(trial: pd.Series, cpu: int | None) -> tuple[int, str]:
    """Return how many samples of sar lie within the traffic, and in words at which lines, those of ``cpu`` if given."""
    line_numbers = trial.get("sar_lines")
    lines = [line + (cpu or 0) for line in json.loads(line_numbers)] if isinstance(line_numbers, str) else []
    if not lines:
        return 0, "sar's samples within the traffic"
    at = "lines" if cpu is not None else "blocks of CPUs at lines"
    return len(lines), f"sar's {len(lines)} samples within the traffic ({at} {lines[0]} to {lines[-1]})"


def _values(source: Source, spec: Spec) -> Iterator[tuple[str, str, str, float]]:
    marks = published_view(source, spec).marks
    yield from zip(marks["panel"], marks["hue"], marks["x"], marks["value"], strict=True)


def _places(rows: pd.DataFrame, spec: Spec) -> dict[Place, None]:
    places = ranked(rows, spec)[RANKS].drop_duplicates().sort_values(RANKS)
    return {place_names(spec, key): None for key in places.itertuples(index=False, name=None)}


def _at(rows: pd.DataFrame, spec: Spec, place: Place) -> pd.DataFrame:
    rows_of_marks = ranked(rows, spec)
    keys = [place_names(spec, key) for key in rows_of_marks[RANKS].itertuples(index=False, name=None)]
    return rows_of_marks[[key == place for key in keys]]


def _trial_lines(rows: pd.DataFrame, spec: Spec, by_trial: pd.DataFrame, data: Sequence[Path]) -> Iterator[str]:
    for row in rows.itertuples():
        trial = by_trial.loc[[str(row.trial_id)]].iloc[0]
        file, line = file_and_line(trial, spec, None if spec.hue != "cpu" else int(float(str(row.cpu))))
        yield f"    {row.printed:g} {_column(spec)}: {file}:{line}"
        text = _line(file, line, data) if data else None
        if text is not None:
            yield f"      {text}"


def _column(spec: Spec) -> str:
    columns = {
        "throughput": "bit/s (average receive rate × size × 8)",
        "latency": "s (running mean)",
        "softirq": "%soft",
    }
    return columns.get(spec.family, f"{spec.family} of perf")


def file_and_line(trial: pd.Series, spec: Spec, cpu: int | None) -> tuple[str, int | None]:
    """Return the log and the line that a published mark was read from."""
    kind = _FILES.get(spec.family, "perf")
    file = str(trial[f"{kind}_file"])
    if kind == "perf":
        lines = json.loads(trial["perf_lines"]) if not pd.isna(trial["perf_lines"]) else {}
        return file, lines.get(VALUES[spec.family][0])
    line = trial[f"{kind}_line"]
    return file, None if pd.isna(line) else int(line) + (cpu or 0)


def _logs(by_trial: pd.DataFrame, trial: str) -> str:
    row = by_trial.loc[[trial]].iloc[0]
    return ", ".join(str(row[n]) for n in ("generator_file", "sar_file", "perf_file") if not pd.isna(row[n]))


def _line(file: str, line: int | None, data: Sequence[Path]) -> str | None:
    log = next((log for log in raw_logs(data, Found()) if log.name.path == file), None)
    if log is None or line is None:
        return None
    return log.read().decode(errors="replace").split("\n")[line - 1].strip()
