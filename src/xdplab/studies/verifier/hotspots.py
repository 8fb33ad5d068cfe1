"""Where the instructions that a verifier processes come from: its log of each step, counted by source line."""

from __future__ import annotations

import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pandas as pd

from xdplab.analysis.values import is_null, records
from xdplab.errors import FormatError, ProgramError, XdplabError
from xdplab.formats.verifier import StepLog, VerifiedProgram, parse_bpfverify
from xdplab.hosts import Host
from xdplab.studies.verifier.machines import known_types, machine_of
from xdplab.studies.verifier.points import Given

By = Literal["line", "subprogram"]
OF_SUBPROGRAMS = ("subprogram", "processed_insns", "share", "insns", "stack_bytes", "begins")
COLUMNS = ("kernel", "program", "line", "processed_insns", "share", "insns", "most_of_one")
NO_LINE = "(no source line)"
NOT_LOGGED = "(not in the log)"
DEADLINE_S = 300.0
SLOWEST_BYTES_S = 0.5e6
"""Time limit of reading a log on its host: half of the limit for a guest that counts instructions."""

_STEP = re.compile(r"(\d+): \([0-9a-f]{2}\) ")
_PRUNED = re.compile(r"(?:from \d+ to )?(\d+)(?: \(speculative execution\))?: safe")
_SUBPROGRAM = re.compile(r"func#\d+ @(\d+)")
_SOURCE = re.compile(r"; ?(.*)")
_COUNTED = r"^([0-9]+: \([0-9a-f]{2}\) |(from [0-9]+ to )?[0-9]+( \(speculative execution\))?: safe|; |func#[0-9])"
"""The lines of a log that are counted, for grep: most of a large log shows how the verifier backtracks, and stays
there."""

_SEAM = "; "
"""An empty source line: between two parts of a log it is unknown which line a step belongs to."""
_WHOLE = 'cat -- "$1"'
_END = f'echo "{_SEAM}" && tail -n +2 -- "$1"'
_BOTH = 'cat -- "$2" && tail -c "+$3" -- "$1"'
_APART = f'cat -- "$2" && echo && {_END}'


def by_line(log: Iterable[str], total: int, *, cut: bool = False) -> pd.DataFrame:
    """Return one row per source line, the costliest first, of a log of level 2: `COLUMNS` from ``line`` on.

    ``total``: the verifier's own count of processed instructions, which is the sum of ``processed_insns``; ``insns`` is
    how many instructions the line has, ``most_of_one`` how often the most frequent one was processed. Lines come from
    the program's debug information; without it, the line is NO_LINE. The steps that a ``cut`` log lacks are the row
    NOT_LOGGED. Raises FormatError if the log has a different number of steps.
    """
    steps, _, missing = _steps(log, total, cut=cut)
    lines = steps.groupby("line", sort=False).agg(
        processed_insns=("count", "sum"), insns=("insn", "nunique"), most_of_one=("count", "max")
    )
    return _with_shares(lines.astype("Int64"), total, missing, "line")


def by_subprogram(
    log: Iterable[str], total: int, stack_depths: Sequence[int] | None = None, *, cut: bool = False
) -> pd.DataFrame:
    """Return one row per subprogram, the costliest first: like `by_line`, with `OF_SUBPROGRAMS` instead of the line.

    ``subprogram`` is its rank in the code, 0 for the program itself; ``begins`` is the source line of its first
    instruction, if the log has one; ``stack_bytes`` comes from ``stack_depths``, which have the same order.
    """
    steps, starts, missing = _steps(log, total, cut=cut)
    lines = steps.drop_duplicates("insn").set_index("insn")["line"]
    rank = np.searchsorted(starts, steps["insn"], side="right") - 1 if starts else np.zeros(len(steps), int)
    groups = steps.assign(subprogram=pd.array(rank, dtype="Int64")).groupby("subprogram", sort=True)
    out = groups.agg(processed_insns=("count", "sum"), insns=("insn", "nunique")).astype("Int64")
    depths = stack_depths if stack_depths and len(stack_depths) == max(len(starts), 1) else None
    out["stack_bytes"] = pd.array([depths[int(rank)] if depths else None for rank in out.index], dtype="Int64")
    out["begins"] = [lines.get(starts[rank] if starts else 0, NO_LINE) for rank in out.index]
    return _with_shares(out, total, missing, "begins")


def _with_shares(rows: pd.DataFrame, total: int, missing: int, named: str) -> pd.DataFrame:
    """Return rows by their share of the work, the largest first, followed by the steps that the log lacks.

    ``named``: the column that says where a row's work comes from.
    """
    rows = rows.sort_values("processed_insns", ascending=False, kind="stable").reset_index()
    if missing:
        rest = {"processed_insns": pd.array([missing], dtype="Int64"), named: [NOT_LOGGED]}
        rows = pd.concat([rows, pd.DataFrame(rest)], ignore_index=True)
    share = (rows["processed_insns"].astype(float) / max(total, 1)).round(4)
    rows.insert(list(rows.columns).index("processed_insns") + 1, "share", share)
    return rows


def _steps(log: Iterable[str], total: int, *, cut: bool) -> tuple[pd.DataFrame, list[int], int]:
    """Return how often each instruction of each line was processed, the first instructions of the subprograms, and how
    many steps the log lacks. Raises FormatError if the log has more steps than ``total``, or, if not ``cut``, fewer.
    """
    each: Counter[tuple[str, int]] = Counter()
    starts: set[int] = set()
    line = ""
    for text in log:
        if step := _STEP.match(text) or _PRUNED.match(text):
            each[line, int(step[1])] += 1
        elif source := _SOURCE.match(text):
            line = source[1].rstrip("\n")
        elif start := _SUBPROGRAM.match(text):
            starts.add(int(start[1]))
    missing = total - each.total()
    if missing < 0 or (missing and not cut):
        raise FormatError(
            f"the log has {each.total()} steps, but says that {total} instructions were processed",
            remedy="look at the log: --logs keeps it",
        )
    return pd.DataFrame(_with_lines(each), columns=["line", "insn", "count"]), sorted(starts), missing


def listed(rows: pd.DataFrame, top: int | None) -> list[dict[str, Any]]:
    """Return the rows of the ``top`` costliest lines, or of all, and always the row of steps that the log lacks."""
    missing = rows["line" if "line" in rows else "begins"] == NOT_LOGGED
    shown = pd.concat([rows[~missing].head(top or len(rows)), rows[missing]])
    return [{name: None if is_null(value) else value for name, value in row.items()} for row in records(shown)]


def _with_lines(each: Counter[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Give steps before the log's first source line the line that their instruction has elsewhere."""
    line_of = {insn: line for line, insn in each if line}
    whole: Counter[tuple[str, int]] = Counter()
    for (line, insn), count in each.items():
        whole[line or line_of.get(insn, NO_LINE), insn] += count
    return [(*key, count) for key, count in whole.items()]


def hotspots(
    path: Path, kernel: str, logs: Path | None = None, *options: str, by: By = "line", flags: tuple[str, ...] = ()
) -> Iterator[pd.DataFrame | XdplabError]:
    """Yield `by_line` or `by_subprogram` of each program of an object on a kernel (host, or a guest's version).

    The kernel and the program are the first columns.
    ``logs``: a directory that keeps the logs; ``options``: further ones of bpfverify. A program without a log,
    such as one that never reached a verifier, gives a ProgramError instead, and an inconsistent log a FormatError.
    """
    if not path.is_file():
        raise ProgramError(f"{path}: no such object")
    with tempfile.TemporaryDirectory() as folder:
        types = Path(folder) / "types"
        types.write_text(known_types())
        with machine_of(kernel, types, Given(flags)) as machine:
            place = machine.place
            object_, folder_there = place.put(path), f"/tmp/xdplab-logs-{Path(folder).name}"
            place.host.run(["mkdir", folder_there])
            try:
                output = machine.verify([object_], "--logs", folder_there, *options, deadline_s=DEADLINE_S)
                for program in parse_bpfverify(output):
                    yield _counted(program, kernel, place.host, folder_there, by)
                    if logs is not None and program.steps is not None:
                        with (logs / f"{path.stem}-{kernel}-{_name(program)}.log").open("wb") as kept:
                            _copy(program, program.steps, place.host, folder_there, kept)
            finally:
                place.host.run(["rm", "-r", folder_there], check=False)


def _name(program: VerifiedProgram) -> str:
    return (program.name or program.section or "unnamed").replace("/", "-")


def _counted(
    program: VerifiedProgram, kernel: str, host: Host, folder: str, by: By = "line"
) -> pd.DataFrame | XdplabError:
    total, steps = program.stats.processed_insns, program.steps
    if steps is None or total is None:
        return ProgramError(
            f"{program.name or program.object}: there is no log of a verifier ({program.verdict}): {program.complaint}"
        )
    with tempfile.TemporaryFile() as file:
        _copy(program, steps, host, folder, file, _COUNTED)
        file.seek(0)
        try:
            log = io.TextIOWrapper(file, errors="replace", newline="\n")
            if by == "line":
                rows = by_line(log, total, cut=steps.full)
            else:
                rows = by_subprogram(log, total, program.stats.stack_depths, cut=steps.full)
        except FormatError as error:
            return FormatError(f"{program.name}: {error.message}", remedy=error.remedy)
    rows.insert(0, "program", program.name)
    rows.insert(0, "kernel", kernel)
    return rows


def _copy(program: VerifiedProgram, steps: StepLog, host: Host, folder: str, sink: BinaryIO, only: str = "") -> None:
    """Copy a program's log, or only its lines that ``only`` matches. Raises HostError."""
    script, skipped = _parts(steps)
    script = f'{{ {script}; }} | {{ LC_ALL=C grep -aE -- "$4" || test $? = 1; }}' if only else script
    names = (f"{folder}/{_name(program)}{ending}" for ending in (".log", ".first.log"))
    size = steps.bytes + (steps.first_bytes or 0)
    argv = ["sh", "-c", script, "sh", *names, str(skipped), only]
    host.start(argv, deadline_s=60 + size / SLOWEST_BYTES_S).pass_through(sink, io.BytesIO()).require()


def _parts(steps: StepLog) -> tuple[str, int]:
    """Return the command that prints the log in order, and the byte, counted from 1, at which its second part
    begins."""
    if not steps.full or steps.true_bytes is None:
        return _WHOLE, 0
    if steps.first_bytes is None:
        return _END, 0
    twice = steps.first_bytes + steps.bytes - steps.true_bytes
    return (_BOTH, twice + 1) if twice >= 0 else (_APART, 0)
