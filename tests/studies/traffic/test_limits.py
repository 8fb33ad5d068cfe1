"""Limits of a trial outside the DUT: the link's rate in the trial's row, or the reason if it has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.doubles.hosts import Played
from tests.studies.traffic.columns_of import row_of

from xdplab.labs.base import GeneratorPlace
from xdplab.studies.traffic import sending
from xdplab.studies.traffic.limits import link_rate
from xdplab.studies.trial_facts import Limit, TrialFacts


def end(speed: str | None) -> Played:
    """Return a host whose interface reports one speed, or none."""
    text = f"Settings for e:\n\tSpeed: {speed}\n\tLink detected: yes\n"
    return Played({"ethtool *": text} if speed else {})


def lab(dut: str | None, tg: str | None, *, virtual: bool = False, dpdk: bool = False) -> Any:
    place = GeneratorPlace(kind="moongen", pci="0000:3b:00.0") if dpdk else GeneratorPlace()
    ends = {"dut": end(dut), "tg": end(tg), "dut_interface": "e", "tg_interface": "e"}
    return SimpleNamespace(**ends, virtual=virtual, generator=place)


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        (lab("10000Mb/s", "10000Mb/s"), 10e9),
        (lab("25000Mb/s", "10000Mb/s"), 10e9),
        (lab("40000Mb/s", None), 40e9),
        (lab("25000Mb/s", "1000Mb/s", dpdk=True), 25e9),
        (lab("Unknown!", None), None),
        (lab("10000Mb/s", "10000Mb/s", virtual=True), None),
    ],
)
def test_the_slower_end_is_the_links_rate(where: Any, rate: float | None) -> None:
    found = link_rate(where)
    assert found.rate == rate
    assert (found.missing is None) == (rate is not None)


def test_a_row_has_the_limits_or_why_not() -> None:
    row = row_of(facts=TrialFacts(link=Limit(10e9), generator_alone=Limit(None, "why")))
    assert (row["link_bps"], row["generator_pps"], row.reason("generator_pps")) == (10e9, None, "why")


@pytest.mark.parametrize(("link", "rate"), [(Limit(10e9), 6e6), (Limit(None, "virtual"), 10e6)])
def test_what_a_card_refuses_is_not_in_the_generators_rate(
    monkeypatch: pytest.MonkeyPatch, link: Limit, rate: float
) -> None:
    summary = SimpleNamespace(tx_packets=3_000_000, tx_errors=1_200_000, duration_s=0.3)
    monkeypatch.setattr(sending, "send", lambda *_, **__: (SimpleNamespace(summary=summary), ""))
    point = SimpleNamespace(arrangement="hosts", program=SimpleNamespace(frames=None), two_ports=False)
    context: Any = SimpleNamespace(link=link, lab=None, second=None)
    assert sending.generator_alone(context, cast("Any", point)).rate == pytest.approx(rate)
