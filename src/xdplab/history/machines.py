"""What a run's places were when it was measured: kernel, CPU, microcode, driver and its firmware, as far as they were
recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdplab.absent import Absent
from xdplab.labs.base import HOST
from xdplab.run.rundir import RunDirectory
from xdplab.studies.environment import flat
from xdplab.studies.provenance import CONTROLLER

Facts = Mapping[str, str | Absent]
MACHINE = ("cpu", "microcode", "driver", "firmware")
"""What makes two machines one for a measured value; the kernel may change."""
_ASKED = {
    "kernel": ("kernel", "kernel"),
    "cpu": ("cpus", "cpus Model name"),
    "microcode": ("microcode", "microcode"),
    "nic": ("driver", "driver bus-info"),
    "driver": ("driver", "driver driver"),
    "firmware": ("driver", "driver firmware-version"),
}
"""A fact: the question that a host answered, and the line of the answer."""
_NO_NIC = "a study's place has no NIC"
UNKNOWN: Facts = dict.fromkeys(_ASKED, Absent("the run has not recorded where it was measured"))


def machines(run: RunDirectory) -> dict[str, Facts]:
    """Return the facts of each place of a run's last session, by its name: of a lab its DUT, of a study a host."""
    places: dict[str, Facts] = {}
    for event in run.journal.events("hosts"):
        if event["when"] != "before":
            continue
        state = event["state"]
        if "place" in event:
            name = HOST if event["place"] == CONTROLLER else event["place"]
            places[name] = _facts(state) | dict.fromkeys(("nic", "driver", "firmware"), Absent(_NO_NIC))
        else:
            places[str(state["lab"])] = _facts(state["dut"])
    return places


def commit(run: RunDirectory) -> str | Absent:
    """Return the commit of the xdplab that measured a run's last session."""
    answers = [event["state"].get("xdplab") for event in run.journal.events("hosts") if event["when"] == "before"]
    last: Mapping[str, str] = next((one for one in reversed(answers) if one), {"absent": "the run has not recorded it"})
    return last["commit"] if "commit" in last else Absent(last.get("absent", "the run has not recorded it"))


def _facts(state: Mapping[str, Any]) -> dict[str, str | Absent]:
    return {name: _fact(state.get(question, {}), question, line) for name, (question, line) in _ASKED.items()}


def _fact(answer: Mapping[str, str], question: str, line: str) -> str | Absent:
    if "value" not in answer:
        return Absent(f"{question}: {answer.get('absent', 'the host was not asked')}")
    lines = flat(question, answer["value"])
    value = lines.get(line, "").rpartition("\t: ")[2].strip()
    return value or Absent(f"{question}: the host's answer has no {line.removeprefix(question).strip() or question}")
