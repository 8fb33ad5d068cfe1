"""Study cost, as a kind of run: a block is a kernel's guest, a trial one program that is counted in it."""

from __future__ import annotations

import json
import lzma
import shlex
import tempfile
import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from xdplab.deploy.afxdp import AfxdpRequest
from xdplab.errors import HostError, ResultsWarning, UnsupportedError
from xdplab.programs.build import DEVICE_BOUND
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.studies.cost.counts import COUNTED, DRIVEN, SYMBOLS, cost_in, measurement_in, messages_of
from xdplab.studies.cost.gate import compare
from xdplab.studies.cost.gathering import gather
from xdplab.studies.cost.measurement import CALLED, PROGRAM
from xdplab.studies.cost.points import (
    AF_XDP,
    LIVE,
    LOADER,
    TEST_RUN,
    TWIN,
    TWIN_STATE,
    CostPoint,
    CostRequest,
    CostTrial,
    smallest,
)
from xdplab.studies.cost.rows import table_of
from xdplab.studies.cost.summaries import results, tables_of
from xdplab.studies.cost.user_code import user_functions
from xdplab.studies.cost.views import VIEWS
from xdplab.studies.guests import CountedGuest, PlacedSession, counted_place
from xdplab.studies.places import PlaceFacts
from xdplab.studies.plugin import Plugin, functions_used
from xdplab.studies.points import StudyPlan, StudyPlanning
from xdplab.studies.study_kind import study_kind

LOADED = "xdpload.jsonl"
APPLICATION_TOOL = "afxdp_user"

ROOTS = {
    "live": ("xdp_test_run_batch", "bpf_test_run_xdp_live"),
    "packets": ("__x64_sys_sendto", "__arm64_sys_sendto"),
    "test_run": ("bpf_test_run",),
}
"""The function below which a way of sending works for frames; the next one where the kernel has not the first."""

ROUNDS = (5, 13)
"""How often each window is counted; more often where so few disagree."""

_READY_S = 60
_SCRIPT = """
rm -f /tmp/in /tmp/loaded; mkfifo /tmp/in
{load} </tmp/in >/tmp/loaded 2>&1 &
exec 3>/tmp/in
{fill}
tries=0
until grep -qs '"type":"{ready}"\\|"type":"error"' /tmp/loaded || [ $tries = {tries} ]; do
    sleep 0.02; tries=$((tries+1))
done
cat /tmp/loaded
echo {mark}
id=$(sed -n 's/.*"program_id":\\([0-9]*\\).*/\\1/p' /tmp/loaded | head -n 1)
grep -q '"type":"{ready}"' /tmp/loaded && costdrive --program $id {drive} 2>&1
exec 3>&-
wait
"""
_READY = {TEST_RUN: "loaded", AF_XDP: "ready"}
"""What the tool that holds the program says when frames may come; ``attached`` unless it is here."""

_MARK = "xdplab:driven"


class CostStudy(PlacedSession):
    """Counts programs in one guest, one after the other."""

    facts = PlaceFacts
    end = PlacedSession.leave_block

    def __init__(self, plan: StudyPlan[CostRequest, CostPoint]) -> None:
        super().__init__()
        self._run = plan.directory
        self._block: Sequence[CostTrial] = ()
        self._guest: CountedGuest | None = None

    def enter_block(self, trials: Sequence[CostTrial]) -> None:
        self._block = tuple(trials)  # the runner takes from its own
        self.boot()

    def boot(self) -> None:
        """Boot a guest with what the block's programs need."""
        trials = self._block
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="xdplab-cost-")))
        files = files_of(self._run, {trial.point for trial in trials})
        tools = ["xdpload", "costdrive"]
        tools += [APPLICATION_TOOL] if any(trial.point.mode == AF_XDP for trial in trials) else []
        counted = counted_place(trials[0].point.place, tools, files, folder)
        self.place, self._guest = self.stack.enter_context(counted)

    def measure(self, trial: CostTrial, raw: Path, facts: PlaceFacts) -> None:
        """Raises ProgramError, UnsupportedError or HostError with the words of what refused.

        A guest that hangs or ends is booted once more.
        """
        try:
            self._count_exactly(trial.point, raw)
        except HostError as error:
            warnings.warn(f"{error.message}: it is booted once more", ResultsWarning, stacklevel=2)
            self.end()
            self.boot()
            self._count_exactly(trial.point, raw)
        self.at(facts)

    def _count_exactly(self, point: CostPoint, raw: Path) -> None:
        few, many = ROUNDS
        self._count(point, few, raw)
        anew = point.way == LIVE and measurement_in(raw).changes_frames and self._finds_changes(point, raw)
        try:
            agreed = cost_in(raw).agreed
        except UnsupportedError:  # of few windows most may be disturbed
            agreed = False
        if not agreed:
            self._count(point, many, raw, anew=anew)
            cost_in(raw)

    def _finds_changes(self, point: CostPoint, raw: Path) -> bool:
        """Tell whether the program finds frames as it has left them before, and count it by frames described anew.

        If it costs the same by these, it is counted as others are: their description has a cost, too.
        """
        before = _work_in(raw)
        self._count(point, ROUNDS[0], raw, anew=True)
        if _work_in(raw) != before:
            return True
        self._count(point, ROUNDS[0], raw)
        return False

    def _count(self, point: CostPoint, rounds: int, raw: Path, *, anew: bool = False) -> None:
        """Count a point's program, each window so many times, and write the raw files. ``anew``: the sender describes
        each frame anew."""
        assert self.place is not None
        assert self._guest is not None
        script = script_of(self._run, point, root_of(point.way, self._guest.symbols), rounds, anew=anew)
        printed = self._guest.host.run(["sh", "-c", script]).text
        loaded, _, driven = printed.partition(f"{_MARK}\n")
        (raw / LOADED).write_text(loaded)
        (raw / DRIVEN).write_text(driven)
        messages_of(loaded)
        if not (messages := messages_of(driven)):
            raise HostError(f"{self.place.label}: nothing was counted: {printed[-200:]}")
        counted = self._guest.counted()
        (raw / COUNTED).write_bytes(lzma.compress(counted, preset=1))
        symbols = functions_used(Plugin(counted), user_functions(messages, self._guest.content) + self._guest.symbols)
        (raw / SYMBOLS).write_text(json.dumps(symbols) + "\n")


def _work_in(raw: Path) -> dict[str, Fraction | int] | None:
    """Return the instructions of the program and what it calls; None where a packet has no cost."""
    try:
        tallies = cost_in(raw).tallies
    except UnsupportedError:
        return None
    return {scope: tallies[scope].instructions for scope in (PROGRAM, CALLED)}


def root_of(way: str, symbols: Sequence[tuple[int, str]]) -> int:
    """Return the address of the function below which frames are sent. Raises UnsupportedError for a kernel without."""
    for root in ROOTS[way]:
        for address, name in symbols:
            if name.partition(".")[0] == root and not name.endswith(".cold"):
                return address
    raise UnsupportedError(
        f"this kernel has no function {' or '.join(ROOTS[way])}, by which frames are told from the rest"
    )


def script_of(run: RunDirectory, point: CostPoint, root: int, rounds: int, *, anew: bool = False) -> str:
    """Return the shell script that counts a point's program in its guest."""
    loader = read_json(run.path / point.object / LOADER, dict)
    ready = "filled" if loader["fills"] else _READY.get(point.mode, "attached")
    drive = ["--way", point.way, "--frames", f"/{point.frames}", "--window", str(point.window)]
    drive += ["--root", str(root), "--rounds", str(rounds)]
    drive += [option for option in loader["options"] if option == DEVICE_BOUND]
    drive += ["--anew"] if anew else []
    drive += ["--gro"] if point.mode == "generic" and point.way == LIVE else []
    return _SCRIPT.format(
        load=shlex.join(_application(run, point) if point.mode == AF_XDP else _loader(point, loader)),
        fill="echo fill >&3" if loader["fills"] else "",
        ready=ready,
        tries=_READY_S * 50,
        mark=_MARK,
        drive=shlex.join(drive) + (" --application $!" if point.mode == AF_XDP else ""),
    )


def _application(run: RunDirectory, point: CostPoint) -> list[str]:
    """Return the command of the AF_XDP application, whose own program takes the place of the counted one."""
    folder = f"/{point.object}"
    state = f"{folder}/{TWIN_STATE}" if (run.path / point.object / TWIN_STATE).is_file() else None
    return AfxdpRequest("dut", 1, f"{folder}/{TWIN}", init=state).argv(APPLICATION_TOOL)


def _loader(point: CostPoint, loader: dict[str, Any]) -> list[str]:
    folder = f"/{point.object}"
    mode = "none" if point.mode == TEST_RUN else point.mode
    options = ["xdpload", "--object", f"{folder}/program.bpf.o", "--interface", "dut", "--mode", mode, "--zero-seed"]
    options += loader["options"]
    for option, table in (("--init", "init"), ("--entries", "entries")):
        for name, file in loader[table].items():
            options += [option, f"{name}={folder}/{file}"]
    for name, entries in loader["max_entries"].items():
        options += ["--max-entries", f"{name}={entries}"]
    return options


def files_of(run: RunDirectory, points: set[CostPoint]) -> dict[str, bytes]:
    """Return the files of the run that a guest needs, by path."""
    paths = {run.path / point.frames for point in points}
    for point in points:
        paths |= {path for path in (run.path / point.object).iterdir() if path.suffix != ".c"}
    return {str(path.relative_to(run.path)): path.read_bytes() for path in sorted(paths)}


STUDY = study_kind(
    StudyPlanning(
        "cost",
        "How many instructions does a packet cost, and where?",
        CostRequest,
        CostPoint,
        gather,
        smallest,
        "Instructions are not cycles: no cache miss and no wrong prediction is in them. The path is that of "
        "veth, not of a NIC's driver.",
    ),
    session=CostStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    compare=compare,
    version="6",
    at_once=True,
)
