"""The precision of a search: durations, widths, loss ratios, by name."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from xdplab.errors import PlanError

RFC2544_FRAME_BYTES = (64, 128, 256, 512, 1024, 1280, 1518)
"""RFC 2544, section 9.1, Ethernet."""


@dataclass(frozen=True)
class Rfc2544Tests:
    """The tests of RFC 2544 besides throughput. Times in s.

    ``loss_step`` is the distance of two loads of the loss curve, as a share of the maximum rate; each is offered for
    ``loss_s``. A burst of back-to-back frames lasts at most ``burst_s``, its search is repeated ``burst_repeats``
    times, and ``rest_s`` passes after each burst.
    """

    loss_step: float = 0.1
    loss_s: float = 60.0
    burst_s: float = 2.0
    burst_repeats: int = 50
    rest_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How NDR and PDR are searched: ``width`` is the relative distance of the two bounds at the end; times in s.

    ``initial_s`` and ``final_s`` are the shortest and the longest burst, ``sum_s`` is how long a load must have been
    offered before it is a bound, ``exceed`` the share of that time that may have lost too much.
    """

    width: float
    initial_s: float
    final_s: float
    sum_s: float
    exceed: float
    search_max_s: float
    ndr_loss: float = 0.0
    pdr_loss: float = 0.005


@dataclass(frozen=True)
class Profile(Precision):
    """A search: its precision, and what else is measured of each point; times in s.

    ``frame_bytes``, where given, replace the plan's. ``latency_s`` is one latency burst, repeated ``latency_repeats``
    times (0: no latency); the MRR is the median of ``mrr_repeats`` bursts of ``mrr_s``. With ``rfc2544``, latency is
    measured at the throughput, as the RFC requires, and not at shares of the PDR.
    """

    name: str
    _: KW_ONLY
    latency_s: float
    latency_repeats: int = 1
    mrr_s: float = 1.0
    mrr_repeats: int = 1
    frame_bytes: tuple[int, ...] = ()
    rfc2544: Rfc2544Tests | None = None


PROFILES = {
    # One or two minutes per point: for a first look, and for virtual labs.
    "quick": Profile(
        "quick",
        width=0.05,
        initial_s=0.2,
        final_s=0.5,
        sum_s=2.0,
        exceed=0.5,
        search_max_s=120.0,
        latency_s=1.0,
        mrr_repeats=3,
    ),
    # FD.io CSIT's report goals: bursts of 1 s, 21 s per bound, half of them may exceed (RFC draft MLRsearch); MRR 10 s.
    "csit": Profile(
        "csit",
        width=0.005,
        initial_s=1.0,
        final_s=1.0,
        sum_s=21.0,
        exceed=0.5,
        search_max_s=1200.0,
        latency_s=5.0,
        mrr_repeats=10,
    ),
    # RFC 2544, 26.1 (throughput: 60 s without a loss), 26.2 (latency: 20 times 120 s), 26.3 (frame loss rate), 26.4
    # (back-to-back frames, as RFC 9004 searches them).
    "rfc2544": Profile(
        "rfc2544",
        width=0.005,
        initial_s=1.0,
        final_s=60.0,
        sum_s=60.0,
        exceed=0.0,
        search_max_s=7200.0,
        latency_s=120.0,
        latency_repeats=20,
        mrr_s=60.0,
        frame_bytes=RFC2544_FRAME_BYTES,
        rfc2544=Rfc2544Tests(),
    ),
    # The same tests, too short for the RFC: to try a set-up.
    "rfc2544-short": Profile(
        "rfc2544-short",
        width=0.05,
        initial_s=0.2,
        final_s=0.5,
        sum_s=1.0,
        exceed=0.0,
        search_max_s=120.0,
        latency_s=1.0,
        latency_repeats=3,
        frame_bytes=RFC2544_FRAME_BYTES,
        rfc2544=Rfc2544Tests(loss_s=0.5, burst_s=1.0, burst_repeats=5, rest_s=0.1),
    ),
}


def profile(name: str) -> Profile:
    """Return a profile by name. Raises PlanError."""
    if name not in PROFILES:
        raise PlanError(f"--profile {name}: no such profile", remedy=f"there are {', '.join(PROFILES)}")
    return PROFILES[name]
