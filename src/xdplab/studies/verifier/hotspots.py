"""Where the instructions that a verifier processes come from: its log of each step, counted by source line."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from xdplab.errors import FormatError, ProgramError, XdplabError
from xdplab.formats.verifier_log import VerifiedProgram, parse_bpfverify, parse_stats
from xdplab.programs.program import cache_directory
from xdplab.studies.verifier.machines import known_types, machine_of

COLUMNS = ("kernel", "program", "line", "processed_insns", "share", "insns", "most_of_one")
NO_LINE = "(no source line)"
DEADLINE_S = 300.0

_STEP = re.compile(r"(\d+): \([0-9a-f]{2}\) ")
_PRUNED = re.compile(r"(?:from \d+ to )?(\d+)(?: \(speculative execution\))?: safe")
_SOURCE = re.compile(r"; (.*)")


def by_line(log: str) -> pd.DataFrame:
    """Return one row per source line, the costliest first, of a log of level 2: `COLUMNS` from ``line`` on.

    ``processed_insns`` sums up to what the verifier says that it processed; ``insns`` is how many instructions the
    line has, ``most_of_one`` how often the one that was processed most often was. A line is that of the program's
    debug information; without any it is NO_LINE. Raises FormatError if the sum is another one.
    """
    each: Counter[tuple[str, int]] = Counter()
    line = NO_LINE
    for text in log.splitlines():
        if step := _STEP.match(text) or _PRUNED.match(text):
            each[line, int(step[1])] += 1
        elif source := _SOURCE.match(text):
            line = source[1]
    told = parse_stats(log).processed_insns
    if told != each.total():
        raise FormatError(
            f"the log tells of {each.total()} steps, but of {told} processed instructions by its own words",
            remedy="a log of more than 32 MiB is cut: take a smaller program",
        )
    steps = pd.DataFrame([(*key, count) for key, count in each.items()], columns=["line", "insn", "count"])
    found = steps.groupby("line", sort=False).agg(
        processed_insns=("count", "sum"), insns=("insn", "nunique"), most_of_one=("count", "max")
    )
    found.insert(1, "share", (found["processed_insns"] / max(told, 1)).round(4))
    return found.sort_values("processed_insns", ascending=False, kind="stable").reset_index()


def hotspots(path: Path, kernel: str, logs: Path | None = None) -> Iterator[pd.DataFrame | XdplabError]:
    """Yield `by_line` of each program of an object on a kernel (host, or a guest's version), with `COLUMNS`.

    ``logs``: a directory that keeps the whole logs. A program without a log, such as one that came to no verifier,
    gives a ProgramError in its place, a log that does not add up, such as one that was cut, a FormatError.
    """
    if not path.is_file():
        raise ProgramError(f"{path}: no such object")
    with tempfile.TemporaryDirectory() as folder:
        types = Path(folder) / "types"
        types.write_text(known_types())
        with machine_of(kernel, cache_directory(), types) as machine:
            place = machine.place
            object_, there = place.put(path), f"/tmp/xdplab-logs-{Path(folder).name}"
            place.host.run(["mkdir", there])
            try:
                for program in parse_bpfverify(machine.verify(object_, "--logs", there, deadline_s=DEADLINE_S)):
                    data = place.host.run(["cat", f"{there}/{_file(program)}"], check=False).stdout
                    if logs is not None and data:
                        (logs / f"{path.stem}-{kernel}-{_file(program)}").write_bytes(data)
                    yield _counted(program, kernel, data)
            finally:
                place.host.run(["rm", "-r", there], check=False)


def _file(program: VerifiedProgram) -> str:
    return f"{program.name or program.section or 'unnamed'}.log".replace("/", "-")


def _counted(program: VerifiedProgram, kernel: str, log: bytes) -> pd.DataFrame | XdplabError:
    if not log:
        return ProgramError(
            f"{program.name or program.object}: there is no log of a verifier ({program.verdict}): {program.complaint}"
        )
    try:
        found = by_line(log.decode(errors="replace"))
    except FormatError as error:
        return FormatError(f"{program.name}: {error.message}", remedy=error.remedy)
    found.insert(0, "program", program.name)
    found.insert(0, "kernel", kernel)
    return found
