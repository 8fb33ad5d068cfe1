"""The thesis' MoonGen log: rows of the sender (core 1, whole seconds) and the receiver (core 2, half seconds).

A header, then 60 rows of the sender interleaved with 59 of the receiver; the header separates by spaces, the rows by
commas. Packets are cumulative; the mean latency is a running mean in seconds, absent in one folder, with two decimals
in some and ten in others.

The generator printed latency as a running mean over frames: `latency` computes it back, with the rounding error.
The sum behind the mean after n frames is n * mean; between two rows the frames took
(n * mean - n' * mean') / (n - n'). A foreign frame carries no time stamp and shows as a jump of many
seconds, also below zero: such frames in the first second stay in every later running mean, so that no printed mean is
taken as it stands.

If many digits were printed, each second is undone, and the median leaves out the seconds that hold a foreign frame.
Where most seconds are far off their median, and not at two levels, there is no latency to name: foreign frames came all
the time, or the mean was not over the frames that were counted.
With few digits, a long stretch is undone. If frames took b seconds each and foreign frames added a seconds before the
stretch, row k printed b + a / n within half of its last digit: the least and the most b that all rows allow are the
interval (a line through vertical segments, solved exactly). If no such b exists, the latency changed: then the sums
at both ends of the run give the mean, provided that no second shows a jump.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xdplab.thesis.log_text import Anomaly, grid_of, layout_of, unreadable

Rows = NDArray[np.float64]
Places = NDArray[np.int64]
COLUMNS = (
    "second",
    "tx_time_s",
    "tx_packets",
    "tx_last_pps",
    "tx_mean_pps",
    "rx_time_s",
    "rx_packets",
    "rx_last_pps",
    "rx_mean_pps",
    "latency_mean_s",
)
"""Of GeneratorRun.rows; row k pairs the sender at k seconds with the receiver at k + 0.5."""

_PACKETS, _MEAN = COLUMNS.index("rx_packets"), COLUMNS.index("latency_mean_s")
DIGITS_SHARE = 0.05  # of a latency that the printed digits may leave open
TX_CORE, RX_CORE = 1, 2
MAX_SECOND = 86400
_RATES = "Time TX Packets TX Packet Rate Avg TX Packet Rate RX Packets RX Packet Rate Avg RX Packet Rate"
_HEADERS = {f"{_RATES} Core Port": 9, f"{_RATES} Latency mean Core Port": 10}
_HEADER = re.compile(rb"^[ \t]*Time\b.*$", re.MULTILINE)
_LATENCY_PLACE = 7
_WORD = rb"-?(?:[0-9]{1,18}(?:\.[0-9]{1,12})?|nan|inf)"
_ROW = {width: re.compile(rb"\s*" + rb",\s*".join([_WORD] * width) + rb"\s*") for width in (9, 10)}
_ALL_ROWS = {width: re.compile(rb"(?:\s*" + rb", *".join([_WORD] * width) + rb"\n)*") for width in (9, 10)}


@dataclass(frozen=True, eq=False)
class GeneratorRun:
    """One run of the generator: ``rows`` has one row per second and COLUMNS, NaN if there is nothing.

    ``latency_decimals``: how many digits the latency was printed with, None if it was not printed.
    """

    rows: Rows
    latency_decimals: int | None

    @property
    def half_digit_s(self) -> float:
        """By how much a printed latency may be off, in seconds."""
        return 0.5 * 10.0 ** -(self.latency_decimals or 0)

    @cached_property
    def seconds_s(self) -> Rows:
        """The mean latency of the frames of each row in seconds; NaN if the printed digits do not allow it."""
        result = np.full(len(self.rows), np.nan)
        if self.latency_decimals is None or len(self.rows) < 2:
            return result
        value, open_s = between_rows(self.rows[:, _PACKETS], self.rows[:, _MEAN], self.half_digit_s)
        readable = open_s <= DIGITS_SHARE * np.abs(value)
        result[1:][readable] = value[readable]
        return result


def between_rows(packets: Rows, mean: Rows, half_digit: float) -> tuple[Rows, Rows]:
    """Return the mean of the frames between neighbouring rows, and what the digits leave open; NaN without a frame."""
    more = packets[1:] - packets[:-1]
    more = np.where(more > 0, more, np.nan)
    return (packets[1:] * mean[1:] - packets[:-1] * mean[:-1]) / more, half_digit * (packets[1:] + packets[:-1]) / more


@dataclass(frozen=True, eq=False)
class GeneratorLog:
    """The runs in one file (one, unless runs were appended) and what is wrong with it."""

    runs: tuple[GeneratorRun, ...]
    anomalies: tuple[Anomaly, ...]


def parse_generator_log(data: bytes, *, seconds: int = 60) -> GeneratorLog:
    """Return the content of a log of runs of ``seconds`` seconds. Raises nothing: anomalies are part of the result."""
    anomaly = unreadable(data, b"Time")
    first = _HEADER.match(data)
    if anomaly is None and not first:
        anomaly = Anomaly("foreign", "the first line is no header", line=1)
    if anomaly or not first:
        return GeneratorLog((), (anomaly,) if anomaly else ())
    headers = list(_HEADER.finditer(data)) if data.count(b"Time") > 1 else [first]
    anomalies: list[Anomaly] = []
    runs: list[GeneratorRun] = []
    for header, end in zip(headers, [*(match.start() for match in headers[1:]), len(data)], strict=True):
        line = data.count(b"\n", 0, header.start()) + 1
        width = _HEADERS.get(" ".join(header[0].decode().replace(",", " ").split()))
        if width is None:
            anomalies.append(Anomaly("foreign", f"unknown columns {header[0][:60].decode(errors='replace')!r}", line))
            continue
        runs.append(_run(data[header.end() + 1 : end], width, line + 1, seconds, anomalies))
    if len(runs) > 1:
        anomalies.append(Anomaly("appended_runs", f"{len(runs)} runs in one file"))
    return GeneratorLog(tuple(runs), tuple(anomalies))


def parse_generator_logs(logs: Sequence[bytes], seconds: Sequence[int]) -> list[GeneratorLog]:
    """Return the content of each log, as ``parse_generator_log`` does, in a third of the time where they are alike."""
    if len(logs) < 2:
        return [parse_generator_log(data, seconds=planned) for data, planned in zip(logs, seconds, strict=True)]
    if runs := _alike(logs, max(seconds)):
        return [GeneratorLog((run,), ()) for run in runs]
    half = len(logs) // 2
    return [*parse_generator_logs(logs[:half], seconds[:half]), *parse_generator_logs(logs[half:], seconds[half:])]


def _alike(logs: Sequence[bytes], seconds: int) -> list[GeneratorRun] | None:
    """Return the runs of logs with one layout and nothing wrong, else None."""
    end = logs[0].find(b"\n") + 1
    header, lines = logs[0][:end], logs[0].count(b"\n") - 1
    width = _HEADERS.get(" ".join(header.decode(errors="replace").replace(",", " ").split()))
    if width is None or any(
        not data.startswith(header)
        or not data.endswith(b"\n")
        or len(data) != len(logs[0])
        or unreadable(data, b"Time")
        for data in logs
    ):
        return None
    table = _at_once(b"".join([data[end:] for data in logs]), width)
    if table is None or len(table[0]) != len(logs) * lines:
        return None
    tables, decimals = table[0].reshape(len(logs), lines, width), table[1]
    cores = tables[0, :, -2]
    sender, receiver = tables[:, cores == TX_CORE], tables[:, cores == RX_CORE]
    places = [_places(part[0, :, 0]) for part in (sender, receiver)]
    if (
        (tables[:, :, -2] != cores).any()
        or sender.shape[1] + receiver.shape[1] < lines
        or sender.shape[1] < seconds
        or receiver.shape[1] < seconds - 1
        or not (sender[:, :, 1] > 0).any(axis=1).all()
        or places[0] is None
        or places[1] is None
        or (_nearest(sender[:, :, 0]) != places[0]).any()
        or (_nearest(receiver[:, :, 0]) != places[1]).any()
    ):
        return None
    return [GeneratorRun(rows, decimals) for rows in _by_second(sender, receiver, places[0], places[1])]


def _run(body: bytes, width: int, line: int, seconds: int, anomalies: list[Anomaly]) -> GeneratorRun:
    """Return the run in ``body``, whose first line is ``line``; what is wrong with it goes to ``anomalies``."""
    table, decimals = _at_once(body, width) or _by_word(body, width, line, anomalies)
    sender, receiver = table[table[:, -2] == TX_CORE], table[table[:, -2] == RX_CORE]
    if len(sender) + len(receiver) < len(table):
        anomalies.append(Anomaly("foreign", f"rows of cores other than {TX_CORE} and {RX_CORE}", line))
    if len(table) and not np.any(sender[:, 1] > 0):
        anomalies.append(Anomaly("no_traffic", f"{len(table)} rows, none of them of a sender that sent"))
    elif len(sender) < seconds or len(receiver) < seconds - 1:
        text = f"{len(sender)} rows of the sender, {len(receiver)} of the receiver, not {seconds} and {seconds - 1}"
        if not any(anomaly.kind == "damaged" for anomaly in anomalies):
            anomalies.append(Anomaly("truncated", text, line + len(table)))
    places = [_places(part[:, 0]) for part in (sender, receiver)]
    if any(place is None for place in places):
        anomalies.append(Anomaly("damaged", "times that do not rise by a second", line))
    tx_places, rx_places = (np.zeros(0, int) if place is None else place for place in places)
    return GeneratorRun(_by_second(sender[None], receiver[None], tx_places, rx_places)[0], decimals)


Table = tuple[Rows, int | None]
"""All rows of a run, and with how many digits its latency was printed: None if it was not."""


def _at_once(body: bytes, width: int) -> Table | None:
    """Return the run's table where its lines have at most two widths, each one layout, else None.

    The sender's lines print no latency, and are narrower where it has many digits.
    """
    if (one := _even(body, width)) is not None:
        return one
    lines = body.splitlines(keepends=True)
    widths = np.array([len(text) for text in lines])
    kinds = np.unique(widths)
    if len(kinds) != 2:
        return None
    table = np.zeros((len(lines), width))
    decimals: int | None = None
    for layout in kinds:
        part = _even(b"".join(text for text in lines if len(text) == layout), width)
        if part is None or None not in (decimals, part[1]):  # the receiver's lines have one layout
            return None
        table[widths == layout] = part[0]
        decimals = decimals if part[1] is None else part[1]
    return table, decimals


def _even(lines: bytes, width: int) -> Table | None:
    """Return the table of lines of one width and layout, else None."""
    grid = grid_of(lines)
    if grid is None or not _ROW[width].fullmatch(first := grid[0].tobytes()):
        return None
    layout = layout_of(first)
    numbers = layout.read(grid) if len(layout.decimals) == width else None
    if numbers is None:
        return None
    received = width == 10 and (numbers[:, -2] == RX_CORE).any()
    return numbers, layout.decimals[_LATENCY_PLACE] if received else None


def _by_word(body: bytes, width: int, line: int, anomalies: list[Anomaly]) -> Table:
    """Return the run's table a word at a time: of lines that are uneven, or some of them no rows."""
    if not _ALL_ROWS[width].fullmatch(body):
        body = _whole_lines(body, width, line, anomalies)
    fields = body.replace(b",", b" ").split()
    table = np.array([float(word) for word in fields]).reshape(-1, width)
    table[np.isinf(table)] = np.nan
    return table, _latency_decimals(fields, table)


def _whole_lines(body: bytes, width: int, line: int, anomalies: list[Anomaly]) -> bytes:
    """Return the lines of ``body`` that are rows; a last one without its end was cut, others were damaged."""
    lines = body.split(b"\n")
    bad = [
        number
        for number, text in enumerate(lines)
        if text.strip() and (number == len(lines) - 1 or not _ROW[width].fullmatch(text))
    ]
    if bad == [len(lines) - 1]:
        anomalies.append(Anomaly("truncated", "the last line has no end", line + bad[0]))
    elif bad:
        anomalies.append(Anomaly("damaged", f"{len(bad)} lines that are no rows", line + bad[0]))
    unusable = set(bad)
    return b"\n".join(text for number, text in enumerate(lines) if number not in unusable)


def _latency_decimals(fields: list[bytes], table: Rows) -> int | None:
    """Return the digits behind the point of the receiver's first latency, None if there is none."""
    width = table.shape[1]
    places = np.flatnonzero(table[:, -2] == RX_CORE)
    return len(fields[places[0] * width + _LATENCY_PLACE].partition(b".")[2]) if width == 10 and len(places) else None


def _by_second(sender: Rows, receiver: Rows, tx_places: Places, rx_places: Places) -> Rows:
    """Return (runs, seconds, COLUMNS) from both cores' (runs, rows, columns), whose places all runs share."""
    last = max([-1, *tx_places[-1:], *rx_places[-1:]])
    rows = np.full((len(sender), last + 1, len(COLUMNS)), np.nan)
    rows[:, :, 0] = np.arange(1, last + 2)
    rows[:, tx_places, 1:5] = sender[:, : len(tx_places), :4]
    rows[:, rx_places, 5:9] = receiver[:, : len(rx_places)][:, :, [0, 4, 5, 6]]
    if receiver.shape[2] == 10:
        rows[:, rx_places, 9] = receiver[:, : len(rx_places), 7]
        rows[:, :, 9][rows[:, :, 6] == 0] = np.nan  # a mean over no packet
    return rows


def _places(times: Rows) -> Places | None:
    """Return the row that each time belongs to, or None where times do not rise or are no seconds of a run."""
    if not ((times >= 0.75) & (times < MAX_SECOND)).all():
        return None
    places = _nearest(times)
    return places if (places[1:] > places[:-1]).all() else None


def _nearest(times: Rows) -> Places:
    return (times + 0.25).astype(np.int64) - 1  # the clock prints 59.999 or 60.001 for 60


# --- the CSV twin of a generator's log: the same numbers under labels of its own. Are they the right ones? ---

# Each rate column is recognised by its numbers, which the log holds too, and its label says rate or average rate.
# Nothing else of a twin is read: its numbers are those of the log.

LEAST_ROWS = 3
_RATE = re.compile(r"\brates?\b|taxa", re.IGNORECASE)
_AVERAGE = re.compile(r"\b(?:avg|average|mean)\b|m[eé]di[ao]", re.IGNORECASE)
_PARTS = re.compile(r"[,;\t]")
_SIDES = ("tx", "rx")


def swapped_labels(head: bytes, rows: Rows) -> list[tuple[str, str]]:
    """Return the pairs (label of a rate, label of its average) that stand above each other's numbers.

    ``head``: the twin's beginning; ``rows``: those of a GeneratorRun.
    """
    labels, *lines = head.decode(errors="replace").splitlines()[:-1] or [""]  # the last line may be cut
    table = [_PARTS.split(line) for line in lines]
    titles = [title.strip().strip('"') for title in _PARTS.split(labels)]
    swaps = {}
    for place, title in enumerate(titles):
        if _RATE.search(title) and (kind := _kind(_numbers(table, place), rows)):
            swaps[kind] = title
    pairs = [
        (swaps[side, "mean"], swaps[side, "last"]) for side in _SIDES if {(side, "mean"), (side, "last")} <= {*swaps}
    ]
    # A label that says average, above the rates of the last moment, and the other way round.
    return [(mean, last) for mean, last in pairs if _AVERAGE.search(last) and not _AVERAGE.search(mean)]


def _numbers(table: list[list[str]], place: int) -> list[float]:
    return [value for fields in table if place < len(fields) for value in _number(fields[place]) if value]


def _number(word: str) -> Iterator[float]:
    try:
        yield round(float(word), 2)
    except ValueError:
        return


def _kind(values: list[float], rows: Rows) -> tuple[str, str] | None:
    """Return whose rates these numbers are: the log's only column that holds them; None if none or several do."""
    if len(values) < LEAST_ROWS:
        return None
    numbers_of = {
        (side, kind): set(rows[:, COLUMNS.index(f"{side}_{kind}_pps")].round(2))
        for side in _SIDES
        for kind in ("last", "mean")
    }
    matching = [key for key, numbers in numbers_of.items() if numbers.issuperset(values)]
    return matching[0] if len(matching) == 1 else None


SETTLING_ROWS = 2
LEAST_PRINTED = 10
STRETCH_SHARE = 0.4  # of a run's rows: a shorter stretch does not speak for the run
JUMP_SHARE = 0.5  # of the mean: what a second may differ from it, digits aside, without a foreign frame
LEVEL_SHARE = 0.2  # of the seconds that either of two levels has
LEVELS_APART = 0.1  # of the lower level
LIKE_SHARE = 0.25  # of the median: how far a second may be off it and still have the same latency
DRIFT = 0.1  # of the median, from a run's first third to its last
ROUNDING = 1 + 1e-6  # half a digit, and the float's own


@dataclass(frozen=True)
class Latency:
    """Mean round trip in ns or None, and why there is none; ``how`` says what was done to the printed mean.

    ``open_ns``: by how much the printed digits leave the mean open to either side. ``levels_ns``: the two means of a
    run whose seconds have two levels.
    """

    mean_ns: float | None
    how: str
    open_ns: float | None = None
    levels_ns: tuple[float, float] | None = None


def latency(run: GeneratorRun) -> Latency:
    """Return what the running mean says about the time per frame."""
    if run.latency_decimals is None:
        return Latency(None, "the log has no latency column")
    packets, mean = run.rows[:, _PACKETS], run.rows[:, _MEAN]
    measured = ~(np.isnan(packets) | np.isnan(mean))
    if not measured.any():
        return Latency(None, "nothing was received: a mean over no frame")
    seconds = run.seconds_s[SETTLING_ROWS:]
    readable = seconds[~np.isnan(seconds)]
    if len(readable) >= max(3, len(seconds) / 2) and _median(readable) > 0:
        return _of_seconds(readable, run.half_digit_s)
    return _of_stretch(packets[measured], mean[measured], run)


def _of_seconds(seconds: Rows, half_digit: float) -> Latency:
    typical = _median(seconds)
    levels = two_levels(seconds)
    how = "running mean undone, median of the seconds"
    if levels:
        how += f"; the seconds have two levels, {levels[0] * 1e3:.3g} and {levels[1] * 1e3:.3g} ms"
    elif np.mean(np.abs(seconds - typical) <= LIKE_SHARE * typical) < 0.5:
        return Latency(None, "the seconds have no latency in common: most are more than 25 % off their median")
    else:
        how += _drift(seconds, typical)
    open_ns = 1e9 * half_digit * 2 * len(seconds)
    return Latency(1e9 * typical, how, open_ns, (1e9 * levels[0], 1e9 * levels[1]) if levels else None)


def _median(values: Rows) -> float:
    """np.median takes ten times as long for a minute's seconds."""
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _drift(seconds: Rows, typical: float) -> str:
    """Say from where to where the latency went, if it did not stay; else nothing."""
    third = -(-len(seconds) // 3)
    first, last = _median(seconds[:third]), _median(seconds[-(len(seconds) // 3) :])
    if abs(last - first) <= DRIFT * typical:
        return ""
    return f"; it went from {first * 1e3:.3g} to {last * 1e3:.3g} ms in the run"


def two_levels(seconds: Rows) -> tuple[float, float] | None:
    """Return the means of two groups of seconds, each a fifth of them, with a gap wider than either group; else None.

    The gap is the widest between neighbours in order of size; a group's width leaves out its outermost tenth.
    """
    ordered = np.sort(seconds[seconds > 0])
    least = max(3, int(LEVEL_SHARE * len(ordered)))
    if len(ordered) < 2 * least:
        return None
    cut = least + int(np.argmax(np.diff(ordered[least - 1 : len(ordered) - least + 1])))
    low, high = ordered[:cut], ordered[cut:]
    gap = high[0] - low[-1]
    if gap <= LEVELS_APART * low.mean():  # in most runs: quantiles take long
        return None
    widths = [float(np.subtract(*np.quantile(part, (0.95, 0.05)))) for part in (low, high)]
    if gap <= max(widths):
        return None
    return float(low.mean()), float(high.mean())


def _of_stretch(packets: Rows, mean: Rows, run: GeneratorRun) -> Latency:
    """Undo the mean over the longest stretch that its digits allow."""
    growing = np.concatenate([[True], (packets[1:] - packets[:-1]) > 0]) & (packets > 0)
    n, m = packets[growing], mean[growing]
    few = f"printed with {run.latency_decimals} decimals of a second: too few digits"
    if len(n) < LEAST_PRINTED:
        return Latency(None, f"{len(n)} rows with new frames: too few to undo the running mean")
    half_digit = run.half_digit_s * ROUNDING
    for undone in (_one_latency, _whole_run):
        attempt = undone(n, m, half_digit)
        if attempt is not None and 0 < attempt[1] <= DIGITS_SHARE * attempt[0]:
            value, open_s, how = attempt
            return Latency(1e9 * value, how, 1e9 * open_s)
    if m[-1] < 0:
        return Latency(None, f"frames of others drove the running mean below zero; {few} to take them out")
    return Latency(None, few)


def _one_latency(n: Rows, m: Rows, half_digit: float) -> tuple[float, float, str] | None:
    """Return (mean, half its interval, how) of the longest stretch in whose every row one latency fits, else None."""
    x, high, low = 1 / n, m + half_digit, m - half_digit
    apart = x[:, None] - x[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        # The foreign seconds `a` that a pair of rows allows, at most and at least.
        most = np.where(apart > 0, (high[:, None] - low[None, :]) / apart, np.inf)
        least = np.where(apart > 0, (low[:, None] - high[None, :]) / apart, -np.inf)
    shortest = max(LEAST_PRINTED, int(STRETCH_SHARE * len(n)))
    best: tuple[float, float, str] | None = None
    for begins_late in (True, False):
        turn = slice(None, None, -1 if begins_late else 1)
        # Later rows hold smaller x: a pair is above the diagonal, and in the turned tables below it.
        up = np.minimum.accumulate(most.min(axis=int(begins_late))[turn])
        down = np.maximum.accumulate(least.max(axis=int(begins_late))[turn])
        length = int((up >= down).argmin()) if not (up >= down).all() else len(n)
        if length < shortest:
            continue
        rows = slice(len(n) - length, None) if begins_late else slice(0, length)
        a_most, a_least = up[length - 1], down[length - 1]
        bottom = float((low[rows] - a_most * x[rows]).max())
        top = float((high[rows] - a_least * x[rows]).min())
        middle = ((bottom + top) / 2, (top - bottom) / 2)
        if best is None or middle[1] < best[1]:
            best = (
                *middle,
                f"running mean undone over {length} of {len(n)} rows: one latency fits every printed digit",
            )
    return best


def _whole_run(n: Rows, m: Rows, half_digit: float) -> tuple[float, float, str] | None:
    """Return (mean, what the digits leave open, how) from the sums in the first and the last row; None with a jump."""
    mean = float((n[-1] * m[-1] - n[0] * m[0]) / (n[-1] - n[0]))
    open_s = float(half_digit * (n[-1] + n[0]) / (n[-1] - n[0]))
    value, seconds_open = between_rows(n, m, half_digit)
    if np.any(np.abs(value - mean) > seconds_open + JUMP_SHARE * abs(mean)):
        return None
    return mean, open_s, "running mean undone from the first row to the last"
