"""The XDP counters of NIC drivers: a row per driver, read from its source in the kernels 5.10, 6.1 and 6.12.

A counter is a name in `ethtool -S` as a pattern, with the queue as its group; one that begins with `-` is subtracted.
If a driver counts XDP_TX only in the link's statistics, ``sent`` is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Names = tuple[str, ...]
QUEUE = "([0-9]{1,4})"


@dataclass(frozen=True)
class Driver:
    """One driver's counters. A kind is empty if the driver does not count it separately.

    ``received``: frames that a receive queue took, whatever the program decided; ``received_xdp_only``: they stay 0
    without native XDP. ``sent``: XDP_TX frames that the ring took; ``refused``: those that it did not take. ``tx``,
    ``drop`` (including aborted), ``redirect``: the program's actions. ``forwarded``: frames that the program of another
    port redirected to this one, if the link's statistics leave them out. ``lost``: frames for which the NIC had no
    buffer. ``since``: the oldest of the kernels read that counts in this way. ``tried``: where the counters were
    compared with known frames. ``lag_s``: how far a reading may lag behind.
    """

    name: str
    source: str
    since: str
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
    lag_s: float = 0.0
    note: str = ""


def _q(*names: str) -> Names:
    """Return names as patterns: `*` stands for the queue."""
    return tuple(("-" if name[0] == "-" else "") + re.escape(name.lstrip("-")).replace(r"\*", QUEUE) for name in names)


_IN_LINK = "XDP_TX is counted in the link's statistics alone, as it completes; no action is counted apart"
_TWO_LOSSES = "a queue drops frames itself only if the driver told it to; otherwise the port misses them; "
_ICE_SENT = (r"(tx_unicast)", r"(tx_multicast)", r"(tx_broadcast)")
_MLX4 = "rx*_packets holds the frames that were passed only, and so do the link's; nothing can be redirected to it"
_LATE_S = 0.5  # added to the periods of a driver's timers, which may fire late

DRIVERS = (
    Driver(
        "veth",
        "drivers/net/veth.c",
        "5.10",
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
        "drivers/net/virtio_net.c",
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
        "drivers/net/virtio_net.c",
        "5.10",
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
        "drivers/net/ethernet/intel/igb/igb_ethtool.c, igb_main.c",
        "5.10",
        received=_q("rx_queue_*_packets"),
        lost=(*_q("rx_queue_*_drops"), r"(rx_missed_errors)"),
        tried="6.1, 6.12, 7.2, QEMU's igb",
        note=_TWO_LOSSES + _IN_LINK,
    ),
    Driver(
        "vmxnet3",
        "drivers/net/vmxnet3/vmxnet3_ethtool.c, vmxnet3_xdp.c",
        "6.12",
        received=_q("Rx Queue# *  ucast pkts rx", "Rx Queue# *  mcast pkts rx", "Rx Queue# *  bcast pkts rx"),
        sent=_q("Rx Queue# *     xdp tx"),
        refused=_q("Tx Queue# *  ring full"),
        tx=_q("Rx Queue# *     xdp tx", "Tx Queue# *  ring full"),
        drop=_q("Rx Queue# *     xdp drops", "-Tx Queue# *  ring full", "Rx Queue# *     xdp aborted"),
        redirect=_q("Rx Queue# *     xdp redirects"),
        lost=_q("Rx Queue# *  pkts rx OOB"),
        tried="6.12, QEMU's vmxnet3",
        note="XDP_TX into a full ring is counted as a drop",
    ),
    Driver(
        "mlx5_core",
        "drivers/net/ethernet/mellanox/mlx5/core/en_stats.c, en/xdp.c, en_rx.c, en_main.c",
        "5.10",
        received=_q("rx*_packets", "rx*_xdp_drop", "rx*_xdp_tx_xmit", "rx*_xdp_redirect"),
        sent=_q("rx*_xdp_tx_xmit"),
        refused=_q("rx*_xdp_tx_full", "rx*_xdp_tx_err"),
        tx=_q("rx*_xdp_tx_xmit", "rx*_xdp_tx_full", "rx*_xdp_tx_err"),
        drop=_q("rx*_xdp_drop", "-rx*_xdp_tx_full", "-rx*_xdp_tx_err"),
        redirect=_q("rx*_xdp_redirect"),
        forwarded=_q("tx*_xdp_xmit"),
        lost=(r"(rx_out_of_buffer)",),
        note="rx*_packets holds the frames that were passed only, and the link's counts leave XDP's frames out; what "
        "the ring refused and failed redirects are drops",
    ),
    Driver(
        "ixgbe",
        "drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c, ixgbe_main.c",
        "5.10",
        received=_q("rx_queue_*_packets"),
        lost=(r"(rx_no_dma_resources)", r"(rx_missed_errors)"),
        note=_IN_LINK,
    ),
    Driver(
        "i40e",
        "drivers/net/ethernet/intel/i40e/i40e_ethtool.c, i40e_main.c, i40e_txrx.c",
        "5.10",
        received=_q("rx-*.packets"),
        lost=(r"(port\.rx_discards)",),
        note=_IN_LINK,
    ),
    Driver(
        "ice",
        "drivers/net/ethernet/intel/ice/ice_ethtool.c, ice_main.c, ice_base.c, ice_txrx.c, ice_txrx_lib.c",
        "5.10",
        received=_q("rx_queue_*_packets"),
        sent=_ICE_SENT,
        forwarded=_ICE_SENT,
        lost=(r"(rx_dropped\.nic)",),
        note="the NIC counts all that the interface's queues send; in 6.1 and 6.12 the link counts XDP's frames only "
        "as the driver frees their descriptors, and it frees none while a quarter of the ring is unused, so the last "
        "ones stay uncounted; no action is counted apart",
    ),
    Driver(
        "igc",
        "drivers/net/ethernet/intel/igc/igc_ethtool.c, igc_main.c",
        "6.1",
        received=_q("rx_queue_*_packets"),
        lost=(*_q("rx_queue_*_drops"), r"(rx_missed_errors)"),
        note=_TWO_LOSSES + _IN_LINK,
    ),
    Driver(
        "ena",
        "drivers/net/ethernet/amazon/ena/ena_ethtool.c, ena_netdev.c, ena_xdp.c",
        "6.1",
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
    Driver(
        "bnxt_en",
        "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c, bnxt.c, bnxt_xdp.c",
        "5.10",
        received=_q("[*]: rx_ucast_packets", "[*]: rx_mcast_packets", "[*]: rx_bcast_packets"),
        lost=_q("[*]: rx_discards"),
        lag_s=2.0 + _LATE_S,
        note="the NIC writes its counters once per second, and the driver takes them over once per second (both: "
        "`stats-block-usecs`); " + _IN_LINK,
    ),
    Driver(
        "nfp",
        "drivers/net/ethernet/netronome/nfp/nfp_net_ethtool.c, nfp_net_common.c, nfd3/dp.c, nfdk/dp.c",
        "5.10",
        received=_q("rvec_*_rx_pkts"),
        note="a later poll of the queue counts XDP_TX; dev_rx_discards has other causes than a lack of buffers; "
        "nothing can be redirected to it; " + _IN_LINK,
    ),
    Driver(
        "mlx4_en",
        "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c, en_rx.c, en_tx.c, en_port.c",
        "6.1",
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
        "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c, en_rx.c, en_tx.c, en_port.c",
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
        "drivers/net/ethernet/google/gve/gve_ethtool.c, gve_main.c, gve_rx.c, gve_tx.c",
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
        "drivers/net/ethernet/microsoft/mana/mana_ethtool.c, mana_en.c, mana_bpf.c",
        "6.1",
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
        "drivers/net/ethernet/sfc/ethtool_common.c, rx.c, tx.c, ef10.c",
        "5.10",
        received=_q("rx-*.rx_packets"),
        sent=(r"(rx_xdp_tx)",),
        tx=(r"(rx_xdp_tx)",),
        drop=(r"(rx_xdp_drops)", r"(rx_xdp_bad_drops)"),
        redirect=(r"(rx_xdp_redirect)",),
        lost=(r"(port_rx_nodesc_drops)",),
        lag_s=1.0 + _LATE_S,
        note="what the ring refused and failed redirects are drops; the counts of XDP have 32 bits; the NIC writes the "
        "link's counts, and what it lost, once per second",
    ),
    Driver(
        "atlantic",
        "drivers/net/ethernet/aquantia/atlantic/aq_ethtool.c, aq_ring.c, aq_nic.c",
        "6.1",
        received=_q("Queue[*] InPackets"),
        sent=_q("Queue[*] XdpTx"),
        tx=_q("Queue[*] XdpTx"),
        drop=_q("Queue[*] XdpDrop", "Queue[*] XdpAbort"),
        redirect=_q("Queue[*] XdpRedirect"),
        lag_s=1.0 + _LATE_S,
        note="what the ring refused and failed redirects are aborted; the driver takes over the link's counts once per "
        "second; the source does not say why InDroppedDma were dropped",
    ),
    Driver(
        "st_gmac",
        "drivers/net/ethernet/stmicro/stmmac/stmmac_ethtool.c, stmmac_main.c",
        "6.1",
        received=_q("q*_rx_pkt_n"),
        note="stmmac's name in `ethtool -i`; frames with errors are counted too; the link's rx_packets holds the "
        "frames that were passed only; " + _IN_LINK,
    ),
)

_BY_LAYOUT = (("veth", "peer_ifindex"), ("virtio_net", r"tx(?:_queue_)?[0-9]+_xdp_tx_drops"))
"""Runs of older versions did not record the driver's name; they used one of these two, recognised by a counter."""


def driver_of(counters: Mapping[str, int], name: str | None) -> Driver | None:
    """Return the row of the driver called ``name`` whose receive counters are there; None if no row fits."""
    if name is None:
        name = next((name for name, sign in _BY_LAYOUT if any(re.fullmatch(sign, key) for key in counters)), None)
    rows = [row for row in DRIVERS if row.name == name]
    fitting = (row for row in rows if all(any(re.fullmatch(p, key) for key in counters) for p in row.received))
    return next(fitting, None)


def total(counters: Mapping[str, int], names: Names) -> int | None:
    """Return the sum of all counters that ``names`` match; None if one of the names matches none."""
    whole = 0
    for name in names:
        found = [value for key, value in counters.items() if re.fullmatch(name.removeprefix("-"), key)]
        if not found:
            return None
        whole += -sum(found) if name.startswith("-") else sum(found)
    return whole if names else None


def lag_s(name: str) -> float:
    """Return how far the counters of driver ``name`` may lag behind, in seconds."""
    return max((row.lag_s for row in DRIVERS if row.name == name), default=0.0)
