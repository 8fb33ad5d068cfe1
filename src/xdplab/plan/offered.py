"""The offered traffic as a plan writes it: loads, shares of a line, skews of flows, timings; and what they mean."""

from __future__ import annotations

import re

FCS_BYTES = 4
L1_EXTRA_BYTES = 20
"""The overhead of a frame on the cable: preamble, start delimiter and inter-frame gap (IEEE 802.3)."""
RECORDED = "recorded"
LEAST_PPS = 0.1
_LOAD = re.compile(r"(\d+(?:\.\d+)?)([kM]?pps|[MG]bit/s|%|% of line)")
_SCALE = {"pps": 1.0, "kpps": 1e3, "Mpps": 1e6, "Mbit/s": 1e6, "Gbit/s": 1e9}
_SPEED = re.compile(RECORDED + r"(?: ?[x×] ?(\d+(?:\.\d+)?))?")
_ZIPF = re.compile(r"zipf (\d+(?:\.\d+)?)")


def frame_rate(bits_per_second: float, frame_bytes: float) -> float:
    """Return how many frames per second of that size, FCS included, fill this bit rate of a cable (L1)."""
    return bits_per_second / (8 * (frame_bytes + L1_EXTRA_BYTES))


def _number_and_unit(load: str) -> tuple[float, str]:
    """Return the parts of a load; its unit is empty if it is a word, or no load."""
    match = _LOAD.fullmatch(load)
    return (float(match[1]), match[2]) if match else (0.0, "")


def parse_load(load: str, frame_bytes: float) -> float | None:
    """Return the paced rate of a load in frames per second, None for ``max``, a share, and what `timing` decides.

    ``frame_bytes``: a frame's mean size with FCS; bits per second are those of the cable (L1). Raises ValueError.
    """
    if load in ("max", RECORDED):
        return None
    number, unit = _number_and_unit(load)
    if not unit:
        raise ValueError(
            f"{load!r} is not a load: write `max`, a rate such as `20kpps`, `1.5Mpps` or `500Mbit/s`, `50%` of the "
            "PDR, or `50% of line`"
        )
    if not number:
        raise ValueError(f"{load!r} is not a load: no frame would be sent")
    if unit not in _SCALE:
        return None
    rate = number * _SCALE[unit]
    rate = frame_rate(rate, frame_bytes) if unit.endswith("bit/s") else rate
    if not LEAST_PPS <= rate <= 1e9:
        raise ValueError(f"{load!r} is {rate:.3g} frames per second: a generator sends 0.1 to 1e9")
    return rate


def parse_share(load: str) -> float | None:
    """Return the share of the PDR that a load such as ``50%`` is, or None."""
    number, unit = _number_and_unit(load)
    return number / 100 if unit == "%" else None


def parse_line_share(load: str) -> float | None:
    """Return the share of the line rate that a load such as ``50% of line`` is, or None."""
    number, unit = _number_and_unit(load)
    return number / 100 if unit == "% of line" else None


def by_cable(load: str) -> bool:
    """Tell whether a load is a bit rate on the cable: then the frame size determines the frame rate."""
    return _number_and_unit(load)[1] in ("Mbit/s", "Gbit/s", "% of line")


def checked_load(load: object) -> object:
    """Return a load as text. Raises ValueError."""
    if _SPEED.fullmatch(str(load)):
        raise ValueError(f"{load!r} is not a load: write `timing: {load}`, and no load")
    parse_load(str(load), frame_bytes=64)
    return str(load)


def zipf_exponent(skew: str) -> float | None:
    """Return the exponent of a skew by Zipf's law; None if flows take turns. Raises ValueError."""
    match = _ZIPF.fullmatch(skew)
    if skew != "uniform" and (match is None or not 0.01 <= float(match[1]) <= 4):
        raise ValueError(f"{skew!r} is not a skew: write `uniform`, or `zipf S` with an exponent S from 0.01 to 4")
    return float(match[1]) if match else None


def checked_skew(value: object) -> object:
    """Return a skew in its one form. Raises ValueError."""
    exponent = zipf_exponent(str(value))
    return "uniform" if exponent is None else f"zipf {exponent:g}"


def recorded_speed(timing: str) -> float | None:
    """Return how many times as fast as captured frames are sent; None if they go by the load. Raises ValueError."""
    match = _SPEED.fullmatch(timing)
    if timing != "load" and (match is None or not 0.001 <= float(match[1] or 1) <= 1000):
        raise ValueError(
            f"{timing!r} is not a timing: write `load`, `recorded`, or `recorded x2`: twice as fast (0.001 to 1000)"
        )
    return float(match[1] or 1) if match else None


def checked_timing(value: object) -> object:
    """Return a timing in its one form. Raises ValueError."""
    speed = recorded_speed(str(value))
    return "load" if speed is None else RECORDED if speed == 1 else f"{RECORDED} x{speed:g}"
