"""The XDP counters of NIC drivers: a row per driver and set of names, read from the kernel's source.

A counter is a name in `ethtool -S` as a pattern, with the queue as its group; one that begins with `-` is subtracted.
If a driver counts XDP_TX only in the link's statistics, ``sent`` is None. Names change between kernels, also in their
stable releases: the counters that are there choose the row, not the kernel's version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

Names = tuple[str, ...]
QUEUE = "([0-9]{1,4})"


@dataclass(frozen=True)
class Driver:
    """One driver's counters. A kind is empty if the driver does not count it separately.

    ``received``: frames that a receive queue took, whatever the program decided; ``received_xdp_only``: they stay 0
    without native XDP. ``sent``: XDP_TX frames that the ring took; ``refused``: those that it did not take. ``tx``,
    ``drop`` (including aborted), ``redirect``: the program's actions. ``forwarded``: frames that the program of another
    port redirected to this one, if the link's statistics leave them out. ``lost``: frames without a place, in the
    port's packet buffer or among a queue's descriptors. ``kernels``: those whose source was read, and counts in this
    way; ``source``: the functions read, by file. ``tried``: where the counters were compared with known frames.
    Counters that a timer takes over have a line in `table.LAGS_S` as well.
    """

    name: str
    source: str
    kernels: str
    received: Names
    sent: Names | None = None
    refused: Names = ()
    tx: Names = ()
    drop: Names = ()
    redirect: Names = ()
    forwarded: Names = ()
    lost: Names = ()
    received_xdp_only: bool = False
    tried: str | None = None
    note: str = ""

    @property
    def names(self) -> Names:
        kinds = (self.received, self.sent or (), self.refused, self.tx, self.drop, self.redirect, self.forwarded)
        return tuple(name for kind in (*kinds, self.lost) for name in kind)


def _q(*names: str) -> Names:
    """Return names as patterns: `*` stands for the queue."""
    return tuple(("-" if name[0] == "-" else "") + re.escape(name.lstrip("-")).replace(r"\*", QUEUE) for name in names)


def _tc(*names: str) -> Names:
    """Return atlantic's names, which begin with the traffic class where there are several."""
    return tuple(f"(?:TC[0-9] )?{name}" for name in _q(*names))


_IN_LINK = "XDP_TX is counted in the link's statistics alone, as it completes; no action is counted apart"
_TWO_LOSSES = "a queue drops frames itself only if the driver told it to; otherwise the port misses them; "
_ICE_SENT = (r"(tx_unicast)", r"(tx_multicast)", r"(tx_broadcast)")
_MLX4 = "rx*_packets holds the frames that were passed only, and so do the link's; nothing can be redirected to it"

_I40E_BEFORE = Driver(
    "i40e",
    "drivers/net/ethernet/intel/i40e/i40e_ethtool.c: i40e_get_ethtool_stats; i40e_main.c: "
    "i40e_update_eth_stats, i40e_update_vsi_stats, i40e_update_pf_stats; i40e_txrx.c: "
    "i40e_update_rx_stats",
    "5.10",
    received=_q("rx-*.packets"),
    lost=(r"(rx_dropped)", r"(port\.rx_dropped)"),
    note="the interface's rx_dropped: without a descriptor, and from 6.2 on also other discards; " + _IN_LINK,
)
_I40E = (
    replace(
        _I40E_BEFORE,
        kernels="6.1.176, 6.12",
        lost=(r"(rx_missed_errors)", r"(port\.rx_discards)"),
        note="6.7 has renamed these two, and so have later stable releases of older kernels; " + _IN_LINK,
    ),
    _I40E_BEFORE,
)
_BNXT_BEFORE = Driver(
    "bnxt_en",
    "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c: bnxt_get_ethtool_stats; bnxt.c: bnxt_rx_pkt, "
    "bnxt_timer; bnxt_xdp.c: bnxt_rx_xdp",
    "5.10, 6.1",
    received=_q("[*]: rx_ucast_packets", "[*]: rx_mcast_packets", "[*]: rx_bcast_packets"),
    lost=_q("[*]: rx_discards", "[*]: rx_buf_errors"),
    note="the NIC writes its counters once per second, and the driver takes them over once per second (both: "
    "`stats-block-usecs`); the source does not say whether the port's rx_stat_discard holds the rings' too; "
    + _IN_LINK,
)
_BNXT = (
    replace(_BNXT_BEFORE, kernels="6.12", lost=(*_BNXT_BEFORE.lost, r"(rx_total_oom_discards)")),
    _BNXT_BEFORE,
)
_STMMAC = Driver(
    "st_gmac",
    "drivers/net/ethernet/stmicro/stmmac/stmmac_ethtool.c: stmmac_get_ethtool_stats, "
    "stmmac_ethtool_getdrvinfo; stmmac_main.c: stmmac_rx, stmmac_xdp_run_prog",
    "6.1, 6.12",
    received=_q("q*_rx_pkt_n"),
    note="stmmac's name in `ethtool -i`, by its core; frames with errors are counted too; the link's rx_packets holds "
    "the frames that were passed only; " + _IN_LINK,
)
_OCTEONTX2 = Driver(
    "rvu-nicpf",
    "drivers/net/ethernet/marvell/octeontx2/nic/otx2_ethtool.c: otx2_get_qset_stats; otx2_common.c: "
    "otx2_update_rq_stats, otx2_get_stats64; otx2_txrx.c: otx2_xdp_rcv_pkt_handler",
    "6.1, 6.12",
    received=_q("rxq*: frames"),
    note="the NIC counts its queues and the link, XDP's frames too; only the link's rx_dropped says what it lost; no "
    "action is counted apart",
)

DRIVERS = (
    Driver(
        "veth",
        "drivers/net/veth.c: veth_get_ethtool_stats, veth_xdp_rcv, veth_xdp_rcv_one, veth_xdp_rcv_skb",
        "5.10, 6.1, 6.12",
        received=_q("rx_queue_*_xdp_packets"),
        sent=_q("rx_queue_*_xdp_tx"),
        refused=_q("rx_queue_*_xdp_tx_errors"),
        tx=_q("rx_queue_*_xdp_tx", "rx_queue_*_xdp_tx_errors"),
        drop=_q("rx_queue_*_xdp_drops"),
        redirect=_q("rx_queue_*_xdp_redirect", "rx_queue_*_drops"),
        received_xdp_only=True,
        tried="5.10 to 7.2, namespaces",
        note="rx_queue_*_drops are redirects that failed",
    ),
    Driver(
        "virtio_net",
        "drivers/net/virtio_net.c: virtnet_get_ethtool_stats, virtnet_receive, virtnet_xdp_xmit",
        "6.12",
        received=_q("rx*_xdp_packets"),
        sent=_q("rx*_xdp_tx", "-tx*_xdp_tx_drops"),
        refused=_q("tx*_xdp_tx_drops"),
        tx=_q("rx*_xdp_tx"),
        drop=_q("rx*_xdp_drops"),
        redirect=_q("rx*_xdp_redirects"),
        received_xdp_only=True,
        tried="6.12, QEMU",
        note="a redirect that failed is a drop too",
    ),
    Driver(
        "virtio_net",
        "drivers/net/virtio_net.c: virtnet_get_ethtool_stats, virtnet_receive, virtnet_xdp_xmit",
        "5.10, 6.1",
        received=_q("rx_queue_*_xdp_packets"),
        sent=_q("rx_queue_*_xdp_tx", "-tx_queue_*_xdp_tx_drops"),
        refused=_q("tx_queue_*_xdp_tx_drops"),
        tx=_q("rx_queue_*_xdp_tx"),
        drop=_q("rx_queue_*_xdp_drops"),
        redirect=_q("rx_queue_*_xdp_redirects"),
        received_xdp_only=True,
        tried="6.1, QEMU",
        note="the names of older kernels",
    ),
    Driver(
        "igb",
        "drivers/net/ethernet/intel/igb/igb_ethtool.c: igb_get_ethtool_stats; igb_main.c: "
        "igb_clean_rx_irq, igb_update_stats",
        "5.10, 6.1, 6.12",
        received=_q("rx_queue_*_packets"),
        lost=(*_q("rx_queue_*_drops"), r"(rx_missed_errors)"),
        tried="6.1, 6.12, 7.2, QEMU's igb",
        note=_TWO_LOSSES + _IN_LINK,
    ),
    Driver(
        "vmxnet3",
        "drivers/net/vmxnet3/vmxnet3_ethtool.c: vmxnet3_get_ethtool_stats; vmxnet3_xdp.c: vmxnet3_run_xdp; "
        "vmxnet3_drv.c: vmxnet3_rq_rx_complete",
        "6.12",
        received=_q("Rx Queue# *  ucast pkts rx", "Rx Queue# *  mcast pkts rx", "Rx Queue# *  bcast pkts rx"),
        sent=_q("Rx Queue# *     xdp tx"),
        refused=_q("Tx Queue# *  ring full"),
        tx=_q("Rx Queue# *     xdp tx", "Tx Queue# *  ring full"),
        drop=_q("Rx Queue# *     xdp drops", "-Tx Queue# *  ring full", "Rx Queue# *     xdp aborted"),
        redirect=_q("Rx Queue# *     xdp redirects"),
        lost=_q("Rx Queue# *  pkts rx OOB", "Rx Queue# *  rx buf alloc fail"),
        tried="6.12, QEMU's vmxnet3",
        note="XDP_TX into a full ring is counted as a drop",
    ),
    Driver(
        "mlx5_core",
        "drivers/net/ethernet/mellanox/mlx5/core/en_stats.c: groups sw, qcnt, 2863; en/xdp.c: "
        "mlx5e_xdp_handle, mlx5e_xdp_xmit; en_rx.c: mlx5e_complete_rx_cqe; en_main.c: mlx5e_fold_sw_stats64",
        "5.10, 6.1, 6.12",
        received=_q("rx*_packets", "rx*_xdp_drop", "rx*_xdp_tx_xmit", "rx*_xdp_redirect"),
        sent=_q("rx*_xdp_tx_xmit"),
        refused=_q("rx*_xdp_tx_full", "rx*_xdp_tx_err"),
        tx=_q("rx*_xdp_tx_xmit", "rx*_xdp_tx_full", "rx*_xdp_tx_err"),
        drop=_q("rx*_xdp_drop", "-rx*_xdp_tx_full", "-rx*_xdp_tx_err"),
        redirect=_q("rx*_xdp_redirect"),
        forwarded=_q("tx*_xdp_xmit"),
        lost=(r"(rx_out_of_buffer)", r"(rx_discards_phy)"),
        note="rx*_packets holds the frames that were passed only, and the link's counts leave XDP's frames out; what "
        "the ring refused and failed redirects are drops",
    ),
    Driver(
        "ixgbe",
        "drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c: ixgbe_get_ethtool_stats; ixgbe_main.c: "
        "ixgbe_clean_rx_irq, ixgbe_update_stats",
        "5.10, 6.1, 6.12",
        received=_q("rx_queue_*_packets"),
        lost=(r"(rx_no_dma_resources)", r"(rx_missed_errors)"),
        note=_IN_LINK,
    ),
    *_I40E,
    Driver(
        "ice",
        "drivers/net/ethernet/intel/ice/ice_ethtool.c: ice_get_ethtool_stats; ice_main.c: "
        "ice_update_eth_stats, ice_update_pf_stats; ice_txrx.c: ice_clean_rx_irq; ice_txrx_lib.c: "
        "ice_clean_xdp_irq",
        "5.10, 6.1, 6.12",
        received=_q("rx_queue_*_packets"),
        sent=_ICE_SENT,
        forwarded=_ICE_SENT,
        lost=(r"(rx_dropped)", r"(rx_dropped\.nic)"),
        note="the NIC counts all that the interface's queues send; in 6.1 and 6.12 the link counts XDP's frames only "
        "as the driver frees their descriptors, and it frees none while a quarter of the ring is unused, so the last "
        "ones stay uncounted; no action is counted apart",
    ),
    Driver(
        "igc",
        "drivers/net/ethernet/intel/igc/igc_ethtool.c: igc_ethtool_get_stats; igc_main.c: "
        "igc_clean_rx_irq, igc_update_stats",
        "6.1, 6.12",
        received=_q("rx_queue_*_packets"),
        lost=(*_q("rx_queue_*_drops"), r"(rx_missed_errors)"),
        note=_TWO_LOSSES + _IN_LINK,
    ),
    Driver(
        "ena",
        "drivers/net/ethernet/amazon/ena/ena_ethtool.c: ena_get_ethtool_stats; ena_netdev.c: "
        "ena_clean_rx_irq; ena_xdp.c: ena_xdp_execute, ena_xdp_xmit_frame",
        "6.1, 6.12",
        received=_q("queue_*_rx_cnt"),
        sent=_q("queue_*_xdp_tx_cnt"),
        refused=_q("queue_*_xdp_tx_prepare_ctx_err", "queue_*_xdp_tx_dma_mapping_err"),
        tx=_q("queue_*_rx_xdp_tx"),
        drop=_q("queue_*_rx_xdp_drop", "queue_*_rx_xdp_aborted", "queue_*_rx_xdp_invalid"),
        redirect=_q("queue_*_rx_xdp_redirect"),
        forwarded=_q("queue_*_xdp_tx_cnt"),
        note="queue_*_xdp_tx_* count redirects into the port too, and 6.1's link leaves both out; a redirect that "
        "failed is aborted; only the link's rx_dropped says what the NIC lost, in 6.12 together with XDP's drops",
    ),
    *_BNXT,
    Driver(
        "nfp",
        "drivers/net/ethernet/netronome/nfp/nfp_net_ethtool.c: nfp_vnic_get_sw_stats; nfd3/dp.c: "
        "nfp_nfd3_rx, nfp_nfd3_xdp_complete; nfdk/dp.c: nfp_nfdk_rx",
        "5.10, 6.1, 6.12",
        received=_q("rvec_*_rx_pkts"),
        note="a later poll of the queue counts XDP_TX; dev_rx_discards has other causes than a lack of buffers; "
        "nothing can be redirected to it; " + _IN_LINK,
    ),
    Driver(
        "mlx4_en",
        "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c: mlx4_en_get_ethtool_stats; en_rx.c: "
        "mlx4_en_process_rx_cq; en_tx.c: mlx4_en_xmit_frame; en_port.c: mlx4_en_DUMP_ETH_STATS",
        "6.1, 6.12",
        received=_q(
            *("rx*_packets", "rx*_xdp_tx", "rx*_xdp_tx_full", "rx*_xdp_drop"),
            *("rx*_xdp_redirect", "rx*_xdp_redirect_fail"),
        ),
        sent=_q("rx*_xdp_tx"),
        refused=_q("rx*_xdp_tx_full"),
        tx=_q("rx*_xdp_tx", "rx*_xdp_tx_full"),
        drop=_q("rx*_xdp_drop"),
        redirect=_q("rx*_xdp_redirect", "rx*_xdp_redirect_fail"),
        note=_MLX4,
    ),
    Driver(
        "mlx4_en",
        "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c: mlx4_en_get_ethtool_stats; en_rx.c: "
        "mlx4_en_process_rx_cq; en_tx.c: mlx4_en_xmit_frame; en_port.c: mlx4_en_DUMP_ETH_STATS",
        "5.10",
        received=_q("rx*_packets", "rx*_xdp_tx", "rx*_xdp_tx_full", "rx*_xdp_drop"),
        sent=_q("rx*_xdp_tx"),
        refused=_q("rx*_xdp_tx_full"),
        tx=_q("rx*_xdp_tx", "rx*_xdp_tx_full"),
        drop=_q("rx*_xdp_drop"),
        note="without redirects; " + _MLX4,
    ),
    Driver(
        "gve",
        "drivers/net/ethernet/google/gve/gve_ethtool.c: gve_get_ethtool_stats; gve_rx.c: gve_xdp_done; "
        "gve_tx.c: gve_xdp_xmit_one",
        "6.12",
        received=_q(*(f"rx_xdp_{action}[*]" for action in ("pass", "tx", "redirect", "drop", "aborted"))),
        sent=_q("rx_xdp_tx[*]", "-rx_xdp_tx_errors[*]"),
        refused=_q("rx_xdp_tx_errors[*]"),
        tx=_q("rx_xdp_tx[*]"),
        drop=_q("rx_xdp_drop[*]", "rx_xdp_aborted[*]"),
        redirect=_q("rx_xdp_redirect[*]"),
        received_xdp_only=True,
        note="an unknown action is not counted; rx_no_buffers_posted is the NIC's report, which may be 20 s old",
    ),
    Driver(
        "mana",
        "drivers/net/ethernet/microsoft/mana/mana_ethtool.c: mana_get_ethtool_stats; mana_en.c: "
        "mana_rx_skb, mana_query_gf_stats; mana_bpf.c: mana_run_xdp",
        "6.1, 6.12",
        received=_q("rx_*_packets", "rx_*_xdp_drop"),
        tx=_q("rx_*_xdp_tx"),
        drop=_q("rx_*_xdp_drop"),
        redirect=_q("rx_*_xdp_redirect"),
        lost=(r"(hc_rx_discards_no_wqe)",),
        note="rx_*_packets holds all but the frames that were dropped; redirects that failed are drops; XDP_TX is "
        "counted in the link's statistics alone, as the ring takes it",
    ),
    Driver(
        "sfc",
        "drivers/net/ethernet/sfc/ethtool_common.c: efx_ethtool_get_stats; rx.c: efx_do_xdp; tx.c: "
        "efx_xdp_tx_buffers; ef10.c: efx_ef10_update_stats_pf",
        "5.10, 6.1, 6.12",
        received=_q("rx-*.rx_packets"),
        sent=(r"(rx_xdp_tx)",),
        tx=(r"(rx_xdp_tx)",),
        drop=(r"(rx_xdp_drops)", r"(rx_xdp_bad_drops)"),
        redirect=(r"(rx_xdp_redirect)",),
        lost=(r"(port_rx_nodesc_drops)", r"(port_rx_overflow)"),
        note="what the ring refused and failed redirects are drops; the counts of XDP have 32 bits; the NIC writes the "
        "link's counts, and what it lost, once per second",
    ),
    Driver(
        "atlantic",
        "drivers/net/ethernet/aquantia/atlantic/aq_ethtool.c: aq_ethtool_stats; aq_ring.c: "
        "aq_xdp_run_prog, aq_ring_fill_stats_data; aq_nic.c: aq_nic_get_stats",
        "6.1, 6.12",
        received=_tc("Queue[*] InPackets"),
        sent=_tc("Queue[*] XdpTx"),
        tx=_tc("Queue[*] XdpTx"),
        drop=_tc("Queue[*] XdpDrop", "Queue[*] XdpAbort"),
        redirect=_tc("Queue[*] XdpRedirect"),
        note="what the ring refused and failed redirects are aborted; the driver takes over the link's counts once per "
        "second; the source does not say why InDroppedDma were dropped",
    ),
    *(replace(_STMMAC, name=name) for name in ("st_gmac", "st_xgmac", "st_mac100")),
    Driver(
        "hv_netvsc",
        "drivers/net/hyperv/netvsc_drv.c: netvsc_get_ethtool_stats, netvsc_recv_callback; netvsc_bpf.c: "
        "netvsc_run_xdp; netvsc.c: netvsc_send_tx_complete",
        "6.1, 6.12",
        received=_q("rx_queue_*_packets", "rx_queue_*_xdp_drop"),
        tx=_q("rx_queue_*_xdp_tx"),
        drop=_q("rx_queue_*_xdp_drop"),
        redirect=_q("rx_queue_*_xdp_redirect"),
        note="rx_queue_*_packets and the link leave out what was dropped; redirects that failed are drops; XDP_TX is "
        "counted in the link's statistics alone, as it completes; the host's losses are not told; a virtual function "
        "that carries the traffic counts it itself",
    ),
    *(replace(_OCTEONTX2, name=name) for name in ("rvu-nicpf", "rvu-nicvf")),
)


def driver_of(counters: Mapping[str, int], name: str) -> Driver | None:
    """Return the row of the driver called ``name`` whose receive counters are there; None if no row fits.

    Among several of them, it is the first that lacks the fewest of its names.
    """
    return _row_for(frozenset(counters), name)


@lru_cache(maxsize=64)  # the counters of an attempt are asked for dozens of times
def _row_for(counters: frozenset[str], name: str) -> Driver | None:
    fitting = [row for row in DRIVERS if row.name == name and not absent(counters, row.received)]
    return min(fitting, key=lambda row: len(absent(counters, row.names)), default=None)


def absent(counters: Collection[str], names: Names) -> Names:
    """Return those of ``names`` that match no counter."""
    return tuple(n for n in names if not any(re.fullmatch(n.removeprefix("-"), key) for key in counters))


def spelled(name: str) -> str:
    """Return a pattern as its driver spells it, with `*` for the queue."""
    return re.sub(r"\\(.)", r"\1", name.removeprefix("-").replace(QUEUE, "*")).strip("()")


def total(counters: Mapping[str, int], names: Names) -> int:
    """Return the sum of all counters that ``names`` match."""
    whole = 0
    for name in names:
        count = sum(value for key, value in counters.items() if re.fullmatch(name.removeprefix("-"), key))
        whole += -count if name.startswith("-") else count
    return whole
