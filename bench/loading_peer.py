"""The loading study's cost of bpf_check() against other measurements, for the same object in one guest that counts.

Three loaders load the same object in one boot: loadbench (traced, and with the verifier's log), bpfverify (with the
log), and bpftool, traced by function_graph through plain writes to tracefs. Needs root, bpftool and the VM lab's tools.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bounded import Aim, run

from xdplab.deploy.native import build_tool
from xdplab.formats.verifier import parse_bpfverify
from xdplab.hosts.local import LocalHost
from xdplab.programs.program import cache_directory
from xdplab.studies.guests import driver, place_of
from xdplab.studies.loading import passes, rows, runs
from xdplab.studies.loading.passes import parse_function_graph
from xdplab.studies.loading.points import BPF, LoadingPoint, LoadingRequest
from xdplab.studies.places import Place

MOST_APART = 0.05
PLACE, REPETITIONS = "vm:6.1:count", 11
TRACING = "/sys/kernel/tracing"


def ours(place: Place, command: str, path: str) -> dict[str, float]:
    bench = passes.LoadRunner(place, command, BPF, path, LoadingRequest(loads=REPETITIONS))
    with tempfile.TemporaryDirectory() as name:
        raw = Path(name)
        passes.measure(bench, raw)
        traced = [
            call for call in parse_function_graph((raw / passes.TRACE).read_bytes()) if call.mark.startswith("cycle")
        ]
        logged = [json.loads(line) for line in (raw / passes.LOGGED).read_text().splitlines()]
    check = [call.duration_ns for call in traced if call.function == "bpf_check"]
    log = [line["logged_us"] * 1000 for line in logged if line["type"] == "cycle"]
    return {"loadbench, function_graph": statistics.median(check), "loadbench, log": statistics.median(log)}


def bpfverify(place: Place, path: str) -> float:
    command = place.put(
        Path(build_tool(LocalHost(), "bpfverify", str(cache_directory().parent / "native"))), mode=0o755
    )
    answers = [parse_bpfverify(place.host.run([command, path], deadline_s=60).stdout)[0] for _ in range(REPETITIONS)]
    return statistics.median((answer.stats.verify_us or 0) * 1000 for answer in answers)


def bpftool(place: Place, path: str) -> float:
    """Return the median of each load's longest call, which is the program's: libbpf's probes are small."""
    place.host.run(["tee", f"{TRACING}/set_ftrace_filter"], stdin=b"bpf_check")
    place.host.run(["tee", f"{TRACING}/current_tracer"], stdin=b"function_graph")
    place.host.run(["mount", "-t", "bpf", "none", "/sys/fs/bpf"], check=False)
    longest = []
    for number in range(REPETITIONS):
        place.host.run(["tee", f"{TRACING}/trace"], stdin=b"\n")
        place.host.run(["bpftool", "prog", "load", path, f"/sys/fs/bpf/p{number}"], deadline_s=60)
        trace = place.host.get(f"{TRACING}/trace")
        longest.append(max(call.duration_ns for call in parse_function_graph(trace)))
    return statistics.median(longest)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--accesses", type=int, nargs="+", default=[100, 1600], help="N of each object (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    if shutil.which("bpftool") is None:
        return [Aim("witnesses apart", None, at_most=MOST_APART, reason="no bpftool (apt install bpftool)")]
    worst = 0.0
    with place_of(PLACE) as place:
        command = place.put(Path(driver("loadbench")), mode=0o755)
        for accesses in arguments.accesses:
            point = LoadingPoint("load", PLACE, BPF, "array", "unrolled", accesses)
            path = place.put(runs.bpf_object(point).object)
            found = ours(place, command, path)
            found |= {"bpfverify, log": bpfverify(place, path), f"bpftool, {rows.GRAPH}": bpftool(place, path)}
            place.host.run(["tee", f"{TRACING}/current_tracer"], stdin=b"nop")
            apart = max(found.values()) / min(found.values()) - 1
            worst = max(worst, apart)
            words = ", ".join(f"{who} {value / 1000:.1f}" for who, value in found.items())
            print(f"{place.label}: unrolled, N = {accesses}: thousand instructions: {words}; {apart:.1%} apart")
    return [Aim("witnesses apart", worst, at_most=MOST_APART)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
