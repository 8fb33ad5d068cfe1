"""Rules that compare the cost of the accesses, from the rates, with BPF_PROG_TEST_RUN of the same programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import inf, sqrt

import pandas as pd

from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.intervals import CONFIDENCE, t_quantile
from xdplab.analysis.series import by_series, first_label, places_by, rows_where, valid
from xdplab.analysis.values import Row, is_null, number, records, text, three_digits

TESTRUN_TOLERANCE = 0.15
"""Largest allowed difference of access_ns from testrun_ns, as a share of it: traffic and test runs use caches
differently."""


STATS_TOLERANCE = 0.25
"""Largest allowed difference of testrun_raw_ns from program_run_ns, as a share of it."""
LOOP_NS, CLOCKS_NS = 40.0, 15.0
"""What the loop of a test run takes at most, and what the clocks of BPF statistics may be off, per packet."""


@dataclass(frozen=True)
class Checked:
    """access_ns - testrun_ns of one N of a series over its repetitions, in ns; ``freedom`` of its standard error."""

    label: str
    accesses: int
    apart: float
    se: float
    freedom: int
    testrun_ns: float
    rows: pd.DataFrame

    @property
    def tolerance(self) -> float:
        return TESTRUN_TOLERANCE * self.testrun_ns

    def half(self, family: int = 1) -> float:
        """Return the t interval's half-width, by Bonferroni over ``family`` points; infinite for one repetition."""
        if not self.freedom:
            return inf
        return t_quantile(1 - (1 - CONFIDENCE) / 2 / family, self.freedom) * self.se

    def evidence(self) -> dict[str, float]:
        numbers = {"accesses": float(self.accesses), "testrun_ns": self.testrun_ns}
        numbers |= {"access_ns": self.testrun_ns + self.apart, "n": float(len(self.rows))}
        return numbers | ({"half_width_ns": self.half()} if self.freedom else {})


def checked(trials: pd.DataFrame) -> list[Checked]:
    """Compare within each repetition: both values are of the same loaded program.

    A rate's noise is a share of the packet's time, so the spread is pooled over a series as that share; a point that
    spreads more keeps its own.
    """
    rows_with_both = valid(trials)
    rows_with_both = rows_with_both[rows_with_both["access_ns"].notna() & rows_with_both["testrun_ns"].gt(0)]
    points = []
    for label, rows in by_series(rows_with_both):
        apart = (rows["access_ns"] - rows["testrun_ns"]).astype(float)
        packet_ns = (1e9 * rows["dut_cpus"].fillna(1) / rows["forwarded_pps"]).astype(float)
        by_n = [(rows.iloc[at], apart.iloc[at], packet_ns.iloc[at].mean()) for _, at in places_by(rows["accesses"])]
        freedom = sum(len(values) - 1 for _, values, _ in by_n)
        squares = sum(((values - values.mean()) ** 2).sum() / scale**2 for _, values, scale in by_n)
        share = sqrt(squares / freedom) if freedom else inf
        for group, values, scale in by_n:
            sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            se = max(share * scale, sd) / sqrt(len(values))
            n, alone = int(group["accesses"].iloc[0]), float(group["testrun_ns"].mean())
            points.append(Checked(label, n, float(values.mean()), se, freedom, alone, group))
    return points


def testrun_disagrees(trials: pd.DataFrame) -> Iterator[Finding]:
    """The whole interval of access_ns is outside the tolerance around testrun_ns: one of the two includes other
    costs."""
    checked_points = checked(trials)
    far = [one for one in checked_points if abs(one.apart) - one.half(len(checked_points)) > one.tolerance]
    for label, points in groupby(far, key=lambda one: one.label):
        those = list(points)
        one = max(those, key=lambda point: abs(point.apart) / point.tolerance)
        shown = pd.concat([point.rows for point in those])
        what = (
            f"{label}: the rates say that {one.accesses} accesses cost {three_digits(one.testrun_ns + one.apart)} ns, "
            f"BPF_PROG_TEST_RUN of the same programs {three_digits(one.testrun_ns)} ns; {len(those)} N differ by "
            f"more than {TESTRUN_TOLERANCE:.0%}"
        )
        yield Finding("test run disagrees", "warning", what, points_of(shown), one.evidence(), files_of(shown))


def testrun_contradicted(trials: pd.DataFrame) -> Iterator[Finding]:
    """Both are times of the same loaded program: in test runs, and by BPF statistics in the traffic.

    A test run has the kernel's loop around it, which statistics do not have; in traffic the caches are colder, at a
    paced load as cold as they become between two frames: such times are not compared.
    """
    timed = valid(trials[trials["rate_requested_pps"].isna()])
    timed = timed[timed["testrun_raw_ns"].notna() & timed["program_run_ns"].notna()]
    for _, rows in timed.groupby("point_id", sort=False):
        test, live = float(rows["testrun_raw_ns"].mean()), float(rows["program_run_ns"].mean())
        apart, allowed = test - live, STATS_TOLERANCE * live
        if -allowed - CLOCKS_NS <= apart <= allowed + LOOP_NS:
            continue
        what = (
            f"{first_label(rows)}: BPF_PROG_TEST_RUN says {three_digits(test)} ns per packet, and BPF statistics of "
            f"the same trials say {three_digits(live)} ns: the program's work or its caches are others in the traffic"
        )
        evidence = {"testrun_raw_ns": test, "program_run_ns": live}
        yield Finding("test run contradicted", "warning", what, points_of(rows), evidence, files_of(rows))


def cost_not_resolved(trials: pd.DataFrame) -> Iterator[Finding]:
    """The interval of access_ns is wider than the tolerance: the run cannot tell what so few accesses cost."""
    points = checked(trials)
    wide = [one for one in points if one.half() > one.tolerance]
    if not wide:
        return
    one = max(wide, key=lambda point: point.half() / point.tolerance)
    shown = pd.concat([point.rows for point in wide])
    width = f"is known to ±{three_digits(one.half())} ns" if one.freedom else "was measured once"
    counts = ", ".join(f"{n}" for n in sorted({point.accesses for point in wide}))
    what = (
        f"access_ns cannot be checked at {len(wide)} of {len(points)} points (N = {counts}): {one.label}, "
        f"N = {one.accesses}: it {width}, and BPF_PROG_TEST_RUN says {three_digits(one.testrun_ns)} ns; more "
        "repetitions or more accesses would show it"
    )
    yield Finding("cost not resolved", "info", what, points_of(shown), one.evidence(), files_of(shown))


BLOCK = 32  # fewer accesses than one unrolled block are mostly the walk's own work
SAME_WORK = 0.25
"""A larger difference of loads or stores per access means different work: each workload adds at least one."""


OF_WORK = (
    *("run_id", "trial_id", "attempt", "verdict", "program_name", "mode", "accesses"),
    *("access_loads", "access_stores", "access_chain", "null_reasons"),
)
"""The columns for this rule: choosing rows of all hundred nullable columns takes twenty times as long."""


def unequal_work(trials: pd.DataFrame) -> list[str]:
    """Return a phrase for each program whose access does other machine work in user space (AF_XDP) than in the kernel.

    Runs that recorded neither give no phrase.
    """
    counted = trials[[name for name in OF_WORK if name in trials]]
    counted = rows_where(counted, counted["accesses"].ge(BLOCK))
    if counted["mode"].isin(["af_xdp"]).nunique() < 2:
        return []
    phrases = []
    for program, rows in valid(counted).groupby("program_name", sort=False, observed=True):
        is_user = rows["mode"].isin(["af_xdp"])
        kernel, user = _widest(rows[~is_user]), _widest(rows[is_user])
        if kernel is None or user is None or is_null(user["access_loads"]):
            continue
        apart = _apart(kernel, user)
        if apart:
            phrases.append(f"{str(program).replace('-', ' ')}: {apart}")
    return phrases


def _widest(rows: pd.DataFrame) -> Row | None:
    return records(rows.sort_values("accesses", kind="stable").tail(1))[0] if len(rows) else None


def _apart(kernel: Row, user: Row) -> str | None:
    if is_null(kernel["access_loads"]):
        missing = json.loads(text(kernel, "null_reasons") or "{}").get("access_loads", "")
        return f"{missing}; in AF_XDP's user space it is {_counted(user)}" if "function" in missing else None
    names = ("access_loads", "access_stores")
    if any(abs((number(kernel, name) or 0) - (number(user, name) or 0)) > SAME_WORK for name in names):
        return f"an access is {_counted(kernel)} in the kernel, {_counted(user)} in AF_XDP's user space"
    chains = text(kernel, "access_chain"), text(user, "access_chain")
    if None not in chains and chains[0] != chains[1]:
        return f"each load waits for {chains[0]} in the kernel, for {chains[1]} in AF_XDP's user space"
    return None


def _counted(side: Row) -> str:
    return f"{number(side, 'access_loads') or 0:.1f} loads and {number(side, 'access_stores') or 0:.1f} stores"


def work_differs(trials: pd.DataFrame) -> Iterator[Finding]:
    """Modes of one program that do different work per access: the difference of their costs is not due to the mode."""
    for _, rows in valid(trials).groupby("program_name", sort=False, observed=True):
        for phrase in unequal_work(rows):
            yield Finding("unequal work", "warning", f"not the same work: {phrase}", points_of(rows))
