"""Proof by the object's bytecode: it is executed, and every access to the working set is counted."""

from __future__ import annotations

from collections.abc import Sequence

from xdplab.errors import ProgramError
from xdplab.programs.counting import (
    FRAME_LENGTHS,
    VERDICTS,
    Access,
    AccessCounts,
    in_frame,
    in_state,
    require,
    require_cycle,
    require_reflected,
    require_width,
    sample_frame,
    seen,
)
from xdplab.programs.image import Image
from xdplab.programs.machine import Interpreter, Map
from xdplab.programs.source import map_contents
from xdplab.programs.spec import WORD_BYTES, ProgramSpec

_WHERE = "bytecode"


def count_bytecode(image: Image, spec: ProgramSpec, lengths: Sequence[int] = FRAME_LENGTHS) -> list[AccessCounts]:
    """Execute one packet per length (without FCS), one after another, and return its accesses to the working set.

    Raises ProgramError unless each makes exactly the promised accesses and returns the frame with its MACs swapped.
    """
    machine = Interpreter(image, _maps(spec))
    results, walked = [], []
    for length in lengths:
        frame = sample_frame(length)
        lookups, before = _lookups(machine), _trace_lengths(machine)
        run = machine.run(frame)
        accesses = _working_set(machine, spec, before)
        counts = seen(accesses, _lookups(machine) - lookups)
        require(spec, counts, _WHERE)
        require_width(spec, accesses, _WHERE)
        require_reflected(spec, frame, run.frame, _WHERE)
        if run.verdict != (promised := VERDICTS[spec.action]):
            expected = f"where XDP_{spec.action.upper()} ({promised}) is promised"
            raise ProgramError(f"{_WHERE}: {spec.name} returns {run.verdict} {expected}")
        walked += [offset for offset, _, is_store in accesses if not is_store]
        results.append(counts)
    if spec.workload == "chase":
        require_cycle(spec, walked, _WHERE)
    return results


def _maps(spec: ProgramSpec) -> dict[str, Map]:
    sizes = {"table": WORD_BYTES}
    return {name: Map(bytearray(data), sizes.get(name, len(data))) for name, data in map_contents(spec).items()}


def _lookups(machine: Interpreter) -> int:
    table = machine.maps.get("table")  # finding the state of `array` and `chase` is bookkeeping
    return table.lookups if table else 0


def _trace_lengths(machine: Interpreter) -> dict[str, int]:
    return {name: len(machine.region(f"value of {name}").trace) for name in machine.maps}


def _working_set(machine: Interpreter, spec: ProgramSpec, before: dict[str, int]) -> list[Access]:
    if spec.workload == "packet" or not spec.accesses:
        return in_frame(machine.frame_trace)
    name = "table" if spec.workload == "lookup" else "working_set"
    if name not in machine.maps:
        return []
    trace = machine.region(f"value of {name}").trace[before[name] :]
    return trace if name == "table" else in_state(spec, trace)
