"""Each driver's counters, in the layout of its source: frames that the DUT received, sent back and dropped, per queue.

No machine here has these cards, so there are no recordings: names and meanings come from the kernels' sources.
Other tests compare those of igb, vmxnet3, virtio_net and veth with known frames in guests and namespaces.
"""

import json
import re

import pytest
from tests.counters.deriving import derive, link, readings_of

from xdplab.absent import Absent
from xdplab.counters import packets
from xdplab.counters.drivers import DRIVERS, QUEUE, absent, driver_of, total
from xdplab.counters.table import LAGS_S
from xdplab.errors import FormatError
from xdplab.formats.ethtool import parse_driver, parse_statistics

SENT, QUEUES = 1000, (750, 250)


def queues(*names: str, unused: int = 2) -> list[str]:
    """Return the counters of two queues in use, and of others that some drivers print too."""
    return [name.format(q) for q in range(len(QUEUES) + unused) for name in names]


LAYOUTS: dict[str, list[str]] = {
    "mlx5_core": [
        *("rx_packets", "tx_packets", "rx_xdp_drop", "rx_xdp_redirect", "rx_xdp_tx_xmit", "rx_xdp_tx_full"),
        *("rx_out_of_buffer", "rx_discards_phy", "rx_packets_phy", "tx_packets_phy"),
        *queues("rx{}_packets", "rx{}_bytes", "rx{}_xdp_drop", "rx{}_xdp_redirect"),
        *queues("rx{}_xdp_tx_xmit", "rx{}_xdp_tx_full", "rx{}_xdp_tx_err", "tx{}_packets", "tx{}_xdp_xmit"),
        *queues("rx{}_xsk_packets"),
    ],
    "ixgbe": [
        *("rx_packets", "tx_packets", "rx_pkts_nic", "tx_pkts_nic", "rx_missed_errors", "rx_no_dma_resources"),
        *queues("tx_queue_{}_packets", "tx_queue_{}_bytes"),
        *queues("rx_queue_{}_packets", "rx_queue_{}_bytes"),
    ],
    "i40e": [
        *("rx_packets", "tx_packets", "rx_dropped", "rx_missed_errors", "port.rx_discards"),
        *queues("tx-{}.packets", "rx-{}.packets"),
    ],
    "i40e before": [
        *("rx_packets", "tx_packets", "rx_dropped", "port.rx_dropped", *queues("tx-{}.packets", "rx-{}.packets")),
    ],
    "ice": [
        *("rx_unicast", "tx_unicast", "rx_multicast", "tx_multicast", "rx_broadcast", "tx_broadcast", "rx_dropped"),
        *queues("tx_queue_{}_packets"),
        *queues("rx_queue_{}_packets"),
        *("rx_unicast.nic", "tx_unicast.nic", "tx_multicast.nic", "tx_broadcast.nic", "rx_dropped.nic"),
    ],
    "igb": [
        *("rx_packets", "rx_no_buffer_count", "rx_missed_errors", *queues("tx_queue_{}_packets")),
        *queues("rx_queue_{}_packets", "rx_queue_{}_drops"),
    ],
    "igc": [
        *("rx_packets", "rx_no_buffer_count", "rx_missed_errors", *queues("tx_queue_{}_packets")),
        *queues("rx_queue_{}_packets", "rx_queue_{}_drops"),
    ],
    "ena": [
        *queues(
            *("queue_{}_tx_cnt", "queue_{}_rx_cnt", "queue_{}_rx_xdp_aborted", "queue_{}_rx_xdp_drop"),
            *("queue_{}_rx_xdp_pass", "queue_{}_rx_xdp_tx", "queue_{}_rx_xdp_invalid", "queue_{}_rx_xdp_redirect"),
            unused=0,
        ),
        # transmit queues of XDP are numbered after the receive queues
        *(f"queue_{q}_xdp_tx_{name}" for q in (2, 3) for name in ("cnt", "dma_mapping_err", "prepare_ctx_err")),
    ],
    "bnxt_en": [
        *queues(
            *("[{}]: rx_ucast_packets", "[{}]: rx_mcast_packets", "[{}]: rx_bcast_packets", "[{}]: rx_discards"),
            *("[{}]: tx_ucast_packets", "[{}]: rx_buf_errors"),
        ),
        *("rx_total_buf_errors", "rx_total_oom_discards", "rx_stat_discard"),
    ],
    "nfp": queues("rvec_{}_rx_pkts", "rvec_{}_tx_pkts", "rvec_{}_tx_busy"),
    "mlx4_en": queues(
        *("rx{}_packets", "rx{}_xdp_drop", "rx{}_xdp_redirect", "rx{}_xdp_redirect_fail"),
        *("rx{}_xdp_tx", "rx{}_xdp_tx_full"),
    ),
    "gve": [
        *("rx_packets", "tx_packets", "rx_dropped", *queues("tx_posted_desc[{}]", "tx_xdp_xmit[{}]", unused=0)),
        *queues("rx_completed_desc[{}]", "rx_dropped_pkt[{}]", "rx_no_buffers_posted[{}]", unused=0),
        *queues("rx_xdp_aborted[{}]", "rx_xdp_drop[{}]", "rx_xdp_pass[{}]", "rx_xdp_tx[{}]", unused=0),
        *queues("rx_xdp_redirect[{}]", "rx_xdp_tx_errors[{}]", "rx_xdp_redirect_errors[{}]", unused=0),
    ],
    "mana": [
        *("hc_rx_discards_no_wqe", "hc_rx_ucast_pkts", "hc_tx_ucast_pkts"),
        *queues("rx_{}_packets", "rx_{}_bytes", "rx_{}_xdp_drop", "rx_{}_xdp_tx", "rx_{}_xdp_redirect", unused=0),
        *queues("tx_{}_packets", "tx_{}_xdp_xmit", unused=0),
    ],
    "sfc": [
        *("port_tx_packets", "port_rx_packets", "port_rx_nodesc_drops", "port_rx_overflow", "rx_noskb_drops"),
        *("rx_xdp_drops", "rx_xdp_bad_drops", "rx_xdp_tx", "rx_xdp_redirect"),
        *queues("tx-{}.tx_packets", "rx-{}.rx_packets", "tx-xdp-cpu-{}.tx_packets"),
    ],
    "atlantic": [
        *("InPackets", "OutPackets", "InPacketsDma", "OutPacketsDma", "InDroppedDma"),
        *queues("Queue[{}] InPackets", "Queue[{}] InErrors", "Queue[{}] XdpAbort", "Queue[{}] XdpDrop"),
        *queues("Queue[{}] XdpPass", "Queue[{}] XdpTx", "Queue[{}] XdpInvalid", "Queue[{}] XdpRedirect"),
        *queues("Queue[{}] OutPackets"),
        *("PTP Queue[8] InPackets", "PTP Queue[8] XdpTx", "PTP Queue[31] InPackets", "PTP Queue[31] XdpTx"),
    ],
    "atlantic with classes": [
        *("InPackets", "InDroppedDma"),
        *queues("TC0 Queue[{}] InPackets", "TC0 Queue[{}] XdpAbort", "TC0 Queue[{}] XdpDrop", unused=0),
        *queues("TC0 Queue[{}] XdpTx", "TC0 Queue[{}] XdpRedirect", unused=0),
        *(f"TC1 Queue[4] {name}" for name in ("InPackets", "XdpAbort", "XdpDrop", "XdpTx", "XdpRedirect")),
    ],
    **{
        driver: ["rx_pkt_n", "tx_pkt_n", "rx_missed_cntr", *queues("q{}_tx_pkt_n"), *queues("q{}_rx_pkt_n")]
        for driver in ("st_gmac", "st_xgmac", "st_mac100")
    },
    "hv_netvsc": [
        *("tx_no_memory", "rx_no_memory", *queues("tx_queue_{}_packets", "tx_queue_{}_xdp_xmit", unused=0)),
        *queues("rx_queue_{}_packets", "rx_queue_{}_bytes", "rx_queue_{}_xdp_drop", unused=0),
        *queues("rx_queue_{}_xdp_redirect", "rx_queue_{}_xdp_tx", unused=0),
    ],
    **{
        driver: ["rx_ucast_frames", *queues("rxq{}: bytes", "rxq{}: frames", "txq{}: frames", unused=0)]
        for driver in ("rvu-nicpf", "rvu-nicvf")
    },
    "virtio_net": [
        *queues("rx{}_drops", "rx{}_xdp_packets", "rx{}_xdp_tx", "rx{}_xdp_redirects", "rx{}_xdp_drops", unused=0),
        *queues("tx{}_xdp_tx", "tx{}_xdp_tx_drops", unused=0),
    ],
}  # fmt: skip

# The counters that an action changes, by driver; `{}` is the queue. ena's ring has its own counters.
MOVES: dict[str, dict[str, list[str]]] = {
    "mlx5_core": {"all": [], "tx": ["rx{}_xdp_tx_xmit"], "drop": ["rx{}_xdp_drop"], "pass": ["rx{}_packets"]},
    "ena": {
        "all": ["queue_{}_rx_cnt"],
        "tx": ["queue_{}_rx_xdp_tx"],
        "drop": ["queue_{}_rx_xdp_drop"],
        "pass": ["queue_{}_rx_xdp_pass"],
    },
    "mlx4_en": {"all": [], "tx": ["rx{}_xdp_tx"], "drop": ["rx{}_xdp_drop"], "pass": ["rx{}_packets"]},
    "virtio_net": {"all": ["rx{}_xdp_packets"], "tx": ["rx{}_xdp_tx"], "drop": ["rx{}_xdp_drops"], "pass": []},
    **{driver: {"all": ["rx_queue_{}_packets"]} for driver in ("ixgbe", "igb", "igc")},
    "ice": {"all": ["rx_queue_{}_packets"], "tx": ["tx_unicast", "tx_unicast.nic"]},
    **{driver: {"all": ["rx-{}.packets"]} for driver in ("i40e", "i40e before")},
    "bnxt_en": {"all": ["[{}]: rx_ucast_packets"]},
    "nfp": {"all": ["rvec_{}_rx_pkts"]},
    "gve": {"all": [], "tx": ["rx_xdp_tx[{}]"], "drop": ["rx_xdp_drop[{}]"], "pass": ["rx_xdp_pass[{}]"]},
    "mana": {
        "all": [],
        "tx": ["rx_{}_packets", "rx_{}_xdp_tx", "tx_{}_packets"],
        "drop": ["rx_{}_xdp_drop"],
        "pass": ["rx_{}_packets"],
    },
    "sfc": {"all": ["rx-{}.rx_packets"], "tx": ["rx_xdp_tx"], "drop": ["rx_xdp_drops"], "pass": []},
    "atlantic": {
        "all": ["Queue[{}] InPackets"],
        "tx": ["Queue[{}] XdpTx", "Queue[{}] OutPackets"],
        "drop": ["Queue[{}] XdpDrop"],
        "pass": ["Queue[{}] XdpPass"],
    },
    "atlantic with classes": {
        "all": ["TC0 Queue[{}] InPackets"],
        "tx": ["TC0 Queue[{}] XdpTx"],
        "drop": ["TC0 Queue[{}] XdpDrop"],
    },
    **{driver: {"all": ["q{}_rx_pkt_n"]} for driver in ("st_gmac", "st_xgmac", "st_mac100")},
    "hv_netvsc": {
        "all": [],
        "tx": ["rx_queue_{}_packets", "rx_queue_{}_xdp_tx"],
        "drop": ["rx_queue_{}_xdp_drop"],
        "pass": ["rx_queue_{}_packets"],
    },
    **{driver: {"all": ["rxq{}: frames"]} for driver in ("rvu-nicpf", "rvu-nicvf")},
}
# What the link's statistics leave out: actions among the frames received, and XDP_TX (of ena in 6.1; of ice, what fits
# in three quarters of the rings).
LINK_RX_WITHOUT = {driver: {"tx", "drop"} for driver in ("mlx5_core", "mlx4_en", "st_gmac", "st_xgmac", "st_mac100")}
LINK_RX_WITHOUT |= {"mana": {"drop"}, "hv_netvsc": {"drop"}}
LINK_TX_WITHOUT = {"mlx5_core", "mlx4_en", "ena", "ice"}
# The counters of what another port redirected to this one, where the link's statistics leave that out too.
FORWARDED = {
    "mlx5_core": ("tx0_xdp_xmit", "tx1_xdp_xmit"),
    "ena": ("queue_2_xdp_tx_cnt", "queue_3_xdp_tx_cnt"),
    "ice": ("tx_unicast", "tx_broadcast"),
}
# Counters of frames that found no place in the port or in a queue. Drivers that print no such counter have no entry.
LOST = {
    "mlx5_core": ("rx_out_of_buffer", "rx_discards_phy"),
    "ixgbe": ("rx_no_dma_resources", "rx_missed_errors"),
    "i40e": ("rx_missed_errors", "port.rx_discards"),
    "i40e before": ("rx_dropped", "port.rx_dropped"),
    "ice": ("rx_dropped", "rx_dropped.nic"),
    **dict.fromkeys(("igb", "igc"), ("rx_queue_0_drops", "rx_queue_1_drops", "rx_missed_errors")),
    "bnxt_en": ("[0]: rx_discards", "[1]: rx_discards", "[1]: rx_buf_errors", "rx_total_oom_discards"),
    "mana": ("hc_rx_discards_no_wqe",),
    "sfc": ("port_rx_nodesc_drops", "port_rx_overflow"),
}


def statistics(counters: dict[str, int]) -> bytes:
    return "".join(["NIC statistics:\n", *(f"     {name}: {value}\n" for name, value in counters.items())]).encode()


def named(driver: str) -> str:
    """Return what the driver calls itself: a layout of older kernels, or of another setting, has a word more."""
    return driver.partition(" ")[0]


def files(driver: str, action: str) -> dict[str, bytes]:
    """Return the readings around a window in which the program returned the same action for every frame."""
    before = {name: 40 + at for at, name in enumerate(LAYOUTS[driver])}
    after = dict(before)
    moves = MOVES[driver]["all"] + MOVES[driver].get(action, [])
    for queue, frames in enumerate(QUEUES):
        for name in moves:
            after[name.format(queue)] += frames
        if driver == "ena" and action == "tx":
            after[f"queue_{queue + 2}_xdp_tx_cnt"] += frames
    sent = SENT if action == "tx" and driver not in LINK_TX_WITHOUT else 0
    received = SENT if action not in LINK_RX_WITHOUT.get(driver, ()) else 0
    return {
        "dut.driver.before.txt": f"driver: {named(driver)}\nversion: 6.12.107\nfirmware-version: 1\n".encode(),
        "dut.ethtool.before.txt": statistics(before),
        "dut.ethtool.after.txt": statistics(after),
        "dut.iplink.before.json": link(7, 9),
        "dut.iplink.after.json": link(7 + received, 9 + sent),
    }


@pytest.mark.parametrize("action", ["tx", "drop", "pass"])
@pytest.mark.parametrize("driver", LAYOUTS)
def test_the_dut_is_counted_by_its_driver_whatever_the_program_does(driver: str, action: str) -> None:
    values = derive(files(driver, action), queues=2)
    assert values["dut_driver"] == named(driver)
    assert values["dut_rx_packets"] == SENT
    assert values["dut_tx_packets"] == (SENT if action == "tx" else 0)
    assert values["rx_by_queue"] == QUEUES
    if {"drop", "tx"} <= MOVES[driver].keys():
        assert json.loads(str(values["xdp_actions"]))[action] == SENT
    else:
        assert values.reason("xdp_actions") == f"the driver {named(driver)} does not count what a program decides"


def test_what_mlx5s_ring_refused_is_told_from_a_drop() -> None:
    """The driver also counts such a frame as a drop (en/xdp.c, mlx5e_xdp_handle), and so as received."""
    found = files("mlx5_core", "tx")
    counters = parse_statistics(found["dut.ethtool.after.txt"])
    counters |= {"rx0_xdp_tx_xmit": counters["rx0_xdp_tx_xmit"] - 50}
    counters |= {name: counters[name] + 50 for name in ("rx0_xdp_tx_full", "rx0_xdp_drop")}
    found["dut.ethtool.after.txt"] = statistics(counters)
    values = derive(found, queues=2)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (1000, 950)
    assert json.loads(str(values["xdp_actions"])) == {"tx": 1000, "drop": 0, "redirect": 0, "pass": 0}


def moved(found: dict[str, bytes], **by: int) -> dict[str, bytes]:
    """Return the readings with counters of `ethtool -S` changed after the window."""
    counters = parse_statistics(found["dut.ethtool.after.txt"])
    return found | {"dut.ethtool.after.txt": statistics(counters | {name: counters[name] + by[name] for name in by})}


def test_what_enas_ring_refused_was_not_sent() -> None:
    """ena_xdp_execute counts the action also if ena_xdp_xmit_frame failed."""
    found = moved(files("ena", "tx"), queue_2_xdp_tx_cnt=-60, queue_2_xdp_tx_prepare_ctx_err=50)
    values = derive(moved(found, queue_3_xdp_tx_dma_mapping_err=10), queues=2)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (1000, 940)
    assert json.loads(str(values["xdp_actions"]))["tx"] == 1000


def test_what_gves_ring_refused_was_not_sent() -> None:
    """gve_xdp_done counts the action also if gve_xdp_xmit_one failed."""
    found = moved(files("gve", "tx"), **{"rx_xdp_tx_errors[1]": 50})
    values = derive(found, queues=2)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (1000, 950)
    assert json.loads(str(values["xdp_actions"]))["tx"] == 1000


@pytest.mark.parametrize("driver", LAYOUTS)
def test_what_the_nic_had_no_buffer_for_is_counted(driver: str) -> None:
    found = moved(files(driver, "pass"), **{name: 7 * 10**at for at, name in enumerate(LOST.get(driver, ()))})
    if driver in LOST:
        assert derive(found, queues=2)["dut_driver_lost"] == int("7" * len(LOST[driver]))
    else:
        why = f"the driver {named(driver)} counts no lost frames in ethtool -S"
        assert derive(found, queues=2).reason("dut_driver_lost") == why


def test_a_reading_waits_as_long_as_the_counters_may_lag() -> None:
    """bnxt_en: the NIC writes them each second, the driver's timer takes them over each second (bnxt_timer)."""
    assert LAGS_S == {"bnxt_en": 2.5, "sfc": 1.5, "atlantic": 1.5}
    assert set(LAGS_S) <= {row.name for row in DRIVERS}


@pytest.mark.parametrize("driver", LAYOUTS)
def test_what_another_port_redirected_to_this_one_is_counted(driver: str) -> None:
    found = files(driver, "pass")
    if driver in FORWARDED:
        found = moved(found, **dict(zip(FORWARDED[driver], QUEUES, strict=True)))
    else:
        found["dut.iplink.after.json"] = link(7, 9 + SENT)
    for mode in ("native", "generic"):
        counted = derive(found, mode=mode, queues=2)["dut_forwarded_packets"]
        assert counted == (0 if driver in FORWARDED and mode == "generic" else SENT)


def test_a_queue_that_counts_is_kept_though_it_was_not_asked_for() -> None:
    values = derive(files("ixgbe", "tx"), queues=1)
    assert values["rx_by_queue"] == QUEUES


def unknown(rx: int, tx: int) -> dict[str, bytes]:
    found = files("ixgbe", "tx") | {"dut.driver.before.txt": b"driver: octeontx2\n"}
    return found | {"dut.iplink.after.json": link(7 + rx, 9 + tx)}


@pytest.mark.parametrize(
    ("rx", "tx", "counted"),
    [(1000, 990, (1000, 990)), (1000, 3, (1000, None)), (0, 0, (None, None))],
    ids=["as XDP's frames", "strays only", "not at all"],
)
def test_a_driver_without_a_row_is_counted_by_the_link_where_that_moves(
    rx: int, tx: int, counted: tuple[int | None, int | None]
) -> None:
    values = derive(unknown(rx, tx), queues=2)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == counted
    if counted[1] is None:
        said = "counters/drivers.py has no row for the driver octeontx2, and the link's statistics do not count"
        assert said in str(values.reason("dut_tx_packets"))
    assert values["dut_counted_by"] == "link"


@pytest.mark.parametrize(
    ("refuted", "mode", "counted"),
    [
        ("ixgbe received", "native", (None, 990)),
        ("ixgbe sent", "native", (1000, None)),
        ("ixgbe received sent", "generic", (1005, 990)),
        ("veth received sent", "native", (1000, 990)),
    ],
)
def test_what_a_probe_of_the_port_refutes_counts_nothing(
    refuted: str, mode: str, counted: tuple[int | None, int | None]
) -> None:
    note = f"/run/xdplab/probes/vd0\t{refuted}: rx_queue_*_packets counted 0 of 1,000\n".encode()
    probed = {"dut.iplink.after.json": link(1012, 999), "dut.settings.before.txt": note}
    values = derive(files("ixgbe", "tx") | probed, mode=mode, queues=2)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == counted
    assert values["rx_by_queue"] == (None if counted[0] is None else QUEUES)


VMXNET3 = """NIC statistics:
     Tx Queue#: 0
       TSO pkts tx: 0
       ucast pkts tx: {back}
          giant hdr: 0
       ring full: {full}
       giant hdr: 0
       xdp xmit: 0
     Rx Queue#: 0
       ucast pkts rx: {got}
       mcast pkts rx: 0
       bcast pkts rx: 0
       pkts rx OOB: 16264
       rx buf alloc fail: 3
       drv dropped rx total: 0
          xdp packets: {got}
          xdp tx: {back}
          xdp redirects: 0
          xdp drops: {full}
          xdp aborted: 0
     Rx Queue#: 1
       ucast pkts rx: 0
       mcast pkts rx: 0
       bcast pkts rx: 0
       pkts rx OOB: 0
       rx buf alloc fail: 0
          xdp packets: 0
          xdp tx: 0
          xdp redirects: 0
          xdp drops: 0
          xdp aborted: 0
     tx timeout count: 0
"""


def test_vmxnet3_names_its_queues_by_headings() -> None:
    """Linux 6.12, a burst of 200,000 over a tap: 38,568 reached XDP, 19,060 were sent back, 19,508 met a full ring."""
    found = files("igb", "tx") | {"dut.driver.before.txt": b"driver: vmxnet3\n"}
    for when, numbers in (("before", (0, 0, 0)), ("after", (38568, 19060, 19508))):
        text = VMXNET3.format(**dict(zip(("got", "back", "full"), numbers, strict=True)))
        found[f"dut.ethtool.{when}.txt"] = text.encode()
    values = derive(found, queues=2)
    assert values["rx_by_queue"] == (38568, 0)
    assert (values["dut_rx_packets"], values["dut_tx_packets"]) == (38568, 19060)
    assert json.loads(str(values["xdp_actions"])) == {"tx": 38568, "drop": 0, "redirect": 0, "pass": 0}
    assert "Tx Queue# 0     giant hdr" in parse_statistics(VMXNET3.format(got=0, back=0, full=0))


def test_virtios_older_names_are_not_taken_for_veths() -> None:
    """Linux 6.1 names them as veth does, and its `drops` contain the frames that the program dropped."""
    names = ("packets", "tx", "redirects", "drops")
    older = {f"rx_queue_0_xdp_{name}": 5 for name in names} | {"rx_queue_0_drops": 5, "tx_queue_0_xdp_tx_drops": 1}
    row = driver_of(older, "virtio_net")
    assert (row.name, total(older, row.sent or ()), total(older, row.redirect)) == ("virtio_net", 4, 5)


def test_mlx4_of_5_10_has_no_counters_of_redirects() -> None:
    counters = {"rx0_packets": 1, "rx0_dropped": 0, "rx0_xdp_drop": 20, "rx0_xdp_tx": 300, "rx0_xdp_tx_full": 4000}
    row = driver_of(counters, "mlx4_en")
    assert (row.kernels, total(counters, row.received), total(counters, row.sent or ())) == ("5.10", 4321, 300)
    newer = driver_of(counters | {"rx0_xdp_redirect": 0, "rx0_xdp_redirect_fail": 0}, "mlx4_en")
    assert newer.kernels == "6.1, 6.12"


def test_a_counter_that_is_not_there_is_named_and_not_nothing() -> None:
    found = files("ice", "pass")
    for when in ("before", "after"):
        counters = parse_statistics(found[f"dut.ethtool.{when}.txt"])
        counters.pop("rx_dropped.nic")
        found[f"dut.ethtool.{when}.txt"] = statistics(counters)
    with pytest.raises(Absent, match=r"ethtool -S lacks rx_dropped\.nic, a part of lost frames"):
        packets.driver_lost(readings_of(found), "dut")


@pytest.mark.parametrize("driver", LAYOUTS)
def test_a_row_has_no_name_that_its_driver_does_not_print(driver: str) -> None:
    counters = dict.fromkeys(LAYOUTS[driver], 1)
    row = driver_of(counters, named(driver))
    assert absent(counters, row.names) == ()


def test_every_row_says_which_functions_of_which_kernels_it_was_read_from() -> None:
    for row in DRIVERS:
        assert re.fullmatch(r"drivers/net/(\S+\.c: [\w, ]+(; )?)+", row.source), row.name
        assert {kernel[:4].rstrip(".") for kernel in row.kernels.split(", ")} <= {"5.10", "6.1", "6.12"}, row.name
    assert {row.name for row in DRIVERS if row.tried} == {"veth", "virtio_net", "igb", "vmxnet3"}


def test_every_row_counts_received_frames_by_queue() -> None:
    """A name without a queue ended a whole run, as no number could be read from it."""
    assert [row.name for row in DRIVERS if not all(QUEUE in name for name in row.received)] == []


def test_the_drivers_name_is_read_from_ethtool() -> None:
    assert parse_driver(b"driver: mlx5_core\nversion: 6.1\n") == "mlx5_core"
    with pytest.raises(FormatError, match="driver: NAME"):
        parse_driver(b"Cannot get driver information: No such device\n")
