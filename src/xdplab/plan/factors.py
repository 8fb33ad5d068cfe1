"""The table of factors: everything that distinguishes two points of a plan, declared once.

A row of ``FACTORS`` defines a factor completely. From the rows come the plan's schema (`plan.model`), the point
and its identity (`plan.points`), the columns of trials.parquet (`studies.traffic`), the keys of a series and a baseline
(`analysis.series`), hues, panels and captions (`figures.factors`), ``--only``, the notebook's ``plan`` and the
reference pages. Code that acts on a factor reads it from the point by its name: ``point.queues``.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from xdplab.compiler import flags_of, place_of
from xdplab.plan import maps
from xdplab.plan.imix import imix_of, require_mix, words_of
from xdplab.plan.offered import RECORDED, checked_load, checked_skew, checked_timing
from xdplab.text import unit_of

Mode = Literal["native", "generic", "offload", "tcx", "tc", "netkit", "af_xdp"]
TC_MODES = ("tcx", "tc", "netkit")
"""Where programs see the kernel's packets: behind XDP, or as the other end of a netkit sends them."""
SKB_MODES = ("generic", *TC_MODES)
"""Where a link counts a frame, and a backlog may drop it, before the program sees it as the kernel's packet."""
Arrangement = Literal["shared", "split", "hosts"]
Hint = Literal["rx_hash", "rx_timestamp", "rx_vlan_tag"]
HINTS: tuple[Hint, ...] = get_args(Hint)
Workload = Literal["array", "packet", "chase", "lookup", Hint]
MapType = Literal["percpu_array", "array", "hash", "percpu_hash", "lru_hash", "lpm_trie", "lpm_trie_v6", "hash_of_maps"]
Action = Literal["tx", "drop", "pass", "redirect", "mixed"]
FrameBytes = Annotated[int, Field(ge=64, le=9216)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]
Port = Annotated[int, Field(ge=0, le=65535)]
Vlan = Literal["none"] | Annotated[int, Field(ge=0, le=4094)]
Mix = Annotated[
    dict[FrameBytes, Annotated[int, Field(ge=1, le=1000)]], Field(title="size: frames"), AfterValidator(require_mix)
]
Imix = Annotated[
    Annotated[Literal["none", "simple"], Tag("word")] | Annotated[Mix, Tag("mix")],
    Discriminator(lambda value: "mix" if isinstance(value, Mapping) else "word"),
]
Directions = Literal["back", "one", "both"]
Stamp = Literal["all", "none"] | Annotated[int, Field(ge=1, le=1 << 20)]


def _per_second(value: object) -> object:
    match = re.fullmatch(r"(\d+)/s", value) if isinstance(value, str) else None
    return int(match[1]) if match else value


Load = Annotated[str, BeforeValidator(checked_load, json_schema_input_type=str)]
_Timing = Annotated[str, Field(pattern=r"^(load|recorded( ?[x×] ?[0-9.]+)?)$")]
Timing = Annotated[str, BeforeValidator(checked_timing, json_schema_input_type=_Timing)]
_Skew = Annotated[str, Field(pattern=r"^(uniform|zipf [0-9.]+)$")]
Skew = Annotated[str, BeforeValidator(checked_skew, json_schema_input_type=_Skew)]
_Churn = Annotated[int, Field(ge=0, le=1_000_000)]
_Churned = _Churn | Annotated[str, Field(pattern=r"^[0-9]+/s$")]
Churn = Annotated[_Churn, BeforeValidator(_per_second, json_schema_input_type=_Churned)]


def _word(value: object) -> object:
    """Return an integer of a command as text; refuse a fraction or ``on``, which YAML reads differently."""
    if isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not text: write it in quotes")
    return str(value) if isinstance(value, int) else value


Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int)]

Flags = Annotated[list[str], BeforeValidator(flags_of, json_schema_input_type=list[str] | str)]

# --- labels: from a level, as text, to the text in a figure ---

Label = Callable[[str], str]
MODES = {mode: "AF_XDP" if mode == "af_xdp" else mode for mode in get_args(Mode)}
ARRANGEMENTS = {"shared": "TG and DUT share CPUs", "split": "TG and DUT on own CPUs", "hosts": "two hosts"}


def _labels_of(table: Mapping[str, str]) -> Label:
    return lambda value: table.get(value, value)


def _plural(word: str) -> Label:
    return lambda value: f"{value} {word}" + ("" if value == "1" else "s")


def _bytes(value: str) -> str:
    count = int(value)
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


def _spaced(value: str) -> str:
    return value.replace("-", " ")


def _stamped(value: str) -> str:
    return {"all": "every frame stamped", "none": "no frame stamped"}.get(value, f"1 of {value} frames stamped")


DIRECTIONS = {
    "back": "frames return by their port",
    "one": "two ports, one direction",
    "both": "two ports, both directions",
}


def _mixed(value: str) -> str:
    return {"none": "frames of one size", "simple": "simple IMIX"}.get(value, f"IMIX {value}")


# --- canonical values, and cells of a table ---


def constants(given: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the numbers that ``rodata`` sets, by place: ``limit``, ``mac[5]``, ``cfg.limit``. Raises ValueError."""
    return tuple(sorted(step for name, value in given.items() for step in _numbers(name, value)))


def _numbers(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _numbers(f"{place}.{name}", entry)
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from _numbers(f"{place}[{index}]", entry)
    elif isinstance(value, int):
        yield place, int(value)
    else:
        raise ValueError(f"{place}: {value!r} is not a whole number")


def _checked_constants(given: dict[str, Any]) -> dict[str, Any]:
    constants(given)
    return given


def _rodata_cell(value: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}={number}" for name, number in value) or "none"


def _setup_cell(value: Iterable[Iterable[str]]) -> str:
    return "; ".join(shlex.join(argv) for argv in value) or "none"


def _named_setup(level: str) -> str:
    """Commands are long, and stand in the plan: a label only tells two of them apart."""
    return "setup " + ("none" if level == "none" else hashlib.sha256(level.encode()).hexdigest()[:7])


DeviceValue = bool | int | str
Device = dict[Annotated[str, Field(pattern=r"^[a-z]+\.[A-Za-z0-9_-]+$")], DeviceValue]


def device_value(value: DeviceValue) -> str:
    """Return a device setting's value as ethtool writes it: ``on``, ``off``, a number or a word."""
    return str(value) if not isinstance(value, bool) else "on" if value else "off"


def _switch(value: DeviceValue) -> str:
    return value if value == "auto" else device_value(value)


def _device_cell(value: Iterable[tuple[str, DeviceValue]]) -> str:
    return " ".join(f"{name}={device_value(setting)}" for name, setting in value) or "none"


# --- where a factor applies; elsewhere its column is null ---

Values = Mapping[str, Any]


def _lookup(values: Values) -> bool:
    return bool(values["workload"] == "lookup")


def _own_file(values: Values) -> bool:
    return values["file"] is not None


Reader = Literal["program", "deployment", "traffic", "run"]
Where = Literal["points", "traffic", "program", "block", ""]


def _by_sockets(values: Values) -> bool:
    return bool(values["engine"] == "afxdp")


@dataclass(frozen=True)
class Labels:
    """How figures and captions show a factor.

    ``title``: by default its name. ``short`` labels a legend entry below the title; ``full`` stands alone, as on a
    panel or in a caption (default: title and label). ``uses`` says where a figure may put it; one with ``apart`` is
    never mixed within a figure unless requested. ``caption`` mentions it ``always``, if it is not the default
    (``changed``), or in its ``own`` way.
    """

    title: str = ""
    short: Label = str
    full: Label | None = None
    uses: tuple[Literal["hue", "panel", "axis"], ...] = ("hue", "panel", "axis")
    apart: bool = False
    caption: Literal["always", "changed", "own"] = "changed"


@dataclass(frozen=True)
class Form:
    """How a factor's value goes from the plan into the point, and from there into its column.

    ``canonical`` turns a plan's value into a hashable one, and ``cell`` turns that into the column's. If the factor
    does not apply, its column is null and the point has ``absent``. A ``path`` is identified by its name; a row
    ``…_sha256`` has the hash of its content. ``in_pcap``: a pcap's frames have their own value, so the column is null
    or from there.
    """

    canonical: Callable[[Any], Any] = lambda value: value
    cell: Callable[[Any], Any] = lambda value: value
    applies: Callable[[Values], bool] = lambda values: True
    absent: Any = None
    path: bool = False
    in_pcap: bool = False


@dataclass(frozen=True)
class Factor:
    """One factor.

    ``reader`` is the part that acts on it. ``where`` is its place in a plan: in ``points`` and ``traffic`` it may be a
    list, and lists are crossed; ``""`` means that it is not written but found out. ``type`` is pydantic's type of one
    value. ``dtype`` and ``text`` describe its column, which is called ``column`` (default: ``name``).
    ``identity``: it is part of the point, and so of its id.
    """

    name: str
    reader: Reader
    where: Where
    type: Any = None
    default: Any = None
    text: str = ""
    dtype: Literal["str", "int", "float"] = "str"
    identity: bool = True
    column: str = ""
    shown: Labels = Labels()
    form: Form = Form()

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", self.column or self.name)

    def is_default(self, value: object) -> bool:
        """Whether a canonical value is the default, or says that the factor does not apply."""
        return value in (self.form.absent, self.form.canonical(self.default))

    @property
    def unit(self) -> str:
        """The unit in which its column's name ends."""
        return unit_of(self.column)

    @property
    def level(self) -> str | None:
        """The default as its column has it, as text; None if there is none."""
        given = self.where and self.default is not ...
        return str(self.form.cell(self.form.canonical(self.default))) if given else None

    @property
    def title(self) -> str:
        return self.shown.title or self.name.replace("_", " ")

    def label(self, level: object) -> str:
        """Return a level as text that is clear on its own."""
        return self.shown.full(str(level)) if self.shown.full else f"{self.title} {self.shown.short(str(level))}"


FACTORS: tuple[Factor, ...] = (
    Factor("mode", "deployment", "points", Mode, "native",
           "native, generic, offload, tcx, tc, netkit or af_xdp, as requested",
           shown=Labels(short=_labels_of(MODES), full=_labels_of(MODES), caption="always")),
    Factor("program_name", "program", "", None, None, "workload-op, or the file of a user's program", identity=False,
           shown=Labels(title="program", short=_spaced, full=_spaced, caption="always")),
    Factor("queues", "deployment", "points", Annotated[int, Field(ge=1, le=64)], 1, "receive queues of the DUT",
           dtype="int",
           shown=Labels(full=_plural("queue"), caption="always")),
    Factor("frame_bytes", "traffic", "points", FrameBytes, 64, "L2 bytes including the 4-byte FCS", dtype="int",
           shown=Labels(title="frame size", short="{} B".format, full="{} B frames".format, caption="always"),
           form=Form(applies=lambda values: values["imix"] == "none", in_pcap=True)),
    Factor("working_set_bytes", "program", "points", Annotated[int, Field(ge=16, le=1 << 30)], 32768,
           "bytes the accesses walk through", dtype="int",
           shown=Labels(title="working set", short=_bytes, full=lambda v: f"{_bytes(v)} working set", caption="always"),
           form=Form(applies=lambda of: of["workload"] in ("array", "chase", "lookup") and not of.get("entries"))),
    Factor("accesses", "program", "points", Annotated[int, Field(ge=0, le=1_000_000)], 0,
           "N, memory accesses per packet, proved; null for a user's program", dtype="int",
           shown=Labels(title="accesses N", full="N = {}".format, caption="always")),
    Factor("load", "traffic", "traffic", Load, "max", "max, a rate, or a share of the PDR or of the line rate",
           shown=Labels(full=lambda v: "maximum load" if v == "max" else f"load {v}", caption="always"),
           form=Form(applies=lambda values: values["timing"] == "load", absent=RECORDED)),
    Factor("rate_requested_pps", "traffic", "", None, None, "the paced rate, of recorded frames that in the window; "
           "null at max", dtype="float", identity=False,
           shown=Labels(uses=(), caption="own")),
    Factor("xsk_attach", "deployment", "points", Literal["native", "generic"], "native",
           "af_xdp only: attach mode of the redirecting program",
           shown=Labels(title="AF_XDP attach", full="AF_XDP on {}".format, caption="always"),
           form=Form(applies=lambda values: values["mode"] == "af_xdp")),
    Factor("xsk_bind", "deployment", "points", Literal["copy", "zerocopy"], "copy",
           "af_xdp only: copy or zerocopy, as requested and obtained",
           shown=Labels(title="AF_XDP bind", full="AF_XDP {}".format),
           form=Form(applies=lambda values: values["mode"] == "af_xdp")),
    Factor("workload", "program", "points", Workload, "array",
           "array, packet, chase, lookup; rx_hash, rx_timestamp, rx_vlan_tag: calls of this kfunc of the driver; null "
           "for a user's program",
           shown=Labels(caption="own")),
    Factor("op", "program", "points", Literal["read", "write"], "read", "read or write",
           shown=Labels(caption="own")),
    Factor("form", "program", "points", Literal["bounded", "loop", "unrolled"], "bounded",
           "bounded (loop around unrolled accesses), loop or unrolled"),
    Factor("frags", "program", "points", Literal["auto"] | bool, "auto",
           "whether the program takes frames in several buffers (xdp.frags); auto: if the frames need more than one",
           shown=Labels(title="several buffers", full="several buffers {}".format),
           form=Form(canonical=_switch, cell=lambda value: "on" if value == "on" else "off",
                     applies=lambda values: values["workload"] is not None)),
    Factor("map_type", "program", "points", MapType, "percpu_array",
           "lookup only: the kind of map; lpm_trie has IPv4 prefixes of 24 bits, lpm_trie_v6 IPv6 prefixes of 48",
           shown=Labels(title="map", full=str, caption="own"),
           form=Form(applies=_lookup)),
    Factor("action", "program", "program", Action, "tx",
           "what the program decides for a frame: tx, drop, pass or redirect; mixed: one or another",
           form=Form(absent="tx")),
    Factor("file", "program", "program", str, ..., "a user's program: the name of its file",
           shown=Labels(caption="own"),
           form=Form(path=True, applies=_own_file)),
    Factor("file_sha256", "program", "", None, None,
           "a user's program: SHA-256 of its file, and of those it was compiled from", column="program_sha256",
           shown=Labels(title="version", short=lambda v: v[:7], caption="own"),
           form=Form(applies=_own_file)),
    Factor("section", "program", "program", str, "xdp", "a user's program: its ELF section",
           form=Form(applies=_own_file, absent="xdp")),
    Factor("function", "program", "program", str | None, None,
           "a user's program: its function, where a section has several",
           form=Form(cell=lambda value: value or "none", applies=_own_file)),
    Factor("cflags", "program", "program", Flags, [],
           "a user's program: flags for its compiler, such as -Iinclude and -DLIMIT=4",
           form=Form(canonical=tuple, cell=lambda value: " ".join(value) or "none", applies=_own_file, absent=())),
    Factor("rodata", "program", "program",
           Annotated[dict[str, int | bool | list[Any] | dict[str, Any]], AfterValidator(_checked_constants)], {},
           "a user's program: the constants it is loaded with",
           form=Form(canonical=constants, cell=_rodata_cell, applies=_own_file, absent=())),
    Factor("maps", "program", "program", Annotated[dict[str, maps.Contents], AfterValidator(maps.checked_maps)], {},
           "a user's program: entries of its maps, by name, or a CSV or JSON file that has them",
           shown=Labels(full=maps.label),
           form=Form(canonical=maps.entries, cell=maps.cell, applies=_own_file, absent=())),
    Factor("pinned", "program", "program", Literal["anew", "keep"], "anew",
           "a user's program: whether maps pinned by name begin empty in each load, or keep what they had",
           shown=Labels(full="pinned maps {}".format),
           form=Form(applies=_own_file, absent="anew")),
    Factor("setup", "program", "program", list[list[Word]], [],
           "a user's program: commands on the DUT once it is attached",
           shown=Labels(full=_named_setup),
           form=Form(canonical=lambda given: tuple(map(tuple, given)), cell=_setup_cell, applies=_own_file, absent=())),
    Factor("frames", "program", "program", str | None, None, "a user's program: the pcap whose frames are sent",
           form=Form(path=True, cell=lambda value: value or "none", applies=_own_file)),
    Factor("frames_sha256", "program", "", None, None, "a user's program: SHA-256 of that pcap",
           shown=Labels(title="frames", short=lambda v: v[:7], caption="own"),
           form=Form(applies=_own_file)),
    Factor("flows", "traffic", "traffic", Annotated[int, Field(ge=1, le=1 << 20)], 64,
           "flows that the generator sends at a time", dtype="int",
           shown=Labels(full=_plural("flow"), caption="always"),
           form=Form(in_pcap=True)),
    Factor("src_ip", "traffic", "traffic", Address, "198.18.0.1", "source address of the first flow",
           shown=Labels(title="source address"),
           form=Form(in_pcap=True)),
    Factor("dst_ip", "traffic", "traffic", Address, "198.19.0.1", "destination address of the first flow",
           shown=Labels(title="destination address"),
           form=Form(in_pcap=True)),
    Factor("src_ip_stride", "traffic", "traffic", Address, "0.0.0.0",
           "from one flow's source address to the next one's",
           shown=Labels(title="source address stride"),
           form=Form(in_pcap=True)),
    Factor("dst_ip_stride", "traffic", "traffic", Address, "0.0.0.1",
           "from one flow's destination address to the next one's",
           shown=Labels(title="address stride"),
           form=Form(in_pcap=True)),
    Factor("src_port", "traffic", "traffic", Port, 1024, "UDP source port", dtype="int",
           shown=Labels(title="UDP source port"),
           form=Form(in_pcap=True)),
    Factor("dst_port", "traffic", "traffic", Port, 50220, "UDP destination port", dtype="int",
           shown=Labels(title="UDP port"),
           form=Form(in_pcap=True)),
    Factor("imix", "traffic", "traffic", Imix, "none",
           "frames of several sizes in turn: simple (7 x 64, 4 x 594, 1 x 1518 B), or {size: frames in a cycle}",
           shown=Labels(title="IMIX", short=_mixed, full=_mixed),
           form=Form(canonical=imix_of, cell=words_of, in_pcap=True)),
    Factor("vlan", "traffic", "traffic", Vlan, "none", "id of the VLAN tag of every frame; none: no tag",
           shown=Labels(title="VLAN", full=lambda v: "no VLAN tag" if v == "none" else f"VLAN {v}"),
           form=Form(canonical=str, in_pcap=True)),
    Factor("ip_version", "traffic", "traffic", Literal[4, 6], 4, "4 or 6; IPv6 has an address A as 2001:2::A",
           dtype="int",
           shown=Labels(title="IP version", full="IPv{}".format),
           form=Form(in_pcap=True)),
    Factor("directions", "deployment", "traffic", Directions, "back",
           "back: the DUT sends frames back by the port they came on; one: it forwards them to its second port; both: "
           "also from the second to the first, at the same time",
           shown=Labels(short=_labels_of(DIRECTIONS), full=_labels_of(DIRECTIONS))),
    Factor("stamp", "traffic", "traffic", Stamp, 16, "which frames carry a time stamp: all, none, or one in N",
           shown=Labels(short=_stamped, full=_stamped),
           form=Form(canonical=str, in_pcap=True)),
    Factor("rx_stamp", "traffic", "traffic", Literal["software", "device"], "software",
           "xdpgen: who tells when a stamped frame came back, its program's clock or the TG's device (XDP metadata)",
           shown=Labels(title="receive stamps", full="receive stamps by {}".format, apart=True),
           form=Form(applies=lambda values: values["engine"] in ("live", "afxdp"))),
    Factor("tx_stamp", "traffic", "traffic", Literal["software", "device"], "software",
           "engine afxdp: who tells when a stamped frame was sent, its sender's clock or the TG's device (AF_XDP "
           "metadata); device needs tx_bind: zerocopy and rx_stamp: device",
           shown=Labels(title="stamps of sending", full="stamps of sending by {}".format, apart=True),
           form=Form(applies=_by_sockets)),
    Factor("batch", "traffic", "traffic", Literal["auto"] | Annotated[int, Field(ge=1, le=256)], "auto",
           "frames the sender hands over at once; auto: few at a rate, the most at max and at shares of the PDR",
           dtype="int",
           shown=Labels(full="batches of {}".format),
           form=Form(cell=lambda value: None if value == "auto" else value)),
    Factor("tx_bind", "traffic", "traffic", Literal["copy", "zerocopy"], "copy",
           "engine afxdp: how the kernel takes the TG's frames, copy or zerocopy",
           shown=Labels(title="TG's AF_XDP bind", full="TG's AF_XDP {}".format),
           form=Form(applies=_by_sockets)),
    Factor("tx_wakeup", "traffic", "traffic", Literal["always", "needed"], "always",
           "engine afxdp: whether the sender calls the kernel for every batch, or only when it asks for that",
           shown=Labels(title="TG's wake-up", full="wake-up {}".format),
           form=Form(applies=_by_sockets)),
    Factor("tx_busy_poll_us", "traffic", "traffic", Annotated[int, Field(ge=0, le=10_000)], 0,
           "engine afxdp: how long a sending call may poll the TG's queue; 0: not at all", dtype="int",
           shown=Labels(title="TG's busy polling", full="{} µs of busy polling".format),
           form=Form(applies=_by_sockets)),
    Factor("device", "deployment", "points", Device, {},
           "settings of the DUT's device, as obtained; where the driver rounded a number, the one asked for too",
           shown=Labels(title="device settings"),
           form=Form(canonical=lambda given: tuple(sorted(given.items())), cell=_device_cell)),
    Factor("lab", "run", "block", Annotated[str, Field(min_length=1)], "auto",
           "the lab that measured; in a block: another lab than the plan's",
           shown=Labels(apart=True, caption="own"),
           form=Form(cell=lambda value: None if value == "auto" else value)),
    Factor("kernel", "run", "", None, None, "the DUT's kernel release", identity=False,
           shown=Labels(full="Linux {}".format, apart=True, caption="own")),
    Factor("arrangement", "run", "block", Literal["auto"] | Arrangement, "auto",
           "shared, split or hosts: who shares a CPU with whom",
           shown=Labels(short=_labels_of(ARRANGEMENTS), full=_labels_of(ARRANGEMENTS), apart=True, caption="own")),
    Factor("engine", "traffic", "traffic", Literal["live", "afxdp", "moongen", "moongen-hw", "testpmd"], "live",
           "how the generator sends: live, afxdp, moongen or testpmd",
           shown=Labels(apart=True, caption="own")),
    Factor("entries", "program", "points", Annotated[int, Field(ge=1, le=1_000_000)] | None, None,
           "lookup only: entries of its map; null: as many values of 8 bytes as working_set_bytes has", dtype="int",
           shown=Labels(short=lambda v: f"{int(v):,}", full=lambda v: f"{v} entries"),
           form=Form(applies=_lookup)),
    Factor("hit", "program", "points", Annotated[int, Field(ge=0, le=100)], 100,
           "lookup only: % of the looked-up keys that have an entry", dtype="int",
           shown=Labels(title="hits", short="{} %".format, full="{} % hits".format),
           form=Form(applies=_lookup)),
    Factor("skew", "traffic", "traffic", Skew, "uniform",
           "how frames spread over the flows of a queue's sender: uniform (in turn), or zipf S (drawn by the plan's "
           "seed, the r-th flow in proportion to 1/r^S)",
           shown=Labels(full=lambda v: "flows in turn" if v == "uniform" else f"flows by {v}"),
           form=Form(in_pcap=True)),
    Factor("churn", "traffic", "traffic", Churn, 0,
           "flows that end in each second, each replaced by a new one with the next addresses", dtype="int",
           column="churn_per_s",
           shown=Labels(full="{} new flows a second".format),
           form=Form(in_pcap=True)),
    Factor("burst", "traffic", "traffic", Annotated[int, Field(ge=1, le=65536)], 1,
           "frames that each queue's sender sends back to back; the load is their mean rate", dtype="int",
           shown=Labels(full="bursts of {}".format)),
    Factor("timing", "traffic", "traffic", Timing, "load",
           "when frames are sent: load (as `load` says), recorded (with the gaps of the pcap), recorded xK (K times as "
           "fast)",
           shown=Labels(full=lambda v: "frames by load" if v == "load" else f"gaps as {v}")),
)  # fmt: skip

BY_NAME: Mapping[str, Factor] = {factor.name: factor for factor in FACTORS}
BY_COLUMN: Mapping[str, Factor] = {factor.column: factor for factor in FACTORS}
PATHS = tuple(factor.name for factor in FACTORS if factor.form.path)


def in_plan(where: Where) -> tuple[Factor, ...]:
    """Return the factors that are written there in a plan."""
    return tuple(factor for factor in FACTORS if factor.where == where)


def of_program(factor: Factor) -> bool:
    """True for a factor of the program, False for a factor of its setting."""
    return factor.reader == "program"


def cells(values: Values) -> dict[str, Any]:
    """Return the columns of a point whose factors are ``values``; null if one does not apply."""
    factors = [factor for factor in FACTORS if factor.name in values]
    applies = {f.column: f.form.applies(values) and not (f.form.in_pcap and values["frames"]) for f in factors}
    return {f.column: f.form.cell(_hashed(f, values[f.name])) if applies[f.column] else None for f in factors}


def identity(values: Values) -> dict[str, Any]:
    """Return the part of ``values`` that is hashed, what differs from its default: a new factor changes no id."""
    hashed = {name: _hashed(BY_NAME[name], value) for name, value in values.items()}
    return {name: value for name, value in hashed.items() if not BY_NAME[name].is_default(value)}


def _hashed(factor: Factor, value: Any) -> Any:
    """A file is known by its name, whatever its folder; what a folder of headers had is in the program's SHA-256."""
    if factor.name == "cflags":
        return tuple(flag for flag in value if place_of(flag) is None)
    if factor.name == "maps":
        return maps.named_only(value)
    return Path(value).name if factor.form.path and value is not None else value


def changed(row: Values, *left_out: str) -> list[str]:
    """Return the text for each factor of ``row`` that is not its default, except those ``left_out``. None is null."""
    candidates = [f for f in FACTORS if f.shown.caption != "own" and f.column in row and f.column not in left_out]
    levels = [(factor, _level(row[factor.column])) for factor in candidates]
    return [factor.label(level) for factor, level in levels if level != factor.level]


def _level(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
