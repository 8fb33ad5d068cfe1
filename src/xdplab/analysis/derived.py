"""Columns that need more than one trial: service time, access cost, test-run cost minus its baseline.

A value that cannot be computed is null, and ``null_reasons`` says why.
"""

from __future__ import annotations

import errno
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.series import PROGRAM, SETTING, key_of, settled
from xdplab.analysis.values import Row, number, records, text
from xdplab.analysis.verdicts import forwarded
from xdplab.run.columns import Column, ColumnValues, by_name
from xdplab.run.frames import texts

BASELINE_KEY = ("block", "repetition", *SETTING)


def work_cpus(row: Row) -> float | None:
    """Return how many CPUs do the DUT's work: one for one queue; for more queues from the trial's record."""
    cpus = number(row, "dut_cpus")
    return cpus if cpus else (1.0 if number(row, "queues") == 1 else None)


def cpu_ns(row: Row) -> float | None:
    """Return the CPU time per packet in ns: 1e9 x CPUs that do DUT work / forwarded_pps, less what others took."""
    rate, cpus, other = number(row, "forwarded_pps"), work_cpus(row), number(row, "other_busy_cores") or 0.0
    return 1e9 * max(cpus - other, 0.0) / rate if rate and cpus else None


@dataclass(frozen=True)
class WithBaselines:
    """A trial, and its baselines: the trials without accesses of the same block, repetition and setting.

    ``others``: the trials of its program there, by N, if another number of CPUs worked in some of them.
    """

    row: Row
    baselines: Sequence[Row]
    others: Sequence[Row] = ()


def _limited(row: Row, so: str) -> str:
    limit = text(row, "limited_by")
    return f"limited by {limit}: {so}" if limit else "what limited the rate is not known: see limited_by"


def _require_valid(row: Row) -> None:
    if text(row, "verdict") != "valid":
        raise Absent(f"the trial is {text(row, 'verdict')}")


def _require_full_load(row: Row) -> None:
    """In a closed loop a rate is a cost only if the loop runs without a pause."""
    if _paced_on_a_shared_cpu(row):
        raise Absent("a paced load does not keep the shared CPU busy")


def ns_per_packet(trial: WithBaselines) -> float:
    """Return the service time of one packet, if the DUT or the shared CPU was the limit."""
    _require_timed(trial.row)
    _require_cpus_of(_timed(trial.baselines) or _of_most(trial.others), trial.row)
    return _known_cpu_ns(trial.row)


def _require_timed(row: Row) -> None:
    """Raise Absent if a trial's rate is not the time that its packets take."""
    _require_valid(row)
    if text(row, "limited_by") not in ("dut", "shared_cpu"):
        raise Absent(_limited(row, "the rate is not the DUT's"))
    _require_full_load(row)
    _require_sent_back(row)


def _timed(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have a time."""
    return [row for row in rows if _holds(_require_timed, row) and cpu_ns(row) is not None]


def _of_most(rows: Sequence[Row]) -> list[Row]:
    """Return the timed rows of the number of CPUs that most of them have."""
    by_cpus: dict[float | None, list[Row]] = defaultdict(list)
    for row in _timed(rows):
        by_cpus[work_cpus(row)].append(row)
    return max(by_cpus.values(), key=len, default=[])


def _holds(required: Callable[[Row], None], row: Row) -> bool:
    try:
        required(row)
    except Absent:
        return False
    return True


def access_ns(trial: WithBaselines) -> float:
    """CPU time of a packet's N accesses: 1e9/pps(N) - 1e9/pps(0), times the CPUs that do DUT work and are not taken."""
    row = trial.row
    if number(row, "accesses") is None:
        raise Absent("N of a user's program is not known")
    if number(row, "accesses") == 0:
        raise Absent("N = 0 is the baseline itself")
    _require_valid(row)
    _require_answers(row)
    _require_full_load(row)
    if not _costs_show(row):
        raise Absent(_limited(row, "the rate does not show the accesses' cost"))
    _require_sent_back(row)
    shown = [base for base in trial.baselines if _costs_show(base)]
    if not shown:
        raise Absent("N = 0 is not limited by the DUT" if trial.baselines else _NO_BASELINE)
    sent_back = [base for base in shown if _holds(_require_sent_back, base)]
    if not sent_back:
        raise Absent("with N = 0 too few of the frames that the DUT received came back: its rate is no cost")
    _require_cpus_of(sent_back, row)
    with_work, zeros = _known_cpu_ns(row), [zero for base in sent_back if (zero := cpu_ns(base)) is not None]
    if not zeros:
        raise Absent("N = 0 has no time per packet: nothing was forwarded, or its CPUs were not recorded")
    return with_work - sum(zeros) / len(zeros)


def _require_cpus_of(baselines: Sequence[Row], row: Row) -> None:
    """Raise Absent if another number of CPUs did the work of these. A CPU counts from half of the busiest one's time
    on, so with uneven queues it may count for one N alone. The difference of two times would then be the CPU's."""
    cpus, theirs = work_cpus(row), [others for base in baselines if (others := work_cpus(base))]
    if number(row, "accesses") and cpus and theirs and cpus not in theirs:
        at = f"{theirs[0]:g} with N = {number(baselines[0], 'accesses'):g}"
        raise Absent(f"CPUs that did the work: {cpus:g} here, {at}: a difference is not of the accesses alone")


def _require_answers(row: Row) -> None:
    """A kfunc that its driver refuses costs less than one that it answers."""
    own = json.loads(text(row, "metrics") or "{}")
    if refused := own.get("hints_refused_percent"):
        code = own["hints_errno"]
        name = "several errors" if code is None else errno.errorcode.get(code, "an error")
        raise Absent(f"the driver refused {refused:.3g} % of the calls ({name}): this is no cost of its answer")


def testrun_ns(trial: WithBaselines) -> float:
    """BPF_PROG_TEST_RUN of the program minus that of N = 0, in ns per packet."""
    raw_ns, accesses = number(trial.row, "testrun_raw_ns"), number(trial.row, "accesses")
    if raw_ns is None:
        raise Absent("BPF_PROG_TEST_RUN was not run on this program")
    if accesses is None:
        raise Absent("N of a user's program is not known: see testrun_raw_ns")
    if accesses == 0:
        raise Absent("N = 0 is the baseline itself")
    zeros = [zero for base in trial.baselines if (zero := number(base, "testrun_raw_ns")) is not None]
    if not zeros:
        raise Absent(_NO_BASELINE)
    return raw_ns - sum(zeros) / len(zeros)


SENT_BACK = 0.99
"""Least share of the received frames that a program must send back for its rate to be a cost."""


def _require_sent_back(row: Row) -> None:
    """A user's program may drop frames by design (a policer, a filter): then its rule determines the forwarded rate.
    A closed loop may lose them behind the count (a backlog).

    The number of received frames is known if no frame is lost between counter and program: in the closed loop of a
    shared CPU, and from the driver's own count.
    """
    received, done = number(row, "dut_rx_packets"), forwarded(row)
    counted = text(row, "arrangement") == "shared" or text(row, "mode") == "native"
    generated = number(row, "accesses") is not None and text(row, "arrangement") != "shared"
    if generated or text(row, "action") not in (None, "tx") or not counted or not received:
        return
    share = (done or 0.0) / received
    if share < SENT_BACK:
        raise Absent(f"{share:.1%} of the frames that the DUT received came back: the rate is not the program's cost")


_NO_BASELINE = "no valid N = 0 in the same block, repetition and setting"


def _paced_on_a_shared_cpu(row: Row) -> bool:
    return text(row, "arrangement") == "shared" and number(row, "rate_requested_pps") is not None


def _costs_show(row: Row) -> bool:
    """In the closed loop of a shared CPU, a difference of rates comes from the work, even if the sender dominates."""
    limit = text(row, "limited_by")
    if _paced_on_a_shared_cpu(row):
        return False
    return limit in ("dut", "shared_cpu") or (limit == "generator" and text(row, "arrangement") == "shared")


def _known_cpu_ns(row: Row) -> float:
    value = cpu_ns(row)
    if value is None:
        raise Absent("nothing was forwarded" if work_cpus(row) else "how many CPUs do the DUT's work was not recorded")
    return value


ACROSS_TRIALS: tuple[Column[WithBaselines], ...] = (
    Column("ns_per_packet", "float", "time",
           "1e9 x (CPUs that do DUT work - other_busy_cores) / forwarded_pps; null unless the DUT or the shared CPU is "
           "the limit; null where N = 0, or most N if that has no such time, has one of another number of CPUs",
           ns_per_packet),
    Column("access_ns", "float", "time",
           "all N accesses of a packet: 1e9/pps(N) - 1e9/pps(0), N = 0 of the same block, repetition, engine and size, "
           "per CPU and less what other work took; null where another number of CPUs did the work of N = 0, or few of "
           "its frames came back",
           access_ns),
    Column("testrun_ns", "float", "time",
           "all N accesses of a packet: testrun_raw_ns minus that of N = 0; null for a user's program",
           testrun_ns),
)  # fmt: skip
_BY_NAME = by_name(ACROSS_TRIALS)


Visits = Mapping[tuple[str, int], tuple[int, float]]
"""By trial and attempt: the number of the uninterrupted visit of its block, and when it ended, in seconds."""


def derive(trials: pd.DataFrame, visits: Visits | None = None) -> pd.DataFrame:
    """Return a copy of judged ``trials`` with ns_per_packet, access_ns and testrun_ns, or the reason why not.

    With ``visits``, the reason of a valid trial tells if its N = 0 was measured in another visit of their block.
    """
    places, programs = key_of(trials, BASELINE_KEY), key_of(trials, PROGRAM)
    without = trials["accesses"].eq(0).fillna(False).astype(bool) & trials.index.isin(settled(trials).index)
    baselines = _baselines(zip(places[without], programs[without], records(trials[without]), strict=True))
    others = _of_mixed_cpus(trials, places, programs)
    values: dict[str, list[float | None]] = {name: [] for name in _BY_NAME}
    null_reasons: list[str | None] = []
    reasons: list[str | None] = []
    for row, place, program in zip(_rows(trials), places, programs, strict=True):
        chosen = _chosen(baselines, place, program)
        answer = ColumnValues(_BY_NAME, WithBaselines(row, chosen, others.get((place, program), ())))
        for name, column in values.items():
            column.append(answer[name])
        null_reasons.append(_merged(row, answer))
        reasons += [_with_visit(row, chosen, visits)] if visits else []
    if visits:
        trials = trials.assign(reason=texts(reasons))
    columns = {name: pd.array(column, dtype="Float64") for name, column in values.items()}
    return trials.assign(**columns, null_reasons=texts(null_reasons))


AT_ONCE = 10_000
"""Rows that are held at a time: one as a mapping takes 24 kB."""


def _rows(trials: pd.DataFrame) -> Iterator[Row]:
    for start in range(0, len(trials), AT_ONCE):
        yield from records(trials.iloc[start : start + AT_ONCE])


def _of_mixed_cpus(trials: pd.DataFrame, places: pd.Series, programs: pd.Series) -> dict[tuple[str, str], list[Row]]:
    """Return the last attempts at each place, by N, if another number of CPUs worked in some of them: few have that."""
    if trials["dut_cpus"].nunique() < 2:
        return {}
    cpus = trials["dut_cpus"].groupby([pd.factorize(keys)[0] for keys in (places, programs)])
    mixed = cpus.transform("min").lt(cpus.transform("max")).fillna(False)
    last = trials[mixed & trials["accesses"].notna() & trials.index.isin(settled(trials).index)]
    ordered = last.sort_values("accesses", kind="stable")
    at_place: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for place, program, row in zip(places[ordered.index], programs[ordered.index], records(ordered), strict=True):
        at_place[place, program].append(row)
    return at_place


def _baselines(trials: Iterable[tuple[str, str, Row]]) -> dict[str, list[tuple[str, Row]]]:
    baselines: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for place, program, row in trials:
        if text(row, "verdict") == "valid":
            baselines[place].append((program, row))
    return baselines


def _chosen(baselines: dict[str, list[tuple[str, Row]]], place: str, program: str) -> list[Row]:
    """N = 0 of the same program if the plan measured it, else of the setting's first program: the code is the same."""
    candidates = baselines.get(place, [])
    names = [name for name, _ in candidates]
    return [base for name, base in candidates if name == (program if program in names else names[0])]


def _with_visit(row: Row, baselines: Sequence[Row], visits: Visits) -> str | None:
    """Return the row's reason; with a remark if `--extend`, `resume` or a retry came between its N = 0 and itself.

    A row that was derived before may have a remark that another attempt made untrue.
    """
    parts = [part for part in (text(row, "reason") or "").split("; ") if part and not part.startswith(_OTHER_VISIT)]
    own_visit = visits.get(_attempt(row))
    others = [visits[_attempt(base)] for base in baselines if _attempt(base) in visits]
    compared = text(row, "verdict") == "valid" and number(row, "accesses")
    if compared and own_visit is not None and others and all(visit != own_visit[0] for visit, _ in others):
        apart = min(abs(own_visit[1] - ended) for _, ended in others)
        time = f"{apart:.0f} s" if apart < 120 else f"{apart / 60:,.0f} minutes"
        parts.append(f"{_OTHER_VISIT}, {time} apart")
    return "; ".join(parts) or None


_OTHER_VISIT = "its N = 0 was measured in another visit of the block"


def _attempt(row: Row) -> tuple[str, int]:
    return str(row["trial_id"]), int(number(row, "attempt") or 1)


def _merged(row: Row, answer: ColumnValues[WithBaselines]) -> str | None:
    return _with_answers(text(row, "null_reasons"), tuple((name, answer.reason(name)) for name in answer))


@lru_cache(maxsize=512)
def _with_answers(before: str | None, answers: tuple[tuple[str, str | None], ...]) -> str | None:
    """Reasons are thousands of characters long, and most trials share theirs: each text is made once."""
    names = [name for name, _ in answers]
    reasons = {column: why for column, why in json.loads(before or "{}").items() if column not in names}
    reasons |= {name: why for name, why in answers if why is not None}
    return json.dumps(reasons, ensure_ascii=False, sort_keys=True) if reasons else None
