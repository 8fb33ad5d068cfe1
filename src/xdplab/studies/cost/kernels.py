"""What a packet costs in each kernel: runs of study cost side by side, and what changed between neighbouring kernels.

It measures nothing, and any order of the runs gives the same. Only what holds to less than an instruction is added and
compared, so that two boots give the same text; runs disagree where exact counts do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd

from xdplab.errors import ResultsError
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.studies import environment
from xdplab.studies.cost.gate import TOTALS, Counts
from xdplab.studies.cost.measurement import ALLOCATOR, CALLED, PATH, PROGRAM, WHOLE
from xdplab.studies.cost.points import MODES, CostPoint
from xdplab.studies.cost.rows import FUNCTION
from xdplab.studies.kind import Run
from xdplab.text import many, natural

PARTS = tuple(part for part in TOTALS if part != WHOLE)
MARKS = {PATH: "p", ALLOCATOR: "a"}
"""What stands in a cell for a part that holds to a range."""
LEAST_RANGE = Fraction(1, 2)
"""Half of a range, in instructions, from which on a count does not hold."""


class GuestKernel(NamedTuple):
    """A guest's kernel: ``build`` is its ``uname -v``, ``packages`` have hashes; both are empty if it never booted."""

    release: str
    architecture: str
    build: str
    packages: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.architecture, natural(self.release), self.build, self.packages)


class CountedProgram(NamedTuple):
    """What is counted: a program with its frames in a mode. ``object``: hash of code, options and maps' contents."""

    program: str
    object: str
    mode: str
    frames: str
    frame_bytes: int | None
    flows: int


class Count(NamedTuple):
    """Instructions per packet; another boot may count ``half`` more or fewer, 0 where it is exact."""

    value: Fraction
    half: Fraction

    @property
    def holds(self) -> bool:
        """Tell whether another boot gives the same whole number, or nearly so."""
        return self.half < LEAST_RANGE


NOTHING = Count(Fraction(), Fraction())


@dataclass(frozen=True)
class Packet:
    """A subject in one kernel, as a run counted it, or the ``reason`` why it did not. ``way``: how its frames come."""

    subject: CountedProgram
    kernel: GuestKernel
    run: str
    compiler: str | None
    way: str
    parts: Mapping[str, Count]
    functions: Mapping[str, Count]
    rows: pd.DataFrame
    reason: str | None = None

    @property
    def marks(self) -> list[str]:
        """The parts that hold to a range; the allocator is a part of a path that does."""
        ranged = [part for part in MARKS if part in self.parts and not self.parts[part].holds]
        return ranged[:1] if PATH in ranged else ranged

    @property
    def left_out(self) -> list[str]:
        return [PATH, ALLOCATOR] if PATH in self.marks else self.marks

    @property
    def text(self) -> str:
        """The sum of the parts that hold, and a mark for each that does not."""
        total = sum((count.value for part, count in self.parts.items() if part not in self.left_out), Fraction())
        return " + ".join([f"{float(total):.0f}", *(MARKS[part] for part in self.marks)])

    def ends(self, part: str) -> tuple[float, float]:
        """Return the least and the most that a part with a mark may take in another boot."""
        names = self.left_out if part == PATH else [part]
        counts = [self.parts[name] for name in names if name in self.parts]
        return float(sum(one.value - one.half for one in counts)), float(sum(one.value + one.half for one in counts))


def packets_of(run: Run[Any]) -> Iterator[Packet]:
    """Give each packet that a run of study cost tried."""
    around, table = run.around(), run.rows()
    counted = {str(trial): rows for trial, rows in table.groupby("trial_id", sort=False)}
    for trial, last, _ in run.plan.attempts():
        point = trial.point
        kernel = _kernel(point, last.facts.get("kernel_release"), around)
        place = (_subject(point), kernel, run.directory.run_id, point.compiler, point.way)
        if (rows := counted.get(trial.trial_id)) is None:
            yield Packet(*place, {}, {}, table.iloc[:0], last.reason or last.status)
        else:
            yield Packet(*place, _parts(rows), _functions(rows), rows.loc[rows["part"].eq(WHOLE)])


def _subject(point: CostPoint) -> CountedProgram:
    content = point.object.rpartition("-")[2]
    return CountedProgram(point.program, content, point.mode, point.frames, point.frame_bytes, point.flows)


def _kernel(point: CostPoint, release: str | None, around: Mapping[str, str]) -> GuestKernel:
    architecture = point.kernel.partition(ARCHITECTURE_MARK)[2]
    if release is None and (release := around.get(f"{point.place}: kernel")) is None:
        return GuestKernel(point.kernel, architecture, "", "")
    is_last = around.get(f"{point.place}: kernel") == release  # another session may have had an older one
    build, packages = (
        around.get(f"{point.place}: {name}", "") * is_last for name in ("kernel_build", "kernel_packages")
    )
    return GuestKernel(release, architecture, build, packages)


def _parts(rows: pd.DataFrame) -> dict[str, Count]:
    counts = {str(row["part"]): _count(row) for row in rows.loc[rows["part"].isin(PARTS)].to_dict("records")}
    return {part: counts[part] for part in PARTS if part in counts}


def _count(row: Mapping[Any, Any]) -> Count:
    if pd.notna(row["exact"]):
        return Count(Fraction(row["exact"]), Fraction())
    return Count(Fraction(row["instructions"]), Fraction(row["high_instructions"] - row["low_instructions"]) / 2)


def _functions(rows: pd.DataFrame) -> dict[str, Count]:
    """Return the kernel's functions, each without what it calls; what a compiler split is one."""
    summed: dict[str, Count] = {}
    for row in rows.loc[rows["part"].eq(FUNCTION)].to_dict("records"):
        if ":" not in (whole := str(row["name"])):  # of a program, or of a file in user space
            name, count = whole.partition(".")[0], _count(row)
            before = summed.get(name, NOTHING)
            summed[name] = Count(before.value + count.value, before.half + count.half)
    return summed


class Step(NamedTuple):
    """What changed of a subject's packet from one kernel to the next, in instructions: parts that hold in both, and if
    the path does, functions."""

    old: Packet
    new: Packet

    @property
    def parts(self) -> Counts:
        left_out = (*self.old.left_out, *self.new.left_out)
        return _changes(self.old.parts, self.new.parts, {*PARTS} - {*left_out})

    @property
    def functions(self) -> Counts:
        if PATH in (*self.old.left_out, *self.new.left_out):
            return {}
        return _changes(self.old.functions, self.new.functions, {*self.old.functions, *self.new.functions})


def _changes(old: Mapping[str, Count], new: Mapping[str, Count], names: Iterable[str]) -> Counts:
    """Return the changes that are some, of counts that hold on both sides; what one side lacks is 0 in it."""
    pairs = {name: (old.get(name, NOTHING), new.get(name, NOTHING)) for name in names}
    return {name: b.value - a.value for name, (a, b) in pairs.items() if a.holds and b.holds and a.value != b.value}


@dataclass(frozen=True)
class KernelReport:
    """Packets of one or several runs. ``origins``: of each run its identity, day and xdplab, in words."""

    tried: Sequence[Packet]
    origins: Sequence[str]

    @cached_property
    def kernels(self) -> list[GuestKernel]:
        return sorted({packet.kernel for packet in self.tried}, key=lambda kernel: kernel.order)

    @cached_property
    def subjects(self) -> list[CountedProgram]:
        """By mode, then by name."""
        return sorted(
            {packet.subject for packet in self.tried},
            key=lambda one: (MODES.index(one.mode), natural(one.program), one.frame_bytes or 0, one.flows, one[1:4]),
        )

    @cached_property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(subject.mode for subject in self.subjects))

    @cached_property
    def packets(self) -> dict[tuple[CountedProgram, GuestKernel], list[Packet]]:
        """The packets of each cell: those that were counted, else those that were not; of equal ones the most exact."""
        cells: dict[tuple[CountedProgram, GuestKernel], list[Packet]] = defaultdict(list)
        for packet in sorted(self.tried, key=lambda one: (one.reason is not None, len(one.left_out), one.run)):
            cell = cells[packet.subject, packet.kernel]
            if not cell or (packet.reason is None and all(_disagree(packet, one) for one in cell)):
                cell.append(packet)
        return dict(cells)

    @cached_property
    def disagreements(self) -> list[str]:
        """Where runs have other exact counts of one object in one kernel, with the numbers."""
        lines = []
        for (subject, kernel), (first, *others) in self.packets.items():
            for other in others:
                parts = ", ".join(
                    f"{part} {float(first.parts[part].value):.3f} in run {first.run}, "
                    f"{float(other.parts[part].value):.3f} in run {other.run}" for part in _disagree(first, other)
                )  # fmt: skip
                lines.append(f"Linux {self.label(kernel)}, {subject.mode}, {self.name(subject)}: {parts}")
        return sorted(lines)

    @cached_property
    def reasons(self) -> list[str]:
        """Why packets of kernels that counted others have no count; a kernel that counted none is a row by itself."""
        cells = self.packets.values()
        return sorted({str(one.reason) for (one, *_) in cells if one.reason and self._counted_in(one.kernel)})

    def _counted_in(self, kernel: GuestKernel) -> int:
        return sum(cell[0].reason is None for (_, one), cell in self.packets.items() if one == kernel)

    def label(self, kernel: GuestKernel) -> str:
        """Return a kernel's release, with what tells it from others of that release."""
        alike = [one for one in self.kernels if one.release == kernel.release]
        short = kernel.release.removesuffix("-amd64")
        if len(alike) == 1:
            return short
        by_build = len({one.build for one in alike}) == len(alike)
        return f"{short} ({kernel.build if by_build else f'build {alike.index(kernel) + 1} of {len(alike)}'})"

    def name(self, subject: CountedProgram) -> str:
        """Return a subject's program, with what tells it from others of that name."""
        alike = [one for one in self.subjects if (one.program, one.mode) == (subject.program, subject.mode)]
        kinds = {"frame_bytes": " B", "flows": " flows", "object": ""}
        differ = [name for name in kinds if len({getattr(one, name) for one in alike}) > 1]
        return ", ".join([subject.program, *(f"{getattr(subject, name)}{kinds[name]}" for name in differ)])

    def cell(self, subject: CountedProgram, kernel: GuestKernel) -> str:
        """Return what one packet costs; where runs disagree, each count; empty if no run tried it."""
        packets = self.packets.get((subject, kernel), [])
        if not packets:
            return ""
        if (reason := packets[0].reason) is not None:
            return f"no [{self.reasons.index(reason) + 1}]" if reason in self.reasons else "no"
        return " ≠ ".join(packet.text for packet in packets)

    def costs(self, mode: str) -> pd.DataFrame:
        """Return a row for each program, a column for each kernel."""
        kernels = [kernel for kernel in self.kernels if self._counted_in(kernel)]
        rows = [
            {"program": self.name(subject)} | {self.label(kernel): self.cell(subject, kernel) for kernel in kernels}
            for subject in self.subjects
            if subject.mode == mode
        ]
        return pd.DataFrame(rows)

    def booted(self) -> pd.DataFrame:
        """Return a row for each kernel: its build and how many packets were counted in it, or why none was."""
        return pd.DataFrame([self._booted(kernel) for kernel in self.kernels])

    def _booted(self, kernel: GuestKernel) -> dict[str, str]:
        cells = [cell[0] for (_, one), cell in self.packets.items() if one == kernel]
        counted = self._counted_in(kernel)
        reasons = "; ".join(sorted({str(one.reason) for one in cells}))
        text = f"{counted} of {len(cells)}" if counted else f"none: {reasons}"
        return {"Linux": self.label(kernel), "build": kernel.build, "packets counted": text}

    def neighbours(self) -> list[tuple[GuestKernel, GuestKernel]]:
        counted = [kernel for kernel in self.kernels if self._counted_in(kernel)]
        return [(old, new) for old, new in pairwise(counted) if old.architecture == new.architecture]

    def steps(self, old: GuestKernel, new: GuestKernel, mode: str) -> dict[CountedProgram, Step]:
        """Return the step of each subject that both kernels counted, and on which the runs agree."""
        steps = {}
        for subject in (one for one in self.subjects if one.mode == mode):
            cells = [self.packets.get((subject, kernel), []) for kernel in (old, new)]
            if all(len(cell) == 1 and cell[0].reason is None for cell in cells):
                steps[subject] = Step(cells[0][0], cells[1][0])
        return steps

    def changes(self, old: GuestKernel, new: GuestKernel, mode: str, most: int) -> tuple[pd.DataFrame, int]:
        """Return a column for each program: the parts' change, then that of the ``most`` functions that change most;
        and how many others change. What changes by less than an instruction has no row."""
        steps = self.steps(old, new, mode)
        of_parts = {self.name(subject): step.parts for subject, step in steps.items()}
        of_functions = {self.name(subject): step.functions for subject, step in steps.items()}
        largest: Counter[str] = Counter()
        for changes in of_functions.values():
            largest |= Counter({name: round(abs(change)) for name, change in changes.items()})
        shown = sorted(largest, key=lambda name: (-largest[name], name))
        rows = [_row(_PART_TEXTS.get(part, part), part, of_parts) for part in (PROGRAM, CALLED, PATH)]
        rows += [_row(f"`{name}`", name, of_functions) for name in shown[:most]]
        return pd.DataFrame([row for row in rows if any([*row.values()][1:])]), len(shown[most:])

    def change(self, old: GuestKernel, new: GuestKernel, mode: str) -> str:
        """Say what a packet takes more or fewer in ``new``, of the programs whose path holds in both."""
        steps = {self.name(subject): step for subject, step in self.steps(old, new, mode).items()}
        compared = {name: step for name, step in steps.items() if PATH not in (*step.old.left_out, *step.new.left_out)}
        if not compared or old == new:
            return ""
        besides = any(step.old.left_out or step.new.left_out for step in compared.values())
        parts = {*PARTS} - {ALLOCATOR} if besides else {*PARTS}
        total = {
            name: round(float(sum(change for part, change in step.parts.items() if part in parts)))
            for name, step in compared.items()
        }
        least, most = min(total, key=lambda name: total[name]), max(total, key=lambda name: total[name])
        ends = f"{total[least]:+} ({least}) to {total[most]:+} ({most})"
        if total[least] == total[most]:
            ends = f"{total[least]:+} ({many(len(total), 'program')})"
        allocator = ", without its allocator" if besides else ""
        return f"from {self.label(old)} to {self.label(new)}, a packet takes {ends} instructions{allocator}"

    def changes_of(self, mode: str) -> str:
        """Say of each architecture how its newest kernel differs from the oldest that can be compared with it."""
        counted = [kernel for kernel in self.kernels if self._counted_in(kernel)]
        newest = {kernel.architecture: kernel for kernel in counted}
        pairs = [(old, newest[old.architecture]) for old in reversed(counted)]
        texts = {old.architecture: text for old, new in pairs if (text := self.change(old, new, mode))}
        return "; ".join(texts.values())

    def range_of(self, mode: str, kernel: GuestKernel, part: str) -> str:
        """Return the least and the most of a part that holds to a range, over the programs; empty if it holds."""
        cells = [cell[0] for (subject, of), cell in self.packets.items() if (subject.mode, of) == (mode, kernel)]
        ends = [packet.ends(part) for packet in cells if part in packet.marks]
        return f"{min(low for low, _ in ends):.0f} to {max(high for _, high in ends):.0f}" if ends else ""

    def compilers(self) -> pd.DataFrame:
        """Return the object of each program by its hash, and its compiler."""
        made = {(one.subject.program, one.subject.object): one.compiler or "an object as given" for one in self.tried}
        rows = [{"program": name, "object": of, "compiler": made[name, of]} for name, of in sorted(made)]
        return pd.DataFrame(rows)

    def wholes(self) -> pd.DataFrame:
        """Return the rows of the whole of each packet, as a figure takes them: programs by `name`."""
        packets = [self.packets.get((subject, kernel), []) for kernel in self.kernels for subject in self.subjects]
        rows = [one.rows.assign(program=self.name(one.subject)) for cell in packets for one in cell[:1]]
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script: instructions per packet."""
        counted = [packet for cell in self.packets.values() for packet in cell]
        return {
            "runs": list(self.origins),
            "disagreements": self.disagreements,
            "kernels": [{"label": self.label(kernel)} | kernel._asdict() for kernel in self.kernels],
            "packets": [self._packet_facts(packet) for packet in counted],
            "steps": [
                {"program": self.name(subject), "mode": mode, "old": self.label(old), "new": self.label(new)}
                | {"parts": _numbers(step.parts), "functions": _numbers(step.functions)}
                for old, new in self.neighbours()
                for mode in self.modes
                for subject, step in self.steps(old, new, mode).items()
            ],
        }

    def _packet_facts(self, packet: Packet) -> dict[str, Any]:
        place = {"name": self.name(packet.subject), "kernel": self.label(packet.kernel), "run": packet.run}
        counts = {name: {"instructions": float(one.value), "half_of_range": float(one.half)}
                  for name, one in packet.parts.items()}  # fmt: skip
        return place | packet.subject._asdict() | {"way": packet.way, "parts": counts, "reason": packet.reason}


_PART_TEXTS = {PROGRAM: "its own code", CALLED: "called by it", PATH: "kernel's path"}


def _disagree(one: Packet, other: Packet) -> list[str]:
    """Return the parts of which both have an exact count, and not the same.

    A tick leaves traces of less than `LEAST_RANGE` on a path; the allocator depends on all that was allocated before.
    """
    names = [part for part in one.parts if part in other.parts and part != ALLOCATOR]
    pairs = {part: (one.parts[part], other.parts[part]) for part in names}
    least = {PATH: LEAST_RANGE}
    return [
        part
        for part, (a, b) in pairs.items()
        if not (a.half or b.half) and a.value != b.value and abs(a.value - b.value) >= least.get(part, 0)
    ]


def _row(head: str, key: str, changes: Mapping[str, Counts]) -> dict[str, str]:
    def text(of: Counts) -> str:
        return f"{float(of[key]):+.0f}" if abs(of.get(key, Fraction())) >= LEAST_RANGE else ""

    return {"instructions per packet": head} | {program: text(of) for program, of in changes.items()}


def _numbers(counts: Counts) -> dict[str, float]:
    return {name: float(counts[name]) for name in sorted(counts, key=lambda name: (-abs(counts[name]), name))}


def report_of(runs: Iterable[Run[Any]]) -> KernelReport:
    """Return the report of runs of study cost; a copy of a run counts once. Raises ResultsError for another kind."""
    packets: dict[str, list[Packet]] = {}
    origins: dict[str, str] = {}
    for run in runs:
        if run.kind.name != "cost":
            raise ResultsError(f"{run.directory.name} is a run of kind {run.kind.name}, which counts nothing")
        packets[run.directory.run_id] = list(packets_of(run))
        owed = f", with {many(len(run.state.owed), 'packet')} not tried yet" if run.state.owed else ""
        origins[run.directory.run_id] = environment.origin(run.directory) + owed
    return KernelReport([one for of_run in packets.values() for one in of_run], sorted(origins.values()))
