"""`bpftool -j prog show` and `bpftool -j net show`: which programs are loaded, and what is attached where."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import as_list, as_object, count_field, json_of, refuse, text_field

TOOL = "bpftool"
MODES = {"driver": "native", "generic": "generic", "offload": "offload"}


@dataclass(frozen=True)
class LoadedProgram:
    """One loaded program. ``jited_bytes`` is None if it is interpreted, ``name`` empty if it has none.

    ``device`` is the interface whose card has it, None for a program of the host.
    """

    program_id: int
    type: str
    name: str
    tag: str
    xlated_bytes: int
    jited_bytes: int | None
    map_ids: tuple[int, ...]
    device: str | None


@dataclass(frozen=True)
class OffloadAttachment:
    """One XDP program on one interface of the namespace that bpftool was asked in."""

    interface: str
    mode: str
    program_id: int


def parse_programs(data: bytes | str) -> tuple[LoadedProgram, ...]:
    """Return the loaded programs: `prog show` prints a list, `prog show id N` one object."""
    value = json_of(data, TOOL)
    rows = as_list(value, TOOL) if isinstance(value, list) else [value]
    return tuple(_program(as_object(row, TOOL)) for row in rows)


def _program(fields: dict[str, object]) -> LoadedProgram:
    if "error" in fields:
        refuse(TOOL, text_field(fields, "error", TOOL))
    jited = fields.get("jited") is True
    map_ids = as_list(fields.get("map_ids", []), TOOL)
    if not all(isinstance(item, int) for item in map_ids):
        refuse(TOOL, "a map id that is not a number", text=repr(map_ids))
    return LoadedProgram(
        program_id=count_field(fields, "id", TOOL),
        type=text_field(fields, "type", TOOL),
        name=text_field(fields, "name", TOOL) if "name" in fields else "",
        tag=text_field(fields, "tag", TOOL),
        xlated_bytes=count_field(fields, "bytes_xlated", TOOL),
        jited_bytes=count_field(fields, "bytes_jited", TOOL) if jited else None,
        map_ids=tuple(item for item in map_ids if isinstance(item, int)),
        device=_device(as_object(fields["dev"], TOOL)) if "dev" in fields else None,
    )


def _device(fields: dict[str, object]) -> str:
    """Return an interface's name; one of another namespace has none here."""
    if "ifname" in fields:
        return text_field(fields, "ifname", TOOL)
    return f"index {count_field(fields, 'ifindex', TOOL)} of another namespace"


def parse_net(data: bytes | str) -> tuple[OffloadAttachment, ...]:
    """Return the attached XDP programs of `bpftool -j net show`; an interface comes once per mode."""
    value = json_of(data, TOOL)
    rows = as_list(value, TOOL)
    if len(rows) != 1:
        refuse(TOOL, "not one object in a list")
    interfaces = [as_object(row, TOOL) for row in as_list(as_object(rows[0], TOOL).get("xdp"), TOOL)]
    return tuple(
        _attached(text_field(fields, "devname", TOOL), as_object(one, TOOL))
        for fields in interfaces
        for one in as_list(fields.get("multi_attachments", [fields]), TOOL)
    )


def _attached(interface: str, fields: dict[str, object]) -> OffloadAttachment:
    mode = text_field(fields, "mode", TOOL)
    if mode not in MODES:
        refuse(TOOL, "an unknown XDP mode", text=mode)
    return OffloadAttachment(interface, MODES[mode], count_field(fields, "id", TOOL))
