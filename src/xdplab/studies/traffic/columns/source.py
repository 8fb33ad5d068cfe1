"""What the columns of a trial are computed from: facts and raw files of one attempt, each read once, when needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from xdplab.absent import Absent, required
from xdplab.analysis.verdicts import Verdict, judge
from xdplab.counters.columns import Counters, counted, files_in, packets_counted
from xdplab.counters.readings import Readings
from xdplab.counters.table import Role
from xdplab.errors import FormatError, ResultsError
from xdplab.formats.both_ways import both
from xdplab.formats.generator import Burst, Summary, parse_output
from xdplab.generators import OUTPUT, OUTPUT_BACK
from xdplab.plan import Point, Trial
from xdplab.run.columns import Column, ColumnValues
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, facts_of
from xdplab.studies.traffic.passes import PERF_FOLDER, SECOND_FOLDER
from xdplab.studies.trial_facts import TrialCpus, TrialFacts

COUNTERS_FOLDER = "counters"


class TrialSource:
    """One attempt. ``row`` has its ``columns``, which may ask each other; ``window_s`` is what the plan asks for.

    Each property raises Absent where the attempt does not have what it returns.
    """

    def __init__(
        self, run: RunDirectory, trial: Trial, attempt: Attempt, window_s: float, columns: Mapping[str, Column[Any]]
    ) -> None:
        self.run = run
        self.trial = trial
        self.attempt = attempt
        self.window_s = window_s
        self.facts = facts_of(TrialFacts, attempt)
        self.raw = run.raw_dir(attempt.trial_id, attempt.attempt)
        self.row: ColumnValues[Any] = ColumnValues(columns, self)
        self._files: dict[str, Mapping[str, bytes]] = {}

    @property
    def point(self) -> Point:
        return self.trial.point

    @cached_property
    def factors(self) -> dict[str, Any]:
        """The factors of the point, as the plan asks for them."""
        return self.point.factors()

    @property
    def shared(self) -> bool:
        return bool(self.point.arrangement == "shared")

    @property
    def sockets(self) -> bool:
        """Whether an application in user space does the work, behind AF_XDP sockets."""
        return bool(self.point.mode == "af_xdp")

    @property
    def paced(self) -> bool:
        return self.row["rate_requested_pps"] is not None

    @cached_property
    def bursts(self) -> dict[str, Burst]:
        """The bursts by name; those of two directions are added up."""
        names = (OUTPUT, OUTPUT_BACK)[: self.point.ways]
        try:
            outputs = [parse_output((self.raw / name).read_bytes()) for name in names]
        except (OSError, FormatError) as error:
            raise Absent(f"the generator's output cannot be read: {error}") from error
        first, *second = ({burst.name: burst for burst in output.bursts} for output in outputs)
        if not second:
            return first
        return {name: both(burst, second[0][name]) for name, burst in first.items() if name in second[0]}

    @property
    def window(self) -> Burst:
        return required(self.bursts.get("rate"), "the generator's output has no measured burst")

    @property
    def summary(self) -> Summary:
        return self.window.summary

    def files(self, folder: str) -> Mapping[str, bytes]:
        """Return what is in a folder of counters, by file."""
        if folder not in self._files:
            self._files[folder] = files_in(self.raw / folder)
        return self._files[folder]

    @property
    def cpus(self) -> TrialCpus:
        if self.facts.cpus is None:  # known before anything is measured
            raise ResultsError(
                f"{self.raw}: the journal has lost the facts of this attempt", remedy="was the journal edited?"
            )
        return self.facts.cpus

    @cached_property
    def readings(self) -> Readings:
        """The readings around the window."""
        cpus, files = self.cpus, self.files(COUNTERS_FOLDER)
        cpus_of: dict[Role, Collection[int]] = {} if self.shared else {"dut": cpus.dut}
        working = cpus.working if self.shared else cpus.dut
        return Readings(files, self.point.mode, self.shared, cpus_of, working, self.point.queues)

    @cached_property
    def counters(self) -> Counters:
        return counted(self.readings)

    @cached_property
    def perf_pass(self) -> Counters:
        """The readings around perf's pass, and what perf recorded in it."""
        recorded = {name: data for name, data in self.readings.files.items() if name.startswith("dut.perf.")}
        files = {**self.files(PERF_FOLDER), **recorded}
        return counted(Readings(files, "", True, working=self.cpus.working))

    @cached_property
    def ports(self) -> list[Counters]:
        """The packets of each of the DUT's ports that frames take; those of a second one have a folder of their own."""
        folders = (COUNTERS_FOLDER, SECOND_FOLDER) if self.point.two_ports else (COUNTERS_FOLDER,)
        return [self.packets(folder) for folder in folders]

    def packets(self, folder: str) -> Counters:
        """Return the counters in a folder of the attempt; they are not asked about CPUs."""
        return packets_counted(self.files(folder), self.point.mode, self.point.queues)

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.row)
