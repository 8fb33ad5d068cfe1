"""Rules that compare counts of the same frames: handed over by the generator, sent by its port, received by the DUT.

The actions of a user's program, compared with the action that the plan names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import sqrt
from typing import Any

from xdplab.analysis.values import Row, number, text
from xdplab.plan.factors import SKB_MODES

ACTION_SHARE = 0.99  # of the frames, for which a program must decide what the plan says it does
ACTIONS_APART = 0.05
"""Largest difference of an action's share between test runs and traffic: chance, and frames of others."""
_COUNTED = (("a burst before the window", "actions_before"), ("a burst after the window", "actions_counted"))


def returns_frames(row: Row) -> bool:
    """False for a user's program with any other action: then only the DUT can count what it processed.

    A DUT of two ports returns frames to the TG's other port.
    """
    return text(row, "action") in (None, "tx") or text(row, "directions") in ("one", "both")


def tg_count(row: Row) -> float | None:
    """Frames that came back to the TG; those of a user's program count without the magic, as it may rewrite them."""
    received, foreign = number(row, "rx_packets"), number(row, "foreign_packets")
    if received is None or text(row, "workload") is not None or text(row, "program_name") is None:
        return received
    gone, sent = number(row, "dut_tx_packets"), number(row, "tx_packets")
    return received + rewritten(received, foreign, sent if gone is None else gone)


def rewritten(received: float, foreign: float | None, gone: float | None) -> float:
    """Return how many of the ``foreign`` frames came back rewritten: no more than ``gone``, which the DUT sent back (or
    the TG sent, where that is not known), because frames of others are foreign too.
    """
    return min(foreign or 0.0, max(0.0, (gone or 0.0) - received))


def program_does_as_said(row: Row) -> str | None:
    """If a plan names the wrong action of a program, the wrong frames are counted.

    Its counts show it: the driver's in the measured window (native), and those of instructions before the program in
    bursts around it, which tell ABORTED from DROP. If both bursts agree, so does the window between them.
    """
    wanted = text(row, "action")
    if wanted is None or wanted == "mixed":
        return None
    counted = [(who, counts) for who, counts in _counts_of_actions(row) if sum(counts.values())]
    for who, counts in counted:
        if counts.get(wanted, 0) < ACTION_SHARE * sum(counts.values()):
            return f"the plan says that the program's action is {wanted}, and {who} counted {_decided_actions(counts)}"
    return None if counted else _returned_as_said(row, wanted)


def other_actions(row: Row, tested: Mapping[str, int]) -> str | None:
    """Return how the actions of test runs differ from those of the trial's frames; None if they do not.

    Fewer frames of the trial say less. The burst that counts decisions comes first: a driver's counter of drops has
    ABORTED in it.
    """
    counts = next((counts for _, counts in reversed(_counts_of_actions(row)) if sum(counts.values())), None)
    if counts is None:
        return None
    if text(row, "actions_counted") is None:
        tested = {
            **tested,
            "aborted": 0,
            "other": 0,
            "drop": sum(tested.get(n, 0) for n in ("drop", "aborted", "other")),
        }
    live, runs = sum(counts.values()), sum(tested.values())
    apart = max(abs(tested.get(name, 0) / runs - counts.get(name, 0) / live) for name in {*counts, *tested})
    if apart <= ACTIONS_APART + 1 / sqrt(live):
        return None
    return f"they end with {_decided_actions(dict(tested))}, the trial's with {_decided_actions(counts)}"


def redirects_are_taken(row: Row) -> str | None:
    """A redirect that the kernel refuses does not cost the same as one that it carries out.

    A full CPU queue does not count: in generic mode it refuses the frames that it drops in native mode.
    """
    targets = [one for one in _targets(row) if one["kind"] != "cpu"]
    refused, decided = (sum(one[name] for one in targets) for name in ("refused", "accepted"))
    if text(row, "action") != "redirect" or refused <= (1 - ACTION_SHARE) * (refused + decided):
        return None
    where = ", ".join(sorted({_place(one) for one in targets if one["refused"]}))
    return f"the kernel refused {refused} of {refused + decided} redirects, to {where}"


def say_kept(row: Row) -> str | None:
    """Return what a user's program did that returned no frame, by the kernel's count, and what to do; else None.

    The text has no number of frames: equal trials have an equal reason.
    """
    counts = next((counts for _, counts in reversed(_counts_of_actions(row)) if sum(counts.values())), None)
    if counts is None or counts.get("tx") or text(row, "workload") is not None:
        return None
    shares = {name: count / sum(counts.values()) for name, count in counts.items() if count}
    counted = ", ".join(f"XDP_{name.upper()} {share:.0%}" for name, share in shares.items())
    meant = max(shares, key=lambda name: shares[name])
    if shares[meant] < ACTION_SHARE or meant not in ("drop", "pass", "redirect"):
        meant = "mixed"
    return (
        f"the program sent no frame back: the kernel counted {counted}; either a map is empty or lacks the test "
        f"frames' keys (fill it by `maps:` or `setup:`), or this is meant (write `action: {meant}`)"
    )


def _counts_of_actions(row: Row) -> list[tuple[str, dict[str, int]]]:
    texts = ((who, text(row, column)) for who, column in (("the driver", "xdp_actions"), *_COUNTED))
    return [(who, json.loads(counts)) for who, counts in texts if counts is not None]


def _targets(row: Row) -> list[dict[str, Any]]:
    """Name a target of redirect_targets."""
    targets_text = text(row, "redirect_targets")
    return [] if targets_text is None else json.loads(targets_text)


def _place(target: Mapping[str, Any]) -> str:
    name = target["name"]
    if target["kind"] == "broadcast":
        return f"each of {name or 'no device'}"
    return f"a {target['kind']} that is not there" if name is None else f"{target['kind']} {name}"


def _decided_actions(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name} for {count / total:.1%} of {total} frames" for name, count in counts.items() if count)


def _returned_as_said(row: Row, wanted: str) -> str | None:
    """Without counters of actions, the returned frames distinguish tx from drop and pass."""
    is_users = text(row, "workload") is None and text(row, "program_name") is not None
    arrived, back = number(row, "dut_rx_packets"), number(row, "dut_tx_packets")
    if not is_users or not arrived or back is None or text(row, "mode") == "af_xdp":
        return None
    heard = max(back, tg_count(row) or 0.0)
    if wanted == "tx" and not heard:
        return f"the plan says that the program's action is tx, and none of {arrived:.0f} frames was sent back"
    if wanted in ("drop", "pass") and heard > (1 - ACTION_SHARE) * arrived:
        return f"the plan says that the program's action is {wanted}, and {heard:.0f} of {arrived:.0f} frames came back"
    return None


def say_decided(row: Row) -> str:
    """Return the end of a verdict's reason: the shares of each action, and where redirected frames arrived."""
    counted = _counts_of_actions(row)
    if not counted:
        return "; no counter says what the program decided"
    by_driver = [f" {_decided_actions(counts)}" for who, counts in counted if who == "the driver"]
    parts = by_driver or [f" in {who} {_decided_actions(counts)}" for who, counts in counted]
    shares = f"; the program decided{','.join(parts)}" if text(row, "action") == "mixed" else ""
    return shares + (_say_arrived(row) if any(decided.get("redirect") for _, decided in counted) else "")


def _say_arrived(row: Row) -> str:
    """Describe for each target what happened to the redirected frames in the burst that counts actions."""
    targets = _targets(row)
    if not targets:
        return "; where redirected frames arrive is not known"
    return "".join(f"; in {_COUNTED[-1][0]} to {_place(one)}: {_arrived(one)}" for one in targets)


def _arrived(target: Mapping[str, Any]) -> str:
    redirects = target["accepted"] + target["refused"]
    parts = [("arrived", target["arrived"]), ("were dropped", target["dropped"]), ("were refused", target["refused"])]
    counts = [f"{count} {fate}" for fate, count in parts if count or (count == 0 and fate == "arrived")]
    return f"of {redirects} redirected frames {', '.join(counts) or 'arrivals were not counted'}"


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


def lost_at_maximum(row: Row) -> str:
    """Say why frames should, or could, not be lost at maximum load where CPUs are shared. A card, as of a guest, has
    rings, which its sender fills without waiting."""
    card = text(row, "dut_driver")
    if card in (None, "veth", "netkit"):
        return ", though a shared CPU is a closed loop"
    return f": at maximum load the rings of the DUT's card ({card}) overflow; give a `load` in frames per second"


def closed_loop_is_closed(row: Row) -> str | None:
    """At maximum load on a shared CPU the next frames are sent once the DUT has received the last: none is lost."""
    sent, arrived = number(row, "tx_packets"), number(row, "dut_rx_packets")
    paced = number(row, "rate_requested_pps") is not None
    if text(row, "arrangement") != "shared" or paced or not sent or arrived is None:
        return None
    if arrived >= (1 - COUNT_TOLERANCE) * sent:
        return None
    return f"of {sent:.0f} frames sent the DUT received {arrived:.0f}{lost_at_maximum(row)}"


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
        "is not known: counters/drivers.py has no row that holds for it"
    )


def program_saw_what_was_counted(row: Row) -> str | None:
    """A counter before the program counts frames that never reach it. One burst is counted by both, and in the window
    the backlog behind the link tells what it dropped. What comes back is counted itself.
    """
    if returns_frames(row):
        return None
    dropped, arrived = number(row, "host_softnet_dropped"), number(row, "dut_rx_packets") or 0.0
    if text(row, "mode") in SKB_MODES and dropped and dropped > COUNT_TOLERANCE * arrived:
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
