"""Rules that compare counts of the same frames: handed over by the generator, sent by its port, received by the DUT."""

from __future__ import annotations

import json

from xdplab.analysis.action_rules import returns_frames
from xdplab.analysis.values import Row, number, text

COUNT_TOLERANCE = 0.01  # two counts of the same frames
LEFT_OUT = (0, 4, 8)  # bytes of a frame that a link may leave out: the FCS, and a VLAN tag that the card removes
HEADER = 14  # bytes of a packet buffer that a veth with XDP leaves out as well
STRAY_BYTES = 3036  # of other frames, which a mean over few frames may hold


def tg_port_sent(row: Row) -> str | None:
    """A frame that a generator handed over is sent by its port, or refused. A frame that the DUT received was sent.

    A port without a link accepts frames and sends none; a veth takes none whose peer does not poll, and only those that
    it dropped at the peer's full ring are the DUT's loss.
    """
    sent, went = number(row, "tx_packets"), number(row, "tg_port_tx_packets")
    if not sent or went is None:
        return None
    refused, dropped = number(row, "tx_errors") or 0.0, number(row, "tg_port_dropped_packets")
    if dropped is not None:
        refused = dropped if number(row, "link_bps") is None else max(refused, dropped)
    if max(went, number(row, "dut_rx_packets") or 0.0) + refused >= sent * (1 - COUNT_TOLERANCE):
        return None
    return f"the TG lost frames, not the DUT: of {sent:.0f} that its generator sent its port sent {went:.0f}"


def tg_took_what_came(row: Row) -> str | None:
    """Frames that reached the TG's port but not its generator are not the DUT's loss."""
    missed, came = number(row, "tg_missed_packets"), number(row, "tg_port_rx_packets")
    if not missed or came is None or missed <= COUNT_TOLERANCE * (came + missed):
        return None
    return f"the TG lost frames, not the DUT: {missed:.0f} came to its port, which its generator did not take"


def frames_arrive_as_sent(row: Row) -> str | None:
    """The DUT receives frames of the size that was sent.

    Links leave some bytes of each frame out. If sizes differ, a loss of frames changes their mean.
    """
    sent, arrived = number(row, "frame_mean_bytes"), number(row, "dut_rx_mean_bytes")
    frames = number(row, "dut_rx_packets")
    if sent is None or arrived is None or not frames:
        return None
    if number(row, "frame_bytes") is None and frames < (1 - COUNT_TOLERANCE) * (number(row, "tx_packets") or 0.0):
        return None
    whole = text(row, "engine") == "live"
    allowed = [some + header for some in LEFT_OUT for header in ((0,) if whole else (0, HEADER))]
    if min(abs(sent - arrived - some) for some in allowed) <= COUNT_TOLERANCE * sent + STRAY_BYTES / frames:
        return None
    return f"the TG sent frames of {sent:.0f} B on average, and those that the DUT received had {arrived:.0f} B"


def frames_left_whole(row: Row) -> str | None:
    """A live frame comes back as the program under test left it. Until the sender notices, it leaves so again."""
    changed, sent = number(row, "tx_unrestored_packets"), number(row, "tx_packets")
    if not changed or not sent or changed <= COUNT_TOLERANCE * sent:
        return None
    return (
        f"{changed:.0f} of {sent:.0f} frames may carry what the program wrote into the payload of an earlier one: the "
        "sender noticed so late; warm up longer, or write `traffic: {engine: afxdp}`"
    )


def say_restored(row: Row) -> str | None:
    if not number(row, "tx_restored") or number(row, "rate_requested_pps") is not None:
        return None
    return "the sender wrote each frame whole, as for programs that change payloads and in races: this takes time"


def closed_loop_is_closed(row: Row) -> str | None:
    """At maximum load on a shared CPU the next frames are sent once the DUT has received the last: none is lost."""
    sent, arrived = number(row, "tx_packets"), number(row, "dut_rx_packets")
    paced = number(row, "rate_requested_pps") is not None
    if text(row, "arrangement") != "shared" or paced or not sent or arrived is None:
        return None
    if arrived >= (1 - COUNT_TOLERANCE) * sent:
        return None
    return f"of {sent:.0f} frames sent the DUT received {arrived:.0f}, though a shared CPU is a closed loop"


def link_counts_what_xdp_takes(row: Row) -> str | None:
    """The link of an unknown driver, and of an offloading card, may count only the frames that XDP leaves to it.

    It is believed if it counted all frames that were sent, or all that the program decided on in a separate burst.
    """
    sent, arrived = number(row, "tx_packets"), number(row, "dut_rx_packets")
    by_link = text(row, "dut_counted_by") == "link" and text(row, "mode") in ("native", "offload")
    if not by_link or returns_frames(row) or not sent or arrived is None:
        return None
    if arrived >= (1 - COUNT_TOLERANCE) * sent or _decided(row) is not None:
        return None
    return (
        f"of {sent:.0f} frames sent the DUT's link counted {arrived:.0f}, and whether it counts those that XDP takes "
        "is not known: counters/drivers.py has no row for it"
    )


def program_saw_what_was_counted(row: Row) -> str | None:
    """A counter before the program counts frames that never reach it. One burst is counted by both, and in the window
    the backlog behind the link tells what it dropped. What comes back is counted itself.
    """
    if returns_frames(row):
        return None
    dropped, arrived = number(row, "host_softnet_dropped"), number(row, "dut_rx_packets") or 0.0
    if text(row, "mode") == "generic" and dropped and dropped > COUNT_TOLERANCE * arrived:
        return (
            f"the DUT's link counted {arrived:.0f} frames, of which a backlog dropped {dropped:.0f} before the program"
        )
    counted, decided = number(row, "actions_received"), _decided(row)
    if counted is None or decided is None or abs(counted - decided) <= COUNT_TOLERANCE * max(counted, decided):
        return None
    return (
        f"the DUT's count is not of the frames that the program saw: in a burst after the window it is {counted:.0f}, "
        f"and the program decided on {decided:.0f}"
    )


def _decided(row: Row) -> int | None:
    """Frames that the program decided on in the burst that counts them."""
    counts = text(row, "actions_counted")
    return None if counts is None else sum(json.loads(counts).values())
