"""The plan file: what a person writes, checked field by field, with every default written out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from xdplab.errors import PlanError

Mode = Literal["native", "generic", "offload", "af_xdp"]
Workload = Literal["array", "packet", "chase", "lookup"]
Op = Literal["read", "write"]
Form = Literal["bounded", "loop", "unrolled"]
MapType = Literal["percpu_array", "hash"]
Engine = Literal["live", "afxdp", "moongen", "moongen-hw"]
Pass = Literal["rate", "bpf_stats", "perf"]
Arrangement = Literal["shared", "split", "hosts"]
Action = Literal["tx", "drop", "pass"]

_RATE = re.compile(r"(\d+(?:\.\d+)?)([kM]?)pps")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")
_WORKLOAD_FACTORS = {"workload", "op", "accesses", "form", "working_set_bytes", "map_type"}
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}


def parse_load(load: str) -> float | None:
    """Return the paced rate of a load in frames a second, None for ``max`` and for a share. Raises ValueError."""
    if load == "max" or parse_share(load) is not None:
        return None
    match = _RATE.fullmatch(load)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{load!r} is not a load: write `max`, a rate such as `20kpps` or `1.5Mpps`, or `50%`")
    return float(match[1]) * _SCALE[match[2]]


def parse_share(load: str) -> float | None:
    """Return the share of the PDR that a load such as ``50%`` is, or None. Raises ValueError for 0."""
    match = _SHARE.fullmatch(load)
    if match is None:
        return None
    if float(match[1]) == 0:
        raise ValueError(f"{load!r} is not a load: nothing is sent")
    return float(match[1]) / 100


def _checked_load(load: object) -> object:
    parse_load(str(load))
    return str(load)


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else [value]


Load = Annotated[str, BeforeValidator(_checked_load)]
FrameBytes = Annotated[int, Field(ge=64, le=1518)]
Queues = Annotated[int, Field(ge=1, le=64)]
Accesses = Annotated[int, Field(ge=0, le=1_000_000)]
WorkingSet = Annotated[int, Field(ge=16, le=1 << 30)]
Flows = Annotated[int, Field(ge=1, le=65536)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]
Port = Annotated[int, Field(ge=0, le=65535)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UserProgramFile(_Strict):
    """A reader's own XDP program: ``action`` says which counters make the verdict."""

    file: str
    section: str = "xdp"
    action: Action = "tx"
    rodata: dict[str, int | bool] = {}
    setup: list[list[str]] = []
    frames: str | None = None


class Points(_Strict):
    """The factors of a block; every list is crossed with every other."""

    mode: Annotated[list[Mode], BeforeValidator(_as_list), Field(min_length=1)] = ["native"]
    queues: Annotated[list[Queues], BeforeValidator(_as_list), Field(min_length=1)] = [1]
    frame_bytes: Annotated[list[FrameBytes], BeforeValidator(_as_list), Field(min_length=1)] = [64]
    workload: Annotated[list[Workload], BeforeValidator(_as_list), Field(min_length=1)] = ["array"]
    op: Annotated[list[Op], BeforeValidator(_as_list), Field(min_length=1)] = ["read"]
    accesses: Annotated[list[Accesses], BeforeValidator(_as_list), Field(min_length=1)] = [0]
    form: Annotated[list[Form], BeforeValidator(_as_list), Field(min_length=1)] = ["bounded"]
    working_set_bytes: Annotated[list[WorkingSet], BeforeValidator(_as_list), Field(min_length=1)] = [32768]
    map_type: Annotated[list[MapType], BeforeValidator(_as_list), Field(min_length=1)] = ["percpu_array"]
    xsk_attach: Annotated[list[Literal["native", "generic"]], BeforeValidator(_as_list)] = ["native"]
    xsk_bind: Annotated[list[Literal["copy", "zerocopy"]], BeforeValidator(_as_list)] = ["copy"]
    program: Annotated[list[UserProgramFile], BeforeValidator(_as_list)] | None = None

    @model_validator(mode="after")
    def _program_or_workload(self) -> Points:
        given = self.model_fields_set & _WORKLOAD_FACTORS
        if self.program and given:
            raise ValueError(f"`program` is measured as it is: drop {', '.join(sorted(given))} from these points")
        if self.program and "af_xdp" in self.mode:
            raise ValueError("`program` runs in the kernel: mode af_xdp cannot measure it")
        return self

    @model_serializer(mode="wrap")
    def _what_applies(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A user's program has no workload: its factors are left out, so that a resolved plan reads back."""
        data: dict[str, Any] = dump(self)
        return {k: v for k, v in data.items() if not (self.program and k in _WORKLOAD_FACTORS)}


class Traffic(_Strict):
    """What is offered. Lists are factors like those of the points."""

    engine: Annotated[list[Engine], BeforeValidator(_as_list), Field(min_length=1)] = ["live"]
    load: Annotated[list[Load], BeforeValidator(_as_list), Field(min_length=1)] = ["max"]
    flows: Annotated[list[Flows], BeforeValidator(_as_list), Field(min_length=1)] = [64]
    src_ip: Address = "198.18.0.1"
    dst_ip: Address = "198.19.0.1"
    src_ip_stride: Address = "0.0.0.0"
    dst_ip_stride: Annotated[list[Address], BeforeValidator(_as_list), Field(min_length=1)] = ["0.0.0.1"]
    src_port: Port = 1024
    dst_port: Annotated[list[Port], BeforeValidator(_as_list), Field(min_length=1)] = [50220]
    stamp: Literal["all", "none"] | Annotated[int, Field(ge=1, le=1 << 20)] = 16


class TrialSettings(_Strict):
    """Times of one trial, in seconds, and how often a failed one is tried again."""

    warmup_s: Annotated[float, Field(ge=0, le=60)] = 0.2
    window_s: Annotated[float, Field(ge=0.05, le=600)] = 1.0
    pause_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    settle_s: Annotated[float, Field(ge=0.01, le=10)] = 0.05
    retries: Annotated[int, Field(ge=0, le=10)] = 1


class Block(_Strict):
    points: Points = Points()
    traffic: Traffic = Traffic()
    arrangement: Literal["auto"] | Arrangement = "auto"
    passes: list[Pass] = ["rate"]

    @field_validator("passes")
    @classmethod
    def _rate_first(cls, passes: list[Pass]) -> list[Pass]:
        if not passes or passes[0] != "rate" or len(set(passes)) != len(passes):
            raise ValueError("passes begin with `rate` and name each pass once")
        return passes


class UserMetric(_Strict):
    """A command on the DUT whose printed number becomes a column of the plan's own."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    unit: str = ""
    argv: Annotated[list[str], Field(min_length=1)]
    when: Literal["before", "after"] = "after"


class Plan(_Strict):
    """What to measure, on which lab, how often and in which seeded order."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    lab: str = "netns"
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 1
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 3
    trial: TrialSettings = TrialSettings()
    perf_events: list[str] = [
        "cycles",
        "instructions",
        "branches",
        "branch-misses",
        "L1-dcache-loads",
        "L1-dcache-load-misses",
        "context-switches",
    ]
    metrics: list[UserMetric] = []
    blocks: Annotated[list[Block], Field(min_length=1)]

    def to_yaml(self) -> str:
        """Return the plan as resolved: every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def parse_plan(data: Any, *, where: str = "plan") -> Plan:
    """Check ``data`` (what YAML gave). Raises PlanError naming the first field that cannot be used."""
    if not isinstance(data, dict):
        raise PlanError(f"{where} holds no mapping", remedy="begin with `name:` and `blocks:`; see plans/quick.yaml")
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        raise PlanError(f"{where}: {_first_words(error)}") from None


def load_plan(path: Path) -> Plan:
    """Read a plan file; files that it names are taken relative to it. Raises PlanError."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", remedy="name a plan file; plans/ holds some") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return _relative_files(parse_plan(data, where=str(path)), path.parent)


def _relative_files(plan: Plan, folder: Path) -> Plan:
    data = plan.model_dump(mode="json")
    for block in data["blocks"]:
        for program in block["points"]["program"] or []:
            for key in ("file", "frames"):
                if program[key] is not None:
                    program[key] = str((folder / program[key]).resolve())
    return parse_plan(data)


def _first_words(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "it"
    if first["type"] == "extra_forbidden":
        return f"{field} is not a key of a plan; `xdplab plan --schema` lists them"
    words = first["msg"].removeprefix("Value error, ")
    return f"{field}: {words} (got {first['input']!r})" if first["type"] != "missing" else f"{field} is missing"
