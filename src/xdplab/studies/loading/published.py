"""What was published on inserting BPF programs and modules, and where a run's table has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from xdplab.studies.loading.points import BPF, BUSYBOX, INSMOD, LIBBPF
from xdplab.studies.loading.rows import parts, values
from xdplab.studies.published import Experiment, Ours, ratio

_SIMPLE, _MODULES = "clock", "modules"
_SCALE = {"time": (1000.0, "µs"), "instructions": (1000.0, "thousand instructions")}


def _processes(kind: str) -> Callable[[pd.DataFrame], Iterator[Ours]]:
    def find(table: pd.DataFrame) -> Iterator[Ours]:
        rows = values(table[table["step"].eq("process")])
        for label, of_label in rows.groupby("label", sort=False):
            medians_of = of_label.groupby("kind")["value"].median()
            if {LIBBPF, kind} <= set(medians_of.index):
                scale, unit = _SCALE[str(of_label["clock"].iloc[0])]
                yield ratio(label, float(medians_of[LIBBPF]) / scale, float(medians_of[kind]) / scale, unit)

    return find


def _steps(table: pd.DataFrame) -> Iterator[tuple[str, float, float, pd.Series, str]]:
    """Give each place with the simple program's verify and jit, each of one source as the tables have them, and the
    costs of the loader's process."""
    if not table["task"].eq("load").any():
        return
    shares = parts(table)
    simple = shares[shares["kind"].eq(BPF) & shares["program"].eq(_SIMPLE)].dropna(subset=["verify", "jit"])
    processes = values(table[table["step"].eq("process") & table["kind"].eq(LIBBPF)])
    for row in simple.to_dict("records"):
        scale, unit = _SCALE[str(row["clock"])]
        whole = processes.loc[processes["label"].eq(row["label"]), "value"]
        yield str(row["label"]), float(row["verify"]) / scale, float(row["jit"]) / scale, whole / scale, unit


def _verifier_by_jit(table: pd.DataFrame) -> Iterator[Ours]:
    for label, verify, jit, _, unit in _steps(table):
        yield ratio(label, verify, jit, unit)


def _share(table: pd.DataFrame) -> Iterator[Ours]:
    for label, verify, jit, whole, unit in _steps(table):
        if len(whole):
            both, process = verify + jit, float(whole.median())
            yield Ours(
                label, 100 * both / process, f"{100 * both / process:.2g} %: {both:,.0f} of {process:,.0f} {unit}"
            )


EXPERIMENTS = (
    Experiment(
        _MODULES, "3", "insertion as whole processes: a BPF loader by insmod", "× 1.2 (loader 87 ms)", 1.2,
        _processes(INSMOD), "kmod's insmod of today is linked with a library of cryptography: most of it is that",
    ),
    Experiment(
        _MODULES, "3", "… by busybox insmod", "× 1.2", 1.2, _processes(BUSYBOX),
        "a static insmod costs less than a loader that is linked with libbpf and libelf",
    ),
    Experiment(
        _MODULES, "4", "simple program: verifier by JIT", "460 and 95 µs, × 4.8", 4.8, _verifier_by_jit,
        "instructions, not time: the JIT changes page tables, which takes time in few instructions",
    ),
    Experiment(
        _MODULES, "4", "share of verifier and JIT in the insertion", "0.633 %", 0.633, _share,
        "the published loader took 87 ms; libbpf's is a hundredth of it, of which these are more",
    ),
)  # fmt: skip
