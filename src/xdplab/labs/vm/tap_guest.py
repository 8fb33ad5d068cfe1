"""PID 1 of a guest that is the DUT itself: one host, in the guest's initial namespaces, with a link to the outside.

Runs as a script, standard library only.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from xdplab.labs import netns_host
    from xdplab.labs.vm import guest
else:
    import guest

    netns_host = guest.netns_host

DUT, INTERFACE = "dut", "vd0"
MAC = "52:54:00:78:64:70"
"""By which the link is told from the door, whatever the kernel calls them."""


class DutKeeper(guest.GuestKeeper):
    """The keeper of the one host in the guest."""

    def make(self) -> None:
        name_link()
        netns_host.command("umount", "/sys")  # the host mounts its own, which the kernel refuses on top of this one
        guest.share_built()
        host = guest.OwnHost(DUT)
        host.known |= netns_host.bring_up(INTERFACE)
        self.hosts = {DUT: host}
        guest.open_interface()
        self.take_name()
        self.listener.listen()


def name_link() -> None:
    """Call the link `INTERFACE`. Raises RuntimeError where the guest has none."""
    for path in Path("/sys/class/net").glob("*/address"):
        if path.read_text().strip() == MAC:
            netns_host.command("ip", "link", "set", path.parent.name, "name", INTERFACE)
            return
    raise RuntimeError(f"there is no interface {MAC}, the link to the TG")


if __name__ == "__main__":
    guest.main(json.loads(sys.argv[1]), DutKeeper)
