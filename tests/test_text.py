"""Numbers, times and sizes as every layer says them."""

from collections.abc import Callable

import pytest

from xdplab.text import duration, many, natural, size, unit_of, visible


@pytest.mark.parametrize(
    ("say", "given", "said"),
    [
        *((duration, 59.4, "59 s"), (duration, 60, "1.0 minutes"), (duration, 7199, "120.0 minutes")),
        *((duration, 7200, "2.0 hours"), (size, 999, "999 bytes"), (size, 1000, "1 kB"), (size, 99_999, "100 kB")),
        *((size, 100_000, "0.1 MB"), (size, 2_340_000, "2.3 MB")),
        *((unit_of, "access_ns", "ns"), (unit_of, "ns_per_packet", "ns"), (unit_of, "cycles_per_ns", "1/ns")),
        *((unit_of, "forwarded_pps", "1/s"), (unit_of, "link_bps", "bit/s"), (unit_of, "frame_bytes", "B")),
        *((unit_of, "busy_percent", "%"), (unit_of, "runs_per_s", "1/s"), (unit_of, "tx_busy_poll_us", "us")),
        *((unit_of, "tx_pause_ms", "ms"), (unit_of, "window_s", "s"), (unit_of, "queues", "")),
        *((visible, "a\tb\n", "a\tb\n"), (visible, "\x1b[1m\x9f\u202e", "\\x1b[1m\\x9f\\u202e")),
    ],
)
def test_what_is_said(say: Callable[[object], object], given: object, said: object) -> None:
    assert say(given) == said


def test_numbers_within_names_have_their_order_and_one_thing_is_not_several() -> None:
    assert sorted(["6.12", "6.2", "v10b", "v9c", "6"], key=natural) == ["v9c", "v10b", "6", "6.2", "6.12"]
    assert [many(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
