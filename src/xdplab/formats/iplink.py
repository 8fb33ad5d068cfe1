"""`ip -s -j link show dev X`: an interface's own 64-bit counters and the XDP program attached to it."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import as_list, as_object, count_field, json_of, refuse, text_field

TOOL = "ip link"
MODES = {1: "native", 2: "generic", 3: "offload"}
"""XDP_ATTACHED_DRV, _SKB and _HW of linux/if_link.h as modes (4, _MULTI, lists several)."""


@dataclass(frozen=True)
class Attachment:
    """One attached XDP program."""

    mode: str
    program_id: int


@dataclass(frozen=True)
class DirectionCounters:
    """Cumulative counters of one direction."""

    packets: int
    bytes: int
    errors: int
    dropped: int


@dataclass(frozen=True)
class Link:
    """One interface. Bytes depend on the path of a frame through the kernel; packets do not."""

    interface: str
    rx: DirectionCounters
    tx: DirectionCounters
    attachments: tuple[Attachment, ...]


def parse_link(data: bytes | str) -> Link:
    """Return the one interface in ``data``. Raises FormatError if there is none, or no statistics."""
    rows = [row for row in as_list(json_of(data, TOOL), TOOL) if row != {}]
    if len(rows) != 1:
        refuse(TOOL, f"{len(rows)} interfaces instead of one")
    fields = as_object(rows[0], TOOL)
    statistics = as_object(fields.get("stats64"), TOOL)
    return Link(
        interface=text_field(fields, "ifname", TOOL),
        rx=_direction(statistics.get("rx")),
        tx=_direction(statistics.get("tx")),
        attachments=_attachments(fields.get("xdp")),
    )


def _direction(value: object) -> DirectionCounters:
    fields = as_object(value, TOOL)
    return DirectionCounters(*(count_field(fields, key, TOOL) for key in ("packets", "bytes", "errors", "dropped")))


def _attachments(value: object) -> tuple[Attachment, ...]:
    if value is None:
        return ()
    fields = as_object(value, TOOL)
    return tuple(_attachment(as_object(item, TOOL)) for item in as_list(fields.get("attached"), TOOL))


def _attachment(fields: dict[str, object]) -> Attachment:
    mode = count_field(fields, "mode", TOOL)
    if mode not in MODES:
        refuse(TOOL, "an unknown XDP mode", text=str(mode))
    return Attachment(MODES[mode], count_field(as_object(fields.get("prog"), TOOL), "id", TOOL))
