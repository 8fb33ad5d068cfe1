"""What a plan's commands change in the DUT's network settings is put back, however the run ends."""

import sys

import pytest
from tests.waiting import child, until
from veth_pair import VethLab

from xdplab.deploy.kernel_settings import kept_sysctls

pytestmark = pytest.mark.root

FILES = ["ipv4/ip_forward", "ipv4/conf/vd0/forwarding", "ipv4/conf/vd0/rp_filter", "ipv4/conf/all/accept_redirects"]
CHANGE = """
cd /proc/sys/net
ip link add gone0 type dummy
echo 1 >ipv4/ip_forward; echo 1 >ipv4/conf/vd0/rp_filter; echo 1000 2000 >ipv4/ip_local_port_range
echo 80 >ipv4/ip_local_reserved_ports
"""
HOLD = """
import sys
sys.path[:0] = {path!r}
from tests.doubles.hosts import in_namespace
from xdplab.deploy.kernel_settings import kept_sysctls
host = in_namespace({name!r})
with kept_sysctls(host):
    host.run(["sh", "-c", {change!r}])
    print("changed", flush=True)
    sys.stdin.read()
"""


def values(lab: VethLab) -> str:
    files = [*FILES, "ipv4/ip_local_port_range", "ipv4/ip_local_reserved_ports"]
    return lab.dut.host.run(["sh", "-c", f"cd /proc/sys/net; grep '' {' '.join(files)}"]).text


def test_settings_are_put_back_at_the_end(lab: VethLab) -> None:
    """A router's `ip_forward` stayed, and each later run in the lab was refused."""
    before = values(lab)
    with kept_sysctls(lab.dut.host):
        lab.dut.host.run(["sh", "-c", CHANGE])
        assert values(lab) != before
    assert values(lab) == before


def test_settings_are_put_back_when_the_controller_is_killed(lab: VethLab) -> None:
    before = values(lab)
    text = HOLD.format(path=sys.path, name=lab.dut.host.name, change=CHANGE)
    with child([sys.executable, "-c", text], says="changed"):
        assert values(lab) != before
    assert until(lambda: values(lab) == before)
