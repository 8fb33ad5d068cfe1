"""bpfverify against veristat (kernel's tools/testing/selftests/bpf): equal counts, wall time.

The race is over the objects of which both tools accept the same programs, and at least one: a tool that accepts more
than the other would be slower for work that the other does not do. They take turns, and begin in turn; medians are
compared.

Needs root and veristat, on PATH or named by --veristat. Each argument is a corpus: a file, a directory, an archive, or
`system` for the objects that this system's packages installed (the default).
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bounded import Aim, run, show

from xdplab.deploy.native import build_tool
from xdplab.formats.verifier import parse_bpfverify
from xdplab.hosts.local import LocalHost
from xdplab.studies.verifier.corpora import collect

MOST_RATIO = 1.0
Program = tuple[str, str]
"""File name and function."""


Accepted = dict[Program, tuple[int, int, int]]
"""Instructions, states, and states held at once, of each accepted program."""


def veristat_said(data: bytes) -> Accepted:
    return {
        (r["file_name"], r["prog_name"]): (int(r["total_insns"]), int(r["total_states"]), int(r["peak_states"]))
        for r in csv.DictReader(io.StringIO(data.decode()))
        if r["verdict"] == "success"
    }


def bpfverify_said(data: bytes) -> Accepted:
    return {
        (Path(p.object).name, str(p.name)): (s.processed_insns or 0, s.total_states or 0, s.peak_states or 0)
        for p in parse_bpfverify(data)
        if p.verdict == "accepted" and (s := p.stats)
    }


def of_both(ours: Accepted, theirs: Accepted) -> set[str]:
    """Return the objects of which both tools accept the same programs, and at least one."""
    apart = {file for file, _ in ours.keys() ^ theirs.keys()}
    return {file for file, _ in ours.keys() & theirs.keys()} - apart


@dataclass(frozen=True)
class Tool:
    """A command that takes objects, and the reader of what it prints."""

    argv: tuple[str, ...]
    read: Callable[[bytes], Accepted]

    def judge(self, paths: list[str]) -> tuple[float, Accepted]:
        """Return the seconds that the tool takes for ``paths``, and its word on them."""
        began = time.monotonic()
        done = subprocess.run([*self.argv, *paths], capture_output=True, check=False)
        return time.monotonic() - began, self.read(done.stdout)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpora", nargs="*", default=["system"])
    parser.add_argument("--veristat", default=shutil.which("veristat"))
    parser.add_argument("--turns", type=int, default=7)


def aims(counts_apart: float | None, ratio: float | None, *, corpus: str = "", reason: str = "") -> list[Aim]:
    of = f"{corpus}: " if corpus else ""
    return [
        Aim(f"{of}counts that differ", counts_apart, at_most=0, reason=reason),
        Aim(f"{of}time, times veristat's", ratio, at_most=MOST_RATIO, reason=reason),
    ]


def measure(options: argparse.Namespace) -> list[Aim]:
    if not options.veristat:
        return aims(None, None, reason="no veristat on PATH (--veristat PATH)")
    columns = "file,prog,verdict,total_insns,total_states,peak_states"
    theirs = Tool((options.veristat, "-q", "-o", "csv", "-e", columns), veristat_said)
    found, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        ours = Tool((build_tool(LocalHost(), "bpfverify", f"{folder}/cache"),), bpfverify_said)
        for rank, corpus in enumerate(options.corpora):
            row = race(ours, theirs, written(corpus, Path(folder) / str(rank)), options.turns)
            rows.append({"corpus": Path(corpus).name} | row)
            nothing = "" if row["raced"] else "no object of which both accept the same programs"
            found += aims(row["counts apart"], row["ratio"], corpus=Path(corpus).name, reason=nothing)
    show("objects of which both accept the same programs", rows)
    return found


def written(corpus: str, folder: Path) -> list[str]:
    """Write the objects of a corpus under names that differ, and return their paths."""
    folder.mkdir()
    paths = []
    for rank, subject in enumerate(collect([corpus])):
        path = folder / f"{rank:03}-{Path(subject.name).name.replace('#', '-').removesuffix('.o')}.o"
        path.write_bytes(subject.content)
        paths.append(str(path))
    return paths


def race(ours: Tool, theirs: Tool, paths: list[str], turns: int) -> dict[str, float | None]:
    """Return a row of the table: what each accepts of ``paths``, and the medians over what both accept."""
    (_, a), (_, b) = ours.judge(paths), theirs.judge(paths)
    both = of_both(a, b)
    raced = [path for path in paths if Path(path).name in both]
    row: dict[str, float | None] = {
        "objects": len(paths),
        "accepted by bpfverify": len(a),
        "by veristat": len(b),
        "raced": len(raced),
        "programs": None,
        "counts apart": None,
        "bpfverify, s": None,
        "veristat, s": None,
        "ratio": None,
    }
    if not raced:
        return row
    times: dict[Tool, list[float]] = {ours: [], theirs: []}
    last = {}
    for turn in range(turns):
        for tool in (ours, theirs) if turn % 2 else (theirs, ours):
            seconds, last[tool] = tool.judge(raced)
            times[tool].append(seconds)
    a, b = last[ours], last[theirs]
    apart = {program for program in a.keys() | b.keys() if a.get(program) != b.get(program)}
    s = {tool: statistics.median(seconds) for tool, seconds in times.items()}
    return row | {
        "programs": len(a),
        "counts apart": len(apart),
        "bpfverify, s": s[ours],
        "veristat, s": s[theirs],
        "ratio": s[ours] / s[theirs],
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
