"""`restore`: put a lab's devices back after a crash, any number of times."""

from __future__ import annotations

import click

from xdplab.cli.common import console
from xdplab.cli.run import STEAL
from xdplab.deploy.device import restore_remembered
from xdplab.deploy.dpdk import give_back
from xdplab.deploy.throttling import put_back
from xdplab.labs import open_lab
from xdplab.labs.doctor_tune import undo
from xdplab.studies.traffic.study import endpoints, state_dir


@click.command()
@STEAL
@click.pass_obj
def restore(lab_name: str | None, steal: bool) -> None:
    """Put both ends of the lab's link back as they were before a run that died."""
    lab = open_lab(lab_name or "netns")
    with lab.lock("restore", steal=steal):
        for end in endpoints(lab):
            found = restore_remembered(end.host, end.interface, state_dir(lab, end.host))
            said = "put back as it was" if found else "nothing was left to put back"
            console.print(f"{end.host.name} {end.interface}: {said}", highlight=False)
        if lab.generator.by_dpdk and (pci := lab.generator.pci) is not None:
            found_port = give_back(lab.tg, pci, state_dir(lab, lab.tg))
            said = f"given back to {found_port.driver}" if found_port else "was not in DPDK's hands"
            console.print(f"{lab.tg.name} {pci}: {said}", highlight=False)
        for host in {id(h): h for h in (lab.dut, lab.tg)}.values():
            if put_back(host):
                console.print(f"{host.name}: real-time throttling is as it was", highlight=False)
            if undo(host, lab.work_dir(host)):
                console.print(f"{host.name}: what `doctor --tune` changed is as it was", highlight=False)
    lab.close()
