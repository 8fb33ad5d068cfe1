"""The parts of a packet's time on shared CPUs, and the caption of a closed loop's rates."""

import re

import numpy as np
import pandas as pd
import pytest
import synthetic

from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures.catalogue import view
from xdplab.figures.draw import draw
from xdplab.figures.factors import PIECES
from xdplab.figures.views_traffic import summed

MODES = ("native", "generic")


def with_drops(repetitions: int = 3, name: str = "drop.bpf.c", receiver_ns: float = 12.0) -> pd.DataFrame:
    """N = 0 reflects in 75 and 190 ns, a program that drops takes 50 and 120 ns, of which the programs take 6 and 2 ns.

    The generator alone takes 30 ns to send a frame and ``receiver_ns`` to receive it.
    """
    rng = np.random.default_rng(3)
    rows = []
    for repetition in range(1, repetitions + 1):
        for mode, (whole, way_in) in zip(MODES, ((75.0, 50.0), (190.0, 120.0)), strict=True):
            for action, ns, own in (("tx", whole, 6.0), ("drop", way_in, 2.0)):
                user = {"program_name": name, "workload": None, "op": None, "form": None, "accesses": None}
                point = synthetic.point(mode=mode, action=action, **({} if action == "tx" else user))
                row = synthetic.measured(point, rng, repetition)
                done = round(1e9 / ns)
                counts = dict.fromkeys(("tx_packets", "dut_rx_packets"), done)
                back = done if action == "tx" else 0
                counts |= dict.fromkeys(("rx_packets", "dut_tx_packets"), back)
                rates = {"forwarded_pps": done, "offered_pps": done, "lost_packets": 0, "loss_ratio": 0.0}
                source = {"forwarded_source": "tg" if action == "tx" else "dut", "testrun_raw_ns": own}
                source |= {"sender_ns": 30.0, "receiver_ns": receiver_ns, "harness_ns": 30.0 + receiver_ns}
                rows.append(row | counts | rates | source)
    return synthetic.finish(rows)


def test_the_pieces_pile_up_to_the_packets_time() -> None:
    found = view("harness", with_drops())
    marks = found.marks.set_index(["x", "hue"])
    for mode, heights in (("native", (6, 30, 18, 12, 9)), ("generic", (6, 30, 88, 12, 54))):
        pieces = [marks.loc[(mode, piece)] for piece in PIECES]
        assert [piece["value"] - piece["low"] for piece in pieces] == pytest.approx(heights, rel=1e-3)
        assert [piece["n"] for piece in pieces] == [3, 3, 3, 3, 3]
    assert found.look.order.hues == PIECES
    assert "The pieces sum to the whole" in " ".join(found.look.words.caption)
    assert draw(found).get_ylabel() == "CPU time per packet (ns)"


def test_pieces_that_exceed_the_whole_are_told() -> None:
    """Two parts that take longer than the difference between reflecting and dropping: a measurement was wrong."""
    words = " ".join(view("harness", with_drops(receiver_ns=25.0)).look.words.caption)
    assert "The pieces do not sum to the whole: link, way back in native mode is -4 ns" in words


def test_a_panel_does_not_make_up_for_another() -> None:
    """Pooled, 30 ns below zero in one panel and 50 ns above in the other summed to the whole."""
    sizes = {"64 B": -30.0, "1500 B": 50.0}
    rows = pd.DataFrame(
        {"panel": size, "hue": "link, way back", "x": "native", "value": ns + noise}
        for size, ns in sizes.items()
        for noise in (-0.1, 0.0, 0.1)
    )
    assert summed(rows) == "The pieces do not sum to the whole: link, way back in native mode is -30 ns (64 B)."


def test_without_a_program_that_drops_there_is_no_split() -> None:
    with pytest.raises(NotApplicableError, match=r"no program that drops .* plans/harness\.yaml"):
        view("harness", synthetic.quick())
    several = pd.concat([with_drops(), with_drops(name="other.bpf.c")], ignore_index=True)
    with pytest.raises(FigureError, match="several programs drop"):
        view("harness", several)


def test_rates_of_a_closed_loop_say_what_they_hold() -> None:
    words = " ".join(view("throughput", synthetic.quick(), where={"program": "chase-read"}).look.words.caption)
    assert "A closed loop: sender, link, DUT and receiver share the CPUs" in words
    shares = re.search(r"At N = 0 the program itself takes ([\d.]+) of (\d+) ns in native mode", words)
    assert shares
    assert [float(share) for share in shares.groups()] == pytest.approx([30, 260], rel=0.03)
    split = synthetic.run(arrangement="split", vary={"accesses": [0, 100]})
    assert "closed loop" not in " ".join(view("throughput", split).look.words.caption)


def test_a_closed_loop_of_several_sizes_has_no_middle_of_them() -> None:
    """Frames of 64 and 1500 bytes took 260 and 520 ns; the caption said 390, which is neither's."""
    trials = synthetic.run(vary={"frame_bytes": [64, 1500], "accesses": [0, 100]})
    large = trials["frame_bytes"].eq(1500)
    trials["ns_per_packet"] = trials["ns_per_packet"].where(~large, trials["ns_per_packet"] * 2)
    words = " ".join(view("throughput", trials).look.words.caption)
    shares = re.search(r"At N = 0 the program itself takes ([\d.]+) of (\d+) to (\d+) ns in native mode", words)
    assert shares
    assert [float(share) for share in shares.groups()] == pytest.approx([30, 260, 520], rel=0.03)


def test_one_repetition_has_no_interval_that_a_piece_could_be_within() -> None:
    rows = pd.DataFrame({"panel": "", "hue": ["sender", "receiver"], "x": "native", "value": [10.0, 5.0]})
    assert summed(rows) == "The pieces sum to the whole: none is below zero."
