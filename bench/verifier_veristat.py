"""bpfverify against veristat (kernel's tools/testing/selftests/bpf) on the same objects: equal counts, wall time.

Needs root and veristat, on PATH or named by --veristat. The objects are the arguments, or else those that this system's
packages installed. The two take turns; medians are compared.
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
from pathlib import Path

from bounded import Aim, run

from xdplab.deploy.native import build_tool
from xdplab.formats.verifier_log import parse_bpfverify
from xdplab.hosts.local import LocalHost
from xdplab.studies.verifier.corpora import collect

MOST_RATIO = 1.1
Counts = dict[tuple[str, str], tuple[int, int, int]]


def veristat_counts(text: str) -> Counts:
    rows = csv.DictReader(io.StringIO(text))
    return {
        (r["file_name"], r["prog_name"]): (int(r["total_insns"]), int(r["total_states"]), int(r["peak_states"]))
        for r in rows
        if r["verdict"] == "success"
    }


def our_counts(data: bytes) -> Counts:
    found = {}
    for p in parse_bpfverify(data):
        if p.verdict == "accepted":
            s = p.stats
            found[Path(p.object).name, str(p.name)] = (s.processed_insns or 0, s.total_states or 0, s.peak_states or 0)
    return found


def timed(argv: list[str]) -> tuple[float, bytes]:
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, check=False)
    return time.monotonic() - began, done.stdout


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("objects", nargs="*", default=["system"])
    parser.add_argument("--veristat", default=shutil.which("veristat"))
    parser.add_argument("--turns", type=int, default=7)


def measure(options: argparse.Namespace) -> list[Aim]:
    if not options.veristat:
        why = "no veristat on PATH (--veristat PATH)"
        return [
            Aim("counts that differ", None, at_most=0, reason=why),
            Aim("time", None, at_most=MOST_RATIO, reason=why),
        ]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for rank, subject in enumerate(collect(options.objects)):
            path = Path(folder) / f"{rank:03}-{Path(subject.name).name.replace('#', '-').removesuffix('.o')}.o"
            path.write_bytes(subject.content)
            paths.append(str(path))
        return compare(options.veristat, build_tool(LocalHost(), "bpfverify", f"{folder}/cache"), paths, options.turns)


def compare(veristat: str, bpfverify: str, paths: list[str], turns: int) -> list[Aim]:
    theirs_argv = [veristat, "-q", "-o", "csv", "-e", "file,prog,verdict,total_insns,total_states,peak_states", *paths]
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(turns):
        seconds, theirs = timed(theirs_argv)
        times["theirs"].append(seconds)
        seconds, ours = timed([bpfverify, *paths])
        times["ours"].append(seconds)
    a, b = our_counts(ours), veristat_counts(theirs.decode())
    different = {key: (a[key], b[key]) for key in a.keys() & b.keys() if a[key] != b[key]}
    ratio = statistics.median(times["ours"]) / statistics.median(times["theirs"])
    both = len(a.keys() & b.keys())
    print(f"{len(paths)} objects; accepted by bpfverify {len(a)}, by veristat {len(b)}, by both {both}")
    print(f"counts that differ: {len(different)} {list(different.items())[:3]}")
    print(f"only theirs: {sorted(b.keys() - a.keys())[:5]}; only ours: {sorted(a.keys() - b.keys())[:5]}")
    for name, turns_s in times.items():
        print(f"{name}: median {statistics.median(turns_s):.3f} s of {turns}")
    return [
        Aim("accepted by both", both, at_least=1),
        Aim("counts that differ", len(different), at_most=0),
        Aim("time, beside veristat's", ratio, at_most=MOST_RATIO),
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
