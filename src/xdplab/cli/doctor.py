"""`xdplab doctor`: what this machine, or a lab's hosts, can do, and what is missing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, fitted, print_json, show, tell
from xdplab.errors import HostError, LabError, UnsupportedError
from xdplab.lazy import lazily

with lazily():
    from xdplab import labs
    from xdplab.deploy import device
    from xdplab.doctor import checks, hardware, machine, tune
    from xdplab.studies.traffic import session

if TYPE_CHECKING:
    from xdplab.deploy.queues import Endpoint
    from xdplab.doctor.checks import Judgement, Row
    from xdplab.labs import Lab

PROBLEM = 1
BROADEST = 100
"""Columns of the widest line."""
GUESTS = ("vm", "uml")
"""Kinds of lab with a kernel of their own."""


@click.command()
@click.option(
    "--lab",
    "lab_name",
    metavar="NAME",
    help="The lab to check (default: netns); brought up temporarily if it is not up.",
)
@click.option("--tune", is_flag=True, help="Apply the safe settings, and save the old ones (`xdplab restore`).")
@click.option("--all", "unfolded", is_flag=True, help="Show what is right too.")
@AS_JSON
@click.pass_obj
def doctor(everywhere: str | None, lab_name: str | None, tune: bool, unfolded: bool, as_json: bool) -> None:
    """Check what works, what is missing, and the remedy: problems first. Exit code 1 if something needed is missing."""
    name = lab_name or everywhere or "netns"
    if tune:
        _tune(name)
    rows = checks.problems_first(_examined(name))
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        tell(fitted(checks.listed(rows, None if unfolded else "`xdplab doctor --all` shows them"), BROADEST))
    if any(row.verdict == "missing" for row in rows):
        sys.exit(PROBLEM)


def _examined(lab_name: str) -> list[Row]:
    labs.require_name(lab_name)  # a name that no lab can have is an error, not a finding
    try:
        with labs.use_lab(lab_name) as lab:
            rows = [*([] if lab.kind == "uml" else machine.examine(lab)), *_kernel(lab), *_hardware(lab)]
            return [*rows, *(row for end in session.all_endpoints(lab) for row in _left(lab, end))]
    except LabError as error:
        return machine.examine_here(str(error))


def _left(lab: Lab, end: Endpoint) -> list[Row]:
    """Return the settings that the watchdog of a dead run could not restore."""
    left = device.left_by_the_dead(end.host, end.interface, lab.state_dir(end.host))
    remedy = f"`xdplab --lab {lab.name} restore`, or recreate the device"
    return [] if left is None else [checks.Row(end.host.name, "left by a run", left.text, "warn", remedy)]


def _kernel(lab: Lab) -> list[Row]:
    """Return the rows of a guest's kernel; this machine's own kernel is not tried, because others use it."""
    if lab.kind not in GUESTS:
        return []
    return checks.rows_of(machine.CHECKS, checks.CheckedHost(lab.host("guest"), "guest"), checks.Subject.GUEST)


def _hardware(lab: Lab) -> list[Row]:
    """Return the rows of servers and their ports; a virtual lab on this machine has none."""
    if lab.kind != "inventory":
        return []
    ends = [(lab.dut, "dut", lab.dut_interface), (lab.tg, "tg", lab.tg_interface)]
    hosts = [checks.CheckedHost(*end) for end in ends]
    rows = [row for host in hosts for row in hardware.examine_hardware(host)]
    rows += [row for end in machine.second_ends(lab) for row in hardware.examine_port(end)]
    rows += checks.HostCheck("generator", checks.Subject.SERVER, lambda _: lab, _generator).rows(hosts[1])
    place = lab.generator
    return rows + (hardware.dpdk_driver(hosts[1], place.pci, place.driver) if place.by_dpdk and place.pci else [])


def _generator(lab: Lab) -> Judgement:
    """Start the lab's generator and stop it again, as a real check."""
    name = {"moongen": "MoonGen", "testpmd": "dpdk-testpmd"}.get(lab.generator.kind, "xdpgen")
    try:
        ready = session.try_generator(lab)
    except (HostError, UnsupportedError) as error:
        return checks.Judgement(error.message, "missing", error.remedy or f"{name} is the generator there")
    except LabError as error:
        return checks.Judgement(f"{name}: not tried: {error.message}", "warn", error.remedy)
    driver = ready.settings.get("driver")
    return checks.Judgement(f"{name} starts{f' on {driver}' if driver else ''}{_stamps(ready.settings)}")


def _stamps(ready: Mapping[str, Any]) -> str:
    """Say whether xdpgen can ask the port's driver when it sent a frame; "" for other generators."""
    if "tx_offers" not in ready:
        return ""
    if (offers := ready["tx_offers"]) is None:
        return "; this kernel does not tell whether the port stamps frames on sending (Linux 6.8 and newer do)"
    able = "tx-timestamp" in offers
    return f"; the port {'stamps' if able else 'does not stamp'} frames on sending" + (
        " (from source, untried)" if able else f" (xsk-features: {offers})"
    )


def _tune(name: str) -> None:
    """Tune an inventory's servers, but not this machine: other labs use it too, and its user tunes it."""
    with labs.use_lab(name) as lab, lab.lock("xdplab doctor --tune"):
        if lab.kind != "inventory":
            raise LabError(f"lab {name}: --tune is for the servers of an inventory", remedy="see docs/use/servers.md")
        changes = [change for host in (lab.dut, lab.tg) for change in tune.tune(host, lab.state_dir(host))]
    show([dataclasses.asdict(change) for change in changes], "tuned")
