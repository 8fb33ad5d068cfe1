"""`restore`: restore a lab's devices after a crash; it may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from xdplab.cli.common import in_lab, tell
from xdplab.cli.options import STEAL
from xdplab.labs import open_lab
from xdplab.lazy import lazy

if TYPE_CHECKING:
    from xdplab.deploy import device, dpdk, kernel_settings
    from xdplab.doctor import tune as doctor_tune
    from xdplab.studies.traffic import session
else:
    device, dpdk = lazy("xdplab.deploy.device"), lazy("xdplab.deploy.dpdk")
    kernel_settings = lazy("xdplab.deploy.kernel_settings")
    doctor_tune, session = lazy("xdplab.doctor.tune"), lazy("xdplab.studies.traffic.session")


@click.command()
@STEAL
@in_lab
def restore(lab_name: str | None, steal: bool) -> None:
    """Restore the settings that the ends of the lab's links had before a run died."""
    lab = open_lab(lab_name or "netns")
    with lab.lock("restore", steal=steal):
        for end in session.all_endpoints(lab):
            restored = device.restore_remembered(end.host, end.interface, lab.state_dir(end.host))
            outcome = "restored" if restored else "nothing to restore"
            tell(f"{end.host.name} {end.interface}: {outcome}")
        if lab.generator.by_dpdk and (pci := lab.generator.pci) is not None:
            found_port = dpdk.give_back(lab.tg, pci, lab.state_dir(lab.tg))
            outcome = f"given back to {found_port.driver}" if found_port else "was not bound to DPDK"
            tell(f"{lab.tg.name} {pci}: {outcome}")
        for host in {id(h): h for h in (lab.dut, lab.tg)}.values():
            if kernel_settings.put_back(host):
                tell(f"{host.name}: real-time throttling is restored")
            if doctor_tune.undo(host, lab.state_dir(host)):
                tell(f"{host.name}: the changes of `doctor --tune` are undone")
    lab.close()
