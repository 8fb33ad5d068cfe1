"""The netns lab in a guest, with a netkit for its link. Runs in the guest as a script, as `link` does."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdplab.labs.netns import netkit
    from xdplab.labs.vm import link
else:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from netns import netkit
    from vm import link


class NetkitLinkKeeper(link.LinkKeeper, netkit.NetkitKeeper):
    """The keeper of the lab in the guest."""


if __name__ == "__main__":
    link.main(json.loads(sys.argv[1]), NetkitLinkKeeper)
