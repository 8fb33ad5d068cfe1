"""Columns that need more than one trial: service time, access cost, test-run cost minus its baseline.

A value that cannot be computed is null, and ``null_reasons`` says why.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import pandas as pd

from xdplab.analysis.series import PROGRAM, SETTING, key_of, valid
from xdplab.analysis.values import Row, number, records, text
from xdplab.analysis.verdicts import forwarded
from xdplab.run.metrics import texts

Answer = float | str  # the value, or the reason why there is none
BASELINE_KEY = ("block", "repetition", *SETTING)


def work_cpus(row: Row) -> float | None:
    """Return how many CPUs do the DUT's work: one for one queue; for more queues from the trial's record."""
    cpus = number(row, "dut_cpus")
    return cpus if cpus else (1.0 if number(row, "queues") == 1 else None)


def cpu_ns(row: Row) -> float | None:
    """Return the CPU time per packet in ns: 1e9 x CPUs that do DUT work / forwarded_pps, less what others took."""
    rate, cpus, other = number(row, "forwarded_pps"), work_cpus(row), number(row, "other_busy_cores") or 0.0
    return 1e9 * max(cpus - other, 0.0) / rate if rate and cpus else None


def _limited(row: Row, so: str) -> str:
    limit = text(row, "limited_by")
    return f"limited by {limit}: {so}" if limit else "what limited the rate is not known: see limited_by"


def ns_per_packet(row: Row, baselines: Sequence[Row]) -> Answer:
    """Return the service time of one packet, if the DUT or the shared CPU was the limit."""
    if text(row, "verdict") != "valid":
        return f"the trial is {text(row, 'verdict')}"
    if text(row, "limited_by") not in ("dut", "shared_cpu"):
        return _limited(row, "the rate is not the DUT's")
    if _paced_on_a_shared_cpu(row):
        return "a paced load does not keep the shared CPU busy"
    return _kept_back(row) or _cpu_ns_or_reason(row)


def access_ns(row: Row, baselines: Sequence[Row]) -> Answer:
    """CPU time of a packet's N accesses: 1e9/pps(N) - 1e9/pps(0), times the CPUs that do DUT work and are not taken."""
    if number(row, "accesses") is None:
        return "N of a user's program is not known"
    if number(row, "accesses") == 0:
        return "N = 0 is the baseline itself"
    if text(row, "verdict") != "valid":
        return f"the trial is {text(row, 'verdict')}"
    if _paced_on_a_shared_cpu(row):
        return "a paced load does not keep the shared CPU busy"
    if not _costs_show(row):
        return _limited(row, "the rate does not show the accesses' cost")
    if lost := _kept_back(row):
        return lost
    shown = [base for base in baselines if _costs_show(base)]
    if not shown:
        return "N = 0 is not limited by the DUT" if baselines else _NO_BASELINE
    own, zeros = _cpu_ns_or_reason(row), [cpu_ns(base) for base in shown]
    known = [zero for zero in zeros if zero is not None]
    return own if isinstance(own, str) or not known else own - sum(known) / len(known)


def testrun_ns(row: Row, baselines: Sequence[Row]) -> Answer:
    """BPF_PROG_TEST_RUN of the program minus that of N = 0, in ns per packet."""
    own = number(row, "testrun_raw_ns")
    if own is None:
        return "BPF_PROG_TEST_RUN was not run on this program"
    if number(row, "accesses") is None:
        return "N of a user's program is not known: see testrun_raw_ns"
    if number(row, "accesses") == 0:
        return "N = 0 is the baseline itself"
    zeros = [zero for base in baselines if (zero := number(base, "testrun_raw_ns")) is not None]
    return own - sum(zeros) / len(zeros) if zeros else _NO_BASELINE


SENT_BACK = 0.99
"""Least share of the received frames that a program must send back for its rate to be a cost."""


def _kept_back(row: Row) -> str | None:
    """A user's program may drop frames by design (a policer, a filter): then its rule determines the forwarded rate.
    A closed loop may lose them behind the count (a backlog).

    The number of received frames is known if no frame is lost between counter and program: in the closed loop of a
    shared CPU, and from the driver's own count.
    """
    received, done = number(row, "dut_rx_packets"), forwarded(row)
    counted = text(row, "arrangement") == "shared" or text(row, "mode") == "native"
    generated = number(row, "accesses") is not None and text(row, "arrangement") != "shared"
    if generated or text(row, "action") not in (None, "tx") or not counted or not received:
        return None
    share = (done or 0.0) / received
    if share >= SENT_BACK:
        return None
    return f"{share:.1%} of the frames that the DUT received came back: the rate is not the program's cost"


_NO_BASELINE = "no valid N = 0 in the same block, repetition and setting"


def _paced_on_a_shared_cpu(row: Row) -> bool:
    """In a closed loop a rate is a cost only if the loop runs without a pause."""
    return text(row, "arrangement") == "shared" and number(row, "rate_requested_pps") is not None


def _costs_show(row: Row) -> bool:
    """In the closed loop of a shared CPU, a difference of rates comes from the work, even if the sender dominates."""
    limit = text(row, "limited_by")
    if _paced_on_a_shared_cpu(row):
        return False
    return limit in ("dut", "shared_cpu") or (limit == "generator" and text(row, "arrangement") == "shared")


def _cpu_ns_or_reason(row: Row) -> Answer:
    value = cpu_ns(row)
    if value is not None:
        return value
    return "nothing was forwarded" if work_cpus(row) else "how many CPUs do the DUT's work was not recorded"


COLUMNS: dict[str, Callable[[Row, Sequence[Row]], Answer]] = {
    "ns_per_packet": ns_per_packet,
    "access_ns": access_ns,
    "testrun_ns": testrun_ns,
}


Visits = Mapping[tuple[str, int], tuple[int, float]]
"""By trial and attempt: the number of the uninterrupted visit of its block, and when it ended, in seconds."""


def derive(trials: pd.DataFrame, visits: Visits | None = None) -> pd.DataFrame:
    """Return a copy of judged ``trials`` with ns_per_packet, access_ns and testrun_ns, or the reason why not.

    With ``visits``, the reason of a valid trial tells if its N = 0 was measured in another visit of their block.
    """
    rows = records(trials)
    baselines = _baselines(trials)
    places, programs = key_of(trials, BASELINE_KEY), key_of(trials, PROGRAM)
    chosen = [_chosen(baselines, p, g) for p, g in zip(places, programs, strict=True)]
    answers = [
        {name: column(row, own) for name, column in COLUMNS.items()} for row, own in zip(rows, chosen, strict=True)
    ]
    if visits:
        said = [_with_visit(row, own, visits) for row, own in zip(rows, chosen, strict=True)]
        trials = trials.assign(reason=texts(said))
    columns = {name: pd.array([_value(a[name]) for a in answers], dtype="Float64") for name in COLUMNS}
    reasons = [_merged(row, answer) for row, answer in zip(rows, answers, strict=True)]
    return trials.assign(**columns, null_reasons=texts(reasons))


def _baselines(trials: pd.DataFrame) -> dict[str, list[tuple[str, Row]]]:
    zeros = valid(trials)
    zeros = zeros[zeros["accesses"].eq(0).fillna(False)]
    found: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    keys = zip(key_of(zeros, BASELINE_KEY), key_of(zeros, PROGRAM), records(zeros), strict=True)
    for place, program, row in keys:
        found[place].append((program, row))
    return found


def _chosen(baselines: dict[str, list[tuple[str, Row]]], place: str, program: str) -> list[Row]:
    """N = 0 of the same program if the plan measured it, else of the setting's first program: the code is the same."""
    there = baselines.get(place, [])
    names = [name for name, _ in there]
    return [base for name, base in there if name == (program if program in names else names[0])]


def _with_visit(row: Row, baselines: Sequence[Row], visits: Visits) -> str | None:
    """Return the row's reason; with a remark if `--extend`, `resume` or a retry came between its N = 0 and itself."""
    reason, own = text(row, "reason"), visits.get(_attempt(row))
    told = [visits[_attempt(base)] for base in baselines if _attempt(base) in visits]
    compared = text(row, "verdict") == "valid" and number(row, "accesses")
    if not compared or own is None or not told or any(visit == own[0] for visit, _ in told):
        return reason
    apart = min((abs(own[1] - ended) for _, ended in told))
    time = f"{apart:.0f} s" if apart < 120 else f"{apart / 60:,.0f} minutes"
    words = f"its N = 0 was measured in another visit of the block, {time} apart"
    return reason if reason and words in reason else "; ".join(one for one in (reason, words) if one)


def _attempt(row: Row) -> tuple[str, int]:
    return str(row["trial_id"]), int(number(row, "attempt") or 1)


def _value(answer: Answer) -> float | None:
    return None if isinstance(answer, str) else answer


def _merged(row: Row, answers: Mapping[str, Answer]) -> str | None:
    said = tuple((name, answer if isinstance(answer, str) else None) for name, answer in answers.items())
    return _with_answers(text(row, "null_reasons"), said)


@lru_cache(maxsize=512)
def _with_answers(before: str | None, answers: tuple[tuple[str, str | None], ...]) -> str | None:
    """Reasons are thousands of characters long, and most trials share theirs: each text is made once."""
    names = [name for name, _ in answers]
    reasons = {column: why for column, why in json.loads(before or "{}").items() if column not in names}
    reasons |= {name: why for name, why in answers if why is not None}
    return json.dumps(reasons, ensure_ascii=False, sort_keys=True) if reasons else None
