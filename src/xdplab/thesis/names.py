"""The file names of the thesis' logs say which point they measured; the folder says which repetition, and AF_XDP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Kind = Literal["generator", "sar", "perf"]
_KINDS: dict[str, Kind] = {"res": "generator", "stats_sar": "sar", "stats_perf": "perf"}
_MODES = {"xdpdrv": "native", "xdpgeneric": "generic"}
_FOLDER = re.compile(r"resultados(?P<af_xdp>_af_xdp)?(?P<repetition>[0-9]{1,3})")
_NAME = re.compile(
    r"(?P<kind>res|stats_sar|stats_perf)_combined_(?P<queues>[0-9]{1,3})(?P<s>[+.])"
    r"algoritmo_for_0_a_(?P<accesses>[0-9]{1,7})(?P=s)pkt_(?P<frame_bytes>[0-9]{2,5})(?P=s)"
    r"ebpf_(?P<hook>xdpdrv|xdpgeneric)(?P=s)varIP_[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?P=s)"
    r"timeout_(?P<seconds>[0-9]{1,5})\.(?P<suffix>txt|csv)"
)
_PROGRAM = re.compile(r"for_0_a_([0-9]{1,7})\.c")
LOG_FOLDERS = {"gerador", "sar", "perf"}


@dataclass(frozen=True)
class Measured:
    """One trial: the point and its repetition."""

    mode: str
    repetition: int
    queues: int
    accesses: int
    frame_bytes: int


@dataclass(frozen=True)
class LogName:
    """What the path of one log says: ``path`` begins with the repetition's folder, ``seconds`` were planned."""

    path: str
    kind: Kind
    suffix: str
    seconds: int
    measured: Measured

    @property
    def stem(self) -> str:
        """The path without its suffix: a ``.csv`` twin has the same."""
        return self.path.rpartition(".")[0]


def below_folder(path: str) -> str | None:
    """Return the part of ``path`` from its last repetition folder on, or None if there is none above a file."""
    parts = PurePosixPath(path).parts
    places = [place for place, part in enumerate(parts[:-1]) if _FOLDER.fullmatch(part)]
    return "/".join(parts[places[-1] :]) if places else None


@dataclass(frozen=True)
class MeasuredProgram:
    """Which trials a C file beside the logs was measured in: all queue counts and sizes, and both hooks of XDP."""

    af_xdp: bool
    repetition: int
    accesses: int


def parse_program(path: str) -> MeasuredProgram | None:
    """Return what the path (as of ``below_folder``) of a C file says, or None if it is no measured program."""
    folder, name = path.split("/", 1)[0], path.rpartition("/")[2]
    place, match = _FOLDER.fullmatch(folder), _PROGRAM.fullmatch(name)
    if place is None or match is None:
        return None
    return MeasuredProgram(bool(place["af_xdp"]), int(place["repetition"]), int(match[1]))


def is_log_place(path: str) -> bool:
    """True for text and CSV files in a folder of logs: all files there should be logs."""
    parts = path.split("/")
    return len(parts) > 2 and parts[1] in LOG_FOLDERS and path.endswith((".txt", ".csv"))


def parse_name(path: str) -> LogName | None:
    """Return what ``path`` (as of ``below_folder``) says, or None if its name is in neither grammar."""
    folder, name = path.split("/", 1)[0], path.rpartition("/")[2]
    place, match = _FOLDER.fullmatch(folder), _NAME.fullmatch(name)
    if place is None or match is None:
        return None
    mode = "af_xdp" if place["af_xdp"] else _MODES[match["hook"]]
    point = (int(match[name]) for name in ("queues", "accesses", "frame_bytes"))
    measured = Measured(mode, int(place["repetition"]), *point)
    return LogName(path, _KINDS[match["kind"]], match["suffix"], int(match["seconds"]), measured)
