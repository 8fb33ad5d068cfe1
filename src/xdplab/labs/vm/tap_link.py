"""The link of a guest that is the DUT itself: its other end is outside.

Runs in the guest as a script, standard library only, and tells the keeper outside in one JSON line.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.netns import host as netns_host
    from xdplab.labs.vm import link
else:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from netns import host as netns_host
    from vm import link

DUT, INTERFACE = "dut", "vd0"
MAC = "52:54:00:78:64:70"
"""The MAC that identifies the link among the guest's interfaces, whatever the kernel calls them."""
ETHERNET = "0x0200"
"""The beginning of the PCI class of an Ethernet card."""


def load_drivers() -> None:
    """Load the drivers of the guest's network cards, because there is no udev. Raises RuntimeError with modprobe's
    message."""
    for kind in Path("/sys/bus/pci/devices").glob("*/class"):
        if kind.read_text().startswith(ETHERNET) and not (kind.parent / "driver").exists():
            netns_host.command("modprobe", (kind.parent / "modalias").read_text().strip())


def name_link() -> None:
    """Call the link `INTERFACE`. Raises RuntimeError if the guest has none."""
    for path in Path("/sys/class/net").glob("*/address"):
        if path.read_text().strip() == MAC:
            netns_host.command("ip", "link", "set", path.parent.name, "name", INTERFACE)
            return
    raise RuntimeError(f"there is no interface {MAC}, the link to the TG")


def main() -> None:
    os.environ["PATH"] = netns_host.PATH
    try:
        link.raise_softirqs()
        load_drivers()
        name_link()
        link.tell(hosts={DUT: netns_host.bring_up(INTERFACE)})
    except (OSError, RuntimeError) as error:
        link.tell(error=str(error))


if __name__ == "__main__":
    main()
