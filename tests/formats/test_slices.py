"""Slices of two programs under one sender: the output of xdpload, and the ratio of rates that follows from it."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from xdplab.errors import FormatError
from xdplab.formats.slices import Slice, SlicedRatio, parse_slices, ratio_of

SEED = 20261123


def printed(slices: Sequence[Sequence[int]]) -> bytes:
    lines = [{"type": "loaded"}, {"type": "ready"}, {"type": "alternated", "preempts": True, "slices": slices}]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def measured(
    rng: np.random.Generator, ratio: float, pairs: int = 100, exchange_s: float = 1e-5, swing: float = 0.2
) -> list[Slice]:
    """Return slices of programs whose true rates have ``ratio``, while the machine's speed varies by ``swing``."""
    found = []
    for number in range(pairs):
        speed = 5e6 * (1 + swing * np.sin(number / 7))
        for other in rng.permutation([False, True]):
            rate = speed * (1.0 if other else ratio) * np.exp(rng.normal(0, 0.01))
            found.append(Slice(bool(other), 0.005, round(0.005 * rate), exchange_s))
    return found


def test_the_last_slices_are_read_and_the_rest_is_left() -> None:
    data = printed([[0, 1_000, 5_001_000, 25_000, 9_000], [1, 6_000_000, 11_000_000, 24_000, 11_000]])
    assert parse_slices(data) == (Slice(False, 0.005, 25_000, 9e-6), Slice(True, 0.005, 24_000, 11e-6))


def test_a_session_without_slices_has_none() -> None:
    assert parse_slices(b'{"type":"loaded"}\n') is None


@pytest.mark.parametrize(
    "slices", [[[0, 1, 2, 3]], [[0, 2, 1, 3, 4]], [["a", 1, 2, 3, 4]], [[0, 1, 2, -3, 4]], [7], "none"]
)
def test_what_is_no_slice_is_an_error(slices: list[list[int]]) -> None:
    with pytest.raises(FormatError, match="xdpload"):
        parse_slices(printed(slices))


@pytest.mark.parametrize("ratio", [0.97, 1.0, 1.05])
def test_the_ratio_is_found_while_the_machine_swings_by_a_fifth(ratio: float) -> None:
    rng = np.random.default_rng(SEED)
    found = [ratio_of(measured(rng, ratio)) for _ in range(200)]
    medians = [one.median for one in found if isinstance(one, SlicedRatio)]
    totals = [one.total for one in found if isinstance(one, SlicedRatio)]
    assert len(medians) == 200
    assert np.mean(medians) == pytest.approx(ratio, rel=5e-4), f"seed {SEED}"
    assert np.std(np.log(medians)) < 0.003, f"seed {SEED}"
    assert np.mean(totals) == pytest.approx(ratio, rel=2e-3), f"seed {SEED}"


def test_a_pause_of_the_sender_costs_its_pairs_and_no_more() -> None:
    slices = measured(np.random.default_rng(SEED), 0.9)
    slices[40:52] = [Slice(one.other, one.seconds, 0, one.exchange_s) for one in slices[40:52]]
    found = ratio_of(slices)
    assert found.pairs == 94
    assert found.median == pytest.approx(0.9, rel=0.005)


def test_a_counter_that_stands_still_tells_nothing() -> None:
    slices = [Slice(number % 2 == 1, 0.005, 0 if number % 4 else 100_000, 1e-5) for number in range(200)]
    assert ratio_of(slices) == "the interface counted no frame in 150 of 200 slices"


def test_a_driver_that_takes_long_to_exchange_programs_is_named() -> None:
    assert ratio_of(measured(np.random.default_rng(SEED), 1.0, exchange_s=0.01)) == (
        "the driver needs 10.0 ms to exchange programs"
    )


def test_too_few_pairs_have_no_ratio() -> None:
    assert ratio_of(measured(np.random.default_rng(SEED), 1.0, pairs=19)) == "only 19 pairs of slices carried frames"
