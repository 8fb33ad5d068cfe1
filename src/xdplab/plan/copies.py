"""A plan's copy that needs no file outside its folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdplab.compiler import of_system, place_of, placed, sources_of
from xdplab.errors import PlanError
from xdplab.plan.maps import as_given, files_of
from xdplab.plan.model import Plan, parse_plan
from xdplab.plan.points import ProgramFactors, user_program


def copied_into(folder: Path, plan: Plan) -> Plan:
    """Copy what users' programs consist of into ``folder``, and return the plan that names the copies, from there.

    Raises PlanError for a program whose compiler would read another file than a copy, and OSError.
    """
    data = plan.model_dump(mode="json")
    for block, block_given in zip(data["blocks"], plan.blocks, strict=True):
        for program, given in zip(block["points"].get("program") or (), block_given.points.program or (), strict=True):
            program |= _copied(folder, user_program(given))
    return parse_plan(data)


def _copied(folder: Path, program: ProgramFactors) -> dict[str, Any]:
    """Copy a program's files, each at its place beside the others, and return the keys of a plan for the copies."""
    read = [Path(program.file).resolve(), *map(Path, program.sources)]
    flags = [(flag, place_of(flag)) for flag in program.cflags]
    places = [Path(place[1]) for _, place in flags if place and any(path.is_relative_to(place[1]) for path in read)]
    root = os.path.commonpath([*(path.parent for path in read), *places])
    files = Path("files") / program.file_sha256[:12]
    moved = {path: files / path.relative_to(root) for path in (*read, *places)}
    kept = [
        flag if place is None or of_system(Path(place[1])) else f"{place[0]}{moved[Path(place[1])]}"
        for flag, place in flags
        if place is None or Path(place[1]) in moved or of_system(Path(place[1]))
    ]
    scripts = {name: files.with_suffix(".setup") / name for name, _ in program.setup_files}
    entries = {name: Path(path) for name, path in files_of(program.maps).items()}
    filling = {name: files.with_suffix(".maps") / name / path.name for name, path in entries.items()}
    copies = [(path, moved[path]) for path in read] + [(Path(p), scripts[name]) for name, p in program.setup_files]
    copies += [(path, filling[name]) for name, path in entries.items()]
    sent = None
    if program.frames is not None:
        frames = Path(program.frames)
        sent = Path("files") / program.frames_sha256[:12] / frames.name
        copies.append((frames, sent))
    for source, copy in copies:
        (folder / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / copy)  # with its mode: a copy is for nobody else to read
    _require_whole(folder, [moved[path] for path in read], kept)
    return {
        "name": program.name,
        "file": str(moved[read[0]]),
        "sources": [str(moved[path]) for path in read[1:]],
        "cflags": kept,
        "setup_files": {name: str(path) for name, path in scripts.items()},
        "maps": as_given(program.maps) | {name: str(path) for name, path in filling.items()},
        "frames": None if sent is None else str(sent),
    }


def _require_whole(folder: Path, copies: Sequence[Path], flags: Sequence[str]) -> None:
    """Raise PlanError unless the compiler reads the copies where it read the files themselves."""
    file = folder / copies[0]
    copied = {folder.resolve() / copy for copy in copies}
    other = set(sources_of(file, placed(flags, (folder,)))) ^ copied if file.suffix == ".c" else set()
    if other:
        raise PlanError(
            f"program.file: {file.name} cannot be copied into a run: its compiler reads {min(other)}",
            remedy="name the folders of its headers in `cflags: [-IFOLDER]`, not by absolute paths or the environment",
        )
