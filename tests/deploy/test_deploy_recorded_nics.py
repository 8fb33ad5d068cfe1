"""Real cards: excerpts of ethtool's output that their owners have published, read by the parsers for such output.

mlx4 (Mellanox/sockperf#21), an Intel card (redhat-performance/tuned#726), ixgbe (ntop/PF_RING#293), sfc
(Xilinx-CNS/onload#208), a card of 14 queues under an older ethtool (ntop/PF_RING#819), i40e (gamemann/xdp-firewall#72,
RHsyseng/openshift-checks#22), e1000e (siderolabs/talos#9167), mlx5 (isc-projects/ethq#8), nfp (Netronome's guide).
"""

from pathlib import Path

import pytest
from tests.doubles.hosts import Played

from xdplab.deploy.settings import Values, read
from xdplab.deploy.settings_nic import BY_PREFIX, Coalescing, Rss
from xdplab.doctor.checks import CheckedHost
from xdplab.doctor.hardware import CHECKS
from xdplab.formats.ethtool import (
    Channels,
    MaxAndCurrent,
    Rings,
    parse_channels,
    parse_pause,
    parse_rings,
    parse_speed,
)

RECORDED = Path(__file__).parent / "recorded"


def words(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def card(recorded: str) -> Played:
    """Return a host whose commands print the output of one card."""
    return Played({"*": words(recorded)})


def test_coalescing_of_an_older_ethtool_is_read_back_as_it_is_set() -> None:
    read = Coalescing.parse(words("mlx4_c"))
    assert (read["adaptive-rx"], read["adaptive-tx"], read["rx-usecs"], read["rx-frames"]) == (True, False, 16, 88)
    assert read["pkt-rate-low"] == 400000
    assert "rx-frames-low" in read, "shown as rx-frame-low, set as rx-frames-low"
    (command,) = Coalescing().commands("eth2", {"rx-frames-low": 4, "adaptive-rx": False})
    assert " ".join(command.argv) == "ethtool -C eth2 rx-frames-low 4 adaptive-rx off"


def test_coalescing_is_what_a_card_has_and_nothing_else() -> None:
    assert Coalescing.parse(words("intel_c")) == {"rx-usecs": 3, "tx-usecs": 3}


def test_pause() -> None:
    assert parse_pause(words("ixgbe_a")) == {"autoneg": False, "rx": True, "tx": False}


@pytest.mark.parametrize(
    ("recorded", "values"),
    [
        ("i40e_x", {"table": "equal 8"}),
        ("fourteen_x", {"table": "equal 14"}),
        ("sfc_x", {"table": "equal 1", "hkey": ":".join(["00"] * 40), "hfunc": "toeplitz"}),
    ],
)
def test_rss(recorded: str, values: Values) -> None:
    assert Rss.parse(words(recorded)) == values


def test_channels_and_rings() -> None:
    assert parse_channels(words("sfc_l")) == MaxAndCurrent(Channels(None, None, 31), Channels(None, None, 4))
    assert parse_channels(words("older_l")).current == Channels(0, 0, 14)
    assert parse_rings(words("e1000e_g")) == MaxAndCurrent(Rings(4096, 4096), Rings(256, 256))
    assert read(BY_PREFIX["rings"], card("e1000e_g"), "e") == {"rx": 256, "tx": 256}  # type: ignore[arg-type]


def test_a_link_has_a_speed_only_where_it_is_up() -> None:
    assert parse_speed(words("ice_link")) == 25e9
    assert parse_speed(words("i40e_nolink")) is None
    for why in ("no", "no (No cable)", "no (Link training failure, No partner detected)"):
        stale = words("ice_link").replace("Link detected: yes", f"Link detected: {why}")
        assert parse_speed(stale) is None, "without a cable, some show their last speed"


@pytest.mark.parametrize(
    ("name", "recorded", "found"),
    [
        ("driver", "i40e_i", "i40e 2.8.20-k, firmware 6.00 0x800036cb 1.1747.0"),
        ("driver", "mlx5_i", "mlx5_core 3.0-1 (January 2015), firmware 14.23.1020"),
        ("driver", "nfp_i", "nfp 210587a (o-o-t), firmware 0.0.3.5 0.21 nic-2.0.7 nic"),
        ("queues", "sfc_l", "up to 31"),
        ("queues", "older_l", "up to 16"),
        ("RSS", "i40e_x", "16 entries over 8 queues"),
    ],
)
def test_the_doctor_reads_a_card(name: str, recorded: str, found: str) -> None:
    (check,) = [check for check in CHECKS if check.name == name]
    (row,) = check.rows(CheckedHost(card(recorded), "dut", "ens2np0"))  # type: ignore[arg-type]
    assert (row.found, row.verdict) == (found, "ok")
