"""What a run of study jit says: interpreter beside JIT, a filter's share of traffic, and the kernel's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from xdplab.studies.jit import joined
from xdplab.studies.jit.joined import SPEED_UP
from xdplab.studies.jit.points import FILTERS, INSN_CLASSES, JIT, MODES, SUITES, TCP, TEST_BPF, TRAFFIC, JitRequest
from xdplab.studies.jit.points import JitPoint as Point
from xdplab.studies.points import StudyPlan
from xdplab.studies.sentences import estimate, one_of_places, percent, sentence, span

HOW = {"interpreter": "interpreted", "jit": "compiled"}


def results(_plan: StudyPlan[JitRequest, Point], table: pd.DataFrame) -> list[str]:
    """Return how much longer the interpreter takes, a filter's share of its datagram, and how the tests ended."""
    if table.empty:
        return []
    return [sentence(text) for text in (_speed_ups(table), _shares(table), _tests(table)) if text]


def _speed_ups(table: pd.DataFrame) -> str:
    parts = {str(label): ", ".join(_of_place(rows)) for label, rows in table.groupby("label", sort=False)}
    parts = {label: text for label, text in parts.items() if text}
    return f"beside compiled code, the interpreter takes {one_of_places(parts)}" if parts else _one_mode(table)


def _of_place(table: pd.DataFrame) -> Iterator[str]:
    tests = joined.tests(table)
    for rows, names, what in (
        (joined.side_by_side(joined.part(table, INSN_CLASSES), ["subject"]), "subject", "one instruction"),
        (tests[tests["subject"].eq(SUITES[0])], "name", "one of the kernel's own tests"),
        (joined.side_by_side(joined.part(table, FILTERS), ["subject", "name"]), "subject", "a classic filter"),
    ):
        values = {str(row[names]): estimate(row[SPEED_UP]) for row in rows.dropna(subset=[SPEED_UP]).to_dict("records")}
        if values:
            counted = _counted(rows)
            yield f"{span(values, exact=counted)} times as {'many instructions' if counted else 'long'} for {what}"


def _one_mode(table: pd.DataFrame) -> str:
    """Return what one instruction costs at places that have only one of the modes."""
    parts = {}
    for label, of_place in table.groupby("label", sort=False):
        rows = joined.side_by_side(joined.part(of_place, INSN_CLASSES), ["subject"])
        for mode in MODES:
            costed = rows.dropna(subset=[mode])
            if len(costed):
                values = {row["subject"]: estimate(row[mode]) for row in costed.to_dict("records")}
                unit = f" {costed['unit'].iloc[0]}"
                parts[str(label)] = f"{span(values, unit, exact=_counted(costed))} {HOW[mode]}"
    return f"one instruction costs {one_of_places(parts)}" if parts else ""


def _shares(table: pd.DataFrame) -> str:
    parts = {}
    for label, of_place in table.groupby("label", sort=False):
        rows = pd.concat([joined.shares(joined.part(of_place, part), ["subject", key])
                          for part, key in ((TRAFFIC, "number"), (TCP, "name"))])  # fmt: skip
        texts = [f"{_percents(rows[mode])} {HOW[mode]}" for mode in MODES if rows[mode].notna().any()]
        if texts:
            parts[str(label)] = " and ".join(texts)
    return f"a filter is {one_of_places(parts)} of the work for a datagram or a TCP send" if parts else ""


def _percents(shares: pd.Series) -> str:
    least, most = percent(float(shares.min())), percent(float(shares.max()))
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def _tests(table: pd.DataFrame) -> str:
    rows = joined.part(table, TEST_BPF).drop_duplicates(["label", "trial_id", "number"])
    parts = {str(label): _ended(of_place) for label, of_place in rows.groupby("label", sort=False)}
    return f"of the kernel's own tests, {one_of_places(parts)}" if parts else ""


def _ended(rows: pd.DataFrame) -> str:
    texts = []
    for mode, of_mode in rows.groupby("mode", sort=True):
        each = of_mode.groupby(["subject", "number"])
        failed, left = int((~each["passed"].min().astype(bool)).sum()), int((each["jited"].min().eq(False)).sum())
        text = f"{len(each) - failed} of {len(each)} passed {HOW[str(mode)]}"
        texts.append(text + (f", {left} of them left to the interpreter" if mode == JIT and left else ""))
    return " and ".join(texts)


def _counted(rows: pd.DataFrame) -> bool:
    return bool(rows["unit"].eq("instructions").all())
