"""A probe without a port: what it makes of counters that are not those of the table, and of names."""

import subprocess
import sys

import pytest

from xdplab.counters.drivers import DRIVERS
from xdplab.studies.probe.answers import ProbeAnswer, ProbedBurst, ProbedPort
from xdplab.studies.probe.asking import rows_of
from xdplab.studies.probe.page import closing_lines, page, published

VETH = next(row for row in DRIVERS if row.name == "veth")
IGB = next(row for row in DRIVERS if row.name == "igb")

DROPS = {"rx_queue_0_xdp_drops": 1000}


def burst(action: str, rose: dict[str, int], mode: str = "native") -> ProbedBurst:
    return ProbedBurst(mode, action, 1000, 1000, 1000 if action == "tx" else 0, rose, [])


@pytest.mark.parametrize(
    ("driver", "made", "wrong"),
    [
        (VETH, burst("drop", {"rx_queue_0_xdp_packets": 600, "rx_queue_1_xdp_packets": 400} | DROPS), []),
        (VETH, burst("drop", {"rx_queue_0_xdp_packets": 1000, "rx_queue_0_xdp_drops": 16}), [("drop", 16)]),
        (VETH, burst("pass", {"link.rx.packets": 1000}), [("received", 0)]),
        (VETH, burst("drop", {}, mode="generic"), []),
        (IGB, burst("tx", {"rx_queue_0_packets": 1000, "link.tx.packets": 1000}), []),
        (IGB, burst("tx", {"rx_queue_0_packets": 1000, "link.tx.packets": 2}), [("sent", 2)]),
    ],
    ids=["two queues", "drops", "received", "generic", "by the link", "not by the link"],
)  # fmt: skip
def test_the_table_is_held_against_what_the_counters_rose_by(driver, made, wrong) -> None:  # type: ignore[no-untyped-def]
    assert [(row.kind, row.counted) for row in rows_of(driver, made) if row.disagrees] == wrong


def test_what_disagrees_is_named_and_what_is_published_has_no_name() -> None:
    answers = [
        ProbeAnswer(
            "mode", "native", "tried", "refused", None, "eth9 of rack.yaml is busy", "basic: yes", disagrees=True
        ),
        ProbeAnswer("mode", "generic", "tried", "works"),
    ]
    table = rows_of(VETH, burst("drop", {"rx_queue_0_xdp_packets": 1000}))
    probe = ProbedPort(
        "rack.yaml", True, "veth", "", "0000:01:00.0", "6.12.3-eth9", "2026-01-02", answers, [], True, table
    )
    assert len(closing_lines(probe)) == 2
    told = published(probe, ["rack.yaml", "eth9", ""])
    assert (told.port, told.bus, told.answers[0].words) == (None, None, "… of … is busy")
    assert "veth (virtual), Linux 6.12.3" in page(told)
    assert all(name not in page(told) for name in ("rack.yaml", "eth9", "0000:01"))


@pytest.mark.root
def test_a_port_below_a_bridge_with_the_default_route_is_refused() -> None:
    """In namespaces that end with the command."""
    links = "mount -t sysfs sysfs /sys && ip link add pa type veth peer name pb && ip link add br9 type bridge"
    route = "ip link set pa master br9 && ip link set br9 up && ip -6 route add default dev br9"
    code = "from xdplab.studies.probe.bench import probed; probed('pa').__enter__()"
    argv = ["unshare", "--net", "--mount", "sh", "-c", f'{links} && {route} && exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "pa carries the default route (by way of br9)" in done.stderr
