"""A packet's call stacks: a picture, folded text for flame graphs, JSON for speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from xdplab.figures.draw import Sheet
from xdplab.run.disk import write_whole
from xdplab.studies.cost.counts import cost_in
from xdplab.studies.cost.points import CostPoint, CostRequest
from xdplab.studies.points import StudyPlan

COLOURS = {"bpf": "#d55e00", "sender": "#999999", "": "#a6cee3"}
"""Of a user's program, of the sender's programs, of the kernel."""

_LETTER_SHARE = 0.0085
"""The share of the picture's width that a letter takes."""


@dataclass(frozen=True)
class Box:
    """A function on one call path: where it begins and how wide it is, in instructions; ``depth`` counts from 0."""

    name: str
    depth: int
    start: float
    width: float


def boxes(stacks: Mapping[tuple[str, ...], Fraction]) -> list[Box]:
    """Return the boxes of stacks, without the functions on top that all of them share."""
    total = float(sum(stacks.values()))
    nested = list(_boxes({stack: float(count) for stack, count in stacks.items()}, 0, 0.0))
    shared = sum(1 for box in nested if box.width == total)
    first = max(shared - 1, 0)
    return [Box(box.name, box.depth - first, box.start, box.width) for box in nested if box.depth >= first]


def _boxes(stacks: Mapping[tuple[str, ...], float], depth: int, start: float) -> Iterator[Box]:
    by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for stack, count in stacks.items():
        if len(stack) > depth:
            by_name.setdefault(stack[depth], {})[stack] = count
    for name, below in sorted(by_name.items(), key=lambda item: -sum(item[1].values())):
        width = sum(below.values())
        yield Box(name, depth, start, width)
        yield from _boxes(below, depth + 1, start)
        start += width


def flame(title: str, stacks: Mapping[tuple[str, ...], Fraction], width: float = 10.0) -> Sheet:
    """Draw the stacks; ``width`` in inches."""
    drawn = boxes(stacks)
    depth = max(box.depth for box in drawn) + 1
    total = max(box.start + box.width for box in drawn)
    figure = Sheet(figsize=(width, 0.6 + 0.24 * depth), layout="constrained")
    axes: Any = figure.subplots()
    for box in drawn:
        role = box.name.partition(":")[0] if ":" in box.name else ""
        colour = COLOURS.get(role, COLOURS[""])
        axes.barh(box.depth, box.width, left=box.start, height=0.96, color=colour, edgecolor="white", linewidth=0.4)
        letters = int(box.width / total / _LETTER_SHARE * width / 10)
        if letters > 3:
            text = box.name if len(box.name) <= letters else f"{box.name[: letters - 1]}…"
            axes.text(box.start + total * 0.003, box.depth, text, va="center", fontsize=7, clip_on=True)
    axes.set(xlim=(0, total), ylim=(depth - 0.5, -0.5), xlabel="instructions per packet", title=title)
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    return figure


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
