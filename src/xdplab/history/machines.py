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
_NOT_RECORDED = "the run has not recorded it"
_NO_NIC = "a study's place has no NIC"
UNKNOWN: Facts = dict.fromkeys(_ASKED, Absent("the run has not recorded where it was measured"))


def machines(run: RunDirectory) -> tuple[dict[str, Facts], str | Absent]:
    """Return the facts of each place of a run's last session, by its name (of a lab its DUT, of a study a host), and
    the commit of the xdplab that measured it."""
    places: dict[str, Facts] = {}
    commit: str | Absent = Absent(_NOT_RECORDED)
    for event in run.journal.events("hosts"):
        if event["when"] != "before":
            continue
        state = event["state"]
        if answer := state.get("xdplab"):
            commit = answer["commit"] if "commit" in answer else Absent(answer.get("absent", _NOT_RECORDED))
        if "place" in event:
            name = HOST if event["place"] == CONTROLLER else event["place"]
            places[name] = _facts(state) | dict.fromkeys(("nic", "driver", "firmware"), Absent(_NO_NIC))
        else:
            places[str(state["lab"])] = _facts(state["dut"])
    return places, commit


def _facts(state: Mapping[str, Any]) -> dict[str, str | Absent]:
    return {name: _fact(state.get(question, {}), question, line) for name, (question, line) in _ASKED.items()}


def _fact(answer: Mapping[str, str], question: str, line: str) -> str | Absent:
    if "value" not in answer:
        return Absent(f"{question}: {answer.get('absent', 'the host was not asked')}")
    lines = flat(question, answer["value"])
    value = lines.get(line, "").rpartition("\t: ")[2].strip()
    return value or Absent(f"{question}: the host's answer has no {line.removeprefix(question).strip() or question}")
