"""A packet's call stacks as files for other tools: folded text for flame graphs, JSON for speedscope."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from xdplab.run.disk import write_whole
from xdplab.studies.cost.counted import cost_in
from xdplab.studies.cost.points import CostPoint, CostRequest
from xdplab.studies.points import StudyPlan

Stacks = Mapping[tuple[str, ...], Fraction]


def folded(stacks: Stacks) -> str:
    """Return a line for each stack, outermost function first, with its instructions per packet.

    Source of the format: flamegraph.pl of FlameGraph.
    """
    return "".join(f"{';'.join(stack)} {float(count):.3f}\n" for stack, count in sorted(stacks.items()))


def speedscope(name: str, stacks: Stacks) -> dict[str, Any]:
    """Return a profile whose weights are instructions per packet.

    Source of the format: https://www.speedscope.app/file-format-schema.json.
    """
    functions = list(dict.fromkeys(function for stack in stacks for function in stack))
    numbers = {function: number for number, function in enumerate(functions)}
    weights = [float(count) for count in stacks.values()]
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[numbers[function] for function in stack] for stack in stacks],
        "weights": weights,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": function} for function in functions]},
        "profiles": [profile],
    }


def write_stacks(plan: StudyPlan[CostRequest, CostPoint], folder: Path) -> list[Path]:
    """Write both files of each measured trial. Raises ResultsError if the disk refuses."""
    paths = []
    for trial, attempt, raw in plan.attempts():
        if attempt.status == "measured":
            point = trial.point
            stacks = cost_in(raw).stacks
            name = f"{point.program}-{point.mode}-{point.kernel}-{point.point_id}".replace(":", "-").replace("/", "-")
            profile = json.dumps(speedscope(str(point), stacks))
            paths.append(write_whole(folder / f"{name}.folded", folded(stacks).encode()))
            paths.append(write_whole(folder / f"{name}.speedscope.json", profile.encode()))
    return paths
