"""The plan file of the user, checked field by field, with every default filled in."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from xdplab.compiler import placed
from xdplab.errors import PlanError
from xdplab.lazy import lazy
from xdplab.plan.factors import HINTS, PATHS, TC_MODES, Factor, Where, in_plan, of_program
from xdplab.plan.maps import IN_USER_SPACE, why_no_lookup
from xdplab.plan.offered import LEAST_PPS, parse_load
from xdplab.trust import read_source
from xdplab.yaml_file import composed, read_yaml, yaml_words

yaml_errors = lazy("xdplab.yaml_errors")  # few files are wrong

TWO_PORT_MODES = ("native", "generic", "tcx", "tc")
Pass = Literal["rate", "bpf_stats", "perf", "harness"]


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else [value]


def _off_word(value: object) -> object:
    """YAML 1.1 reads a bare ``off`` as false."""
    return "off" if value is False else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # `Plan` is built once, with all its parts


def _one(factor: Factor) -> tuple[Any, Any]:
    return factor.type, factor.default


class _OrOne:
    """Of a list in a schema that others read: a single value needs no list. As `json_schema_input_type` of the
    validator, the same would be worked out in every start that reads a plan."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        several = handler(core)
        one = several["items"]
        return {"anyOf": [several, *one.get("anyOf", [one])]}


_SEVERAL = (Field(min_length=1), BeforeValidator(_as_list), _OrOne())


def _several(factor: Factor) -> tuple[Any, Any]:
    """A list of values; a single value needs no list."""
    return Annotated[list[factor.type], *_SEVERAL], [factor.default]  # type: ignore[name-defined]


def _given(where: Where, field: Callable[[Factor], tuple[Any, Any]]) -> Any:
    """Return the model whose fields are the factors that a plan has at ``where``."""
    fields: dict[str, Any] = {factor.name: field(factor) for factor in in_plan(where)}
    return create_model(f"{where}_factors", __base__=_Strict, **fields)


class UserProgramFile(_given("program", _one)):  # type: ignore[misc]
    """A user's own XDP program: ``action`` says which counters decide the verdict.

    ``name`` is its name in tables and comparisons: by default that of its file, with as many folders as tell it from
    the plan's others. ``sources`` are the files that its compiler reads, ``setup_files`` those that ``setup`` names, by
    their names there; both are found out, and a run's plan has its own copies.
    """

    name: Annotated[str, Field(pattern=r"^\S.*$")] | None = None
    sources: list[str] | None = None
    setup_files: dict[str, str] | None = None


_WORKLOAD = {factor.name for factor in in_plan("points") if of_program(factor)}


class Points(_given("points", _several)):  # type: ignore[misc]
    """The factors of a block; every list is crossed with every other."""

    program: (
        Annotated[
            list[UserProgramFile],
            BeforeValidator(_as_list, json_schema_input_type=list[UserProgramFile] | UserProgramFile),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _program_or_workload(self) -> Points:
        given = self.model_fields_set & _WORKLOAD
        if self.program and given:
            raise ValueError(f"`program` is measured unchanged: remove {', '.join(sorted(given))} from these points")
        if self.program and "af_xdp" in self.mode:
            raise ValueError("`program` runs in the kernel: mode af_xdp cannot measure it")
        return self

    @model_serializer(mode="wrap")
    def _what_applies(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A user's program has no workload: a resolved plan without a workload's factors can be read back."""
        data: dict[str, Any] = dump(self)
        return {k: v for k, v in data.items() if not (self.program and k in _WORKLOAD)}


def _with_flows_in_one(schema: dict[str, Any]) -> None:
    of = schema["properties"]
    parts = {"count": of["flows"].copy(), "skew": of["skew"], "churn": of["churn"]}
    of["flows"]["anyOf"] = [
        *of["flows"]["anyOf"],
        {"type": "object", "properties": parts, "additionalProperties": False},
    ]


class Traffic(_given("traffic", _several)):  # type: ignore[misc]
    """The offered traffic. Lists are factors like those of the points."""

    model_config = ConfigDict(json_schema_extra=_with_flows_in_one)

    @model_validator(mode="before")
    @classmethod
    def _flows_in_one(cls, given: Any) -> Any:
        """``flows`` may hold ``skew`` and ``churn``, which are factors like the others."""
        flows = given.get("flows") if isinstance(given, dict) else None
        if not isinstance(flows, dict):
            return given
        if wrong := [key for key in flows if key not in ("count", "skew", "churn") or key in given]:
            raise ValueError(f"flows: {wrong[0]}: it has count, skew and churn, each once")
        rest = {key: value for key, value in given.items() if key != "flows"}
        return rest | {"flows" if key == "count" else key: value for key, value in flows.items()}


class TrialSettings(_Strict):
    """Times of one trial, in seconds, and how often a failed one is tried again.

    ``throttling``: off switches real-time throttling off for the time of the run, in virtual labs.
    """

    warmup_s: Annotated[float, Field(ge=0, le=60)] = 0.2
    window_s: Annotated[float, Field(ge=0.05, le=600)] = 1.0
    pause_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    settle_s: Annotated[float, Field(ge=0.01, le=10)] = 0.05
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    throttling: Annotated[
        Literal["kept", "off"], BeforeValidator(_off_word, json_schema_input_type=Literal["kept", "off", False])
    ] = "kept"


class Block(_given("block", _one)):  # type: ignore[misc]
    """Points from crossed factors, and the passes of each of their trials."""

    points: Points = Field(default_factory=Points)
    traffic: Traffic = Field(default_factory=Traffic)
    passes: list[Pass] = Field(default=["rate"])

    @model_validator(mode="after")
    def _two_ports(self) -> Block:
        """What a DUT of two ports cannot have is refused before anything is measured."""
        directions: list[str] = self.traffic.directions
        if all(word == "back" for word in directions):
            return self
        if "both" in directions and any((parse_load(load, 64) or 1) < 2 * LEAST_PPS for load in self.traffic.load):
            raise ValueError("load: `directions: both` halves it, and a generator sends 0.1 frames per second or more")
        if modes := [mode for mode in self.points.mode if mode not in TWO_PORT_MODES]:
            raise ValueError(f"directions: mode {modes[0]} forwards to no other port; {', '.join(TWO_PORT_MODES)} do")
        if self.points.program:
            raise ValueError("directions: a user's program does not know the other port; generated programs do")
        if any(self.points.device):
            raise ValueError("directions: `device` sets the first port only, and two ports would differ")
        return self

    @model_validator(mode="after")
    def _bursts_have_a_rate(self) -> Block:
        if "max" in self.traffic.load and any(burst > 1 for burst in self.traffic.burst):
            raise ValueError("burst: at `load: max` all frames are back to back: write a rate, or a share of the PDR")
        return self

    @model_validator(mode="after")
    def _recorded_frames_have_times(self) -> Block:
        if all(timing == "load" for timing in self.traffic.timing):
            return self
        if self.traffic.load != ["max"]:
            raise ValueError("timing: recorded frames have a rate of their own: omit `load`, or use another block")
        if any(program.frames is None for program in self.points.program or [UserProgramFile(file="")]):
            raise ValueError("timing: recorded needs `program.frames`, the pcap whose gaps they are")
        return self

    @model_validator(mode="after")
    def _one_clock(self) -> Block:
        """Stamps of sending by the device, without what gives them their meaning, are refused."""
        traffic = self.traffic
        if "device" not in traffic.tx_stamp or "afxdp" not in traffic.engine:
            return self
        if set(traffic.tx_bind) != {"zerocopy"}:
            raise ValueError("tx_stamp: device needs `tx_bind: zerocopy`: by copy, the kernel writes a time of its own")
        if set(traffic.rx_stamp) != {"device"}:
            raise ValueError("tx_stamp: device needs `rx_stamp: device`: a latency between two clocks would not hold")
        if "none" in traffic.stamp:
            raise ValueError("tx_stamp: device needs stamped frames: `stamp` is none")
        return self

    @model_validator(mode="after")
    def _hints(self) -> Block:
        """Calls of a driver's kfuncs that no program makes are refused."""
        if hint := next((name for name in self.points.workload if name in HINTS), None):
            if other := next((mode for mode in self.points.mode if mode in ("af_xdp", *TC_MODES)), None):
                raise ValueError(f"workload: {hint}: mode {other} has no kfuncs of a driver; native has")
            if "write" in self.points.op:
                raise ValueError(f"op: workload {hint} only reads")
        return self

    @model_validator(mode="after")
    def _lookups(self) -> Block:
        """Lookups that no program makes are refused."""
        points = self.points
        if "lookup" not in points.workload:
            return self
        for map_type, given, hit in product(points.map_type, points.entries, points.hit):
            entries = [given] if given else [size // 8 for size in points.working_set_bytes]
            if why := next(filter(None, (why_no_lookup(map_type, count, hit) for count in entries)), None):
                raise ValueError(why)
            if "af_xdp" in points.mode and (map_type not in IN_USER_SPACE or hit != 100):
                kinds = ", ".join(IN_USER_SPACE)
                raise ValueError(f"map_type: mode af_xdp looks up in {kinds}, with hit 100; not in {map_type}, {hit} %")
        return self

    @field_validator("passes")
    @classmethod
    def _rate_first(cls, passes: list[Pass]) -> list[Pass]:
        if not passes or passes[0] != "rate" or len(set(passes)) != len(passes):
            raise ValueError("passes begin with `rate` and name each pass once")
        return passes


class UserMetric(_Strict):
    """A command on the DUT that prints a number; the number becomes a column of this plan."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    unit: str = ""
    argv: Annotated[list[str], Field(min_length=1)]
    when: Literal["before", "after"] = "after"


def share(value: object) -> object:
    """Return the number of a share, which may be written as one (0.02) or in per cent (2%); return anything else
    unchanged."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return value
    try:
        return float(value.strip().removesuffix("%")) / 100
    except ValueError:
        return value


Share = Annotated[
    float,
    BeforeValidator(
        share,
        json_schema_input_type=Annotated[float, Field(gt=0, lt=1)]
        | Annotated[str, Field(pattern=r"^\s*[0-9.]+\s*%\s*$")],
    ),
    Field(gt=0, lt=1),
]


class Until(_Strict):
    """Repetitions until the 95 % interval of a point's forwarding rate is within ``until``, a share, to both sides.

    The interval is valid although it is checked after each repetition.
    """

    until: Share
    at_least: Annotated[int, Field(ge=2, le=1000)] = 5
    at_most: Annotated[int, Field(ge=2, le=1000)] = 40

    @model_validator(mode="after")
    def _in_order(self) -> Until:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least: {self.at_least} is more than at_most: {self.at_most}")
        return self


CLAIMS, CLAIMS_FILE = "xdplab.claims", "claims.yaml"
"""The room that knows claims, and the file with a run's claims that are not in its plan."""


def claims_room(module: str) -> Any:
    """Return a module of the room that knows claims. Raises PlanError where that was deleted."""
    if find_spec(CLAIMS) is None:
        raise PlanError(f"this xdplab has no {CLAIMS}, which judges claims", remedy="remove `claims:` from the plan")
    return importlib.import_module(f"{CLAIMS}.{module}")


def _claim(given: dict[str, Any]) -> dict[str, Any]:
    claims_room("grammar").sentence_of(given)
    return given


def _open_or_not(value: object) -> str:
    return "open" if isinstance(value, dict | Until) else "number"


Repetitions = Annotated[
    Annotated[int, Field(ge=1, le=1000), Tag("number")] | Annotated[Until, Tag("open")], Discriminator(_open_or_not)
]


class Race(_Strict):
    """Two blocks against each other, paired by repetition, until it is known which is faster by the forwarding rate.

    Rates whose ratio lies within ``margin`` of 1 are equivalent. ``by``: slices swaps the two programs every few
    milliseconds under one sender, if the sides differ only in the program; windows compares whole trials.
    """

    margin: Share = 0.02
    at_least: Annotated[int, Field(ge=3, le=1000)] = 5
    at_most: Annotated[int, Field(ge=3, le=1000)] = 200
    by: Literal["slices", "windows"] = "slices"

    @model_validator(mode="after")
    def _in_order(self) -> Race:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least: {self.at_least} is more than at_most: {self.at_most}")
        return self


def _shortest(path: tuple[str, ...], others: list[tuple[str, ...]]) -> str:
    """Return the shortest end of a path that is no end of the others."""
    ends = (path[-count:] for count in range(1, len(path) + 1))
    return "/".join(next((end for end in ends if end not in [one[-len(end) :] for one in others]), path))


class Plan(_Strict):
    """What to measure, on which lab, how often and in which seeded order."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    lab: str = "netns"
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 1
    repetitions: Repetitions = 3
    race: Race | None = None
    trial: TrialSettings = Field(default_factory=TrialSettings)
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
    claims: list[Annotated[dict[str, Any], AfterValidator(_claim)]] = []
    blocks: Annotated[list[Block], Field(min_length=1)]

    @model_validator(mode="after")
    def _two_blocks_race(self) -> Plan:
        if self.race and len(self.blocks) != 2:
            raise ValueError(f"a race is between two blocks, and this plan has {len(self.blocks)}")
        if self.race and self.claims:
            raise ValueError("claims: a race has an answer of its own, by an interval that holds at every look")
        return self

    @model_validator(mode="after")
    def _one_name_each(self) -> Plan:
        """Two files of one name are told apart by their folders."""
        programs = [program for block in self.blocks for program in block.points.program or () if program.name is None]
        for program in programs:
            others = [Path(one.file).parts for one in programs if one.file != program.file]
            if (name := _shortest(Path(program.file).parts, others)) != Path(program.file).name:
                object.__setattr__(program, "name", name)  # the model is frozen for everybody else
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        return {key: value for key, value in data.items() if value or key not in ("race", "claims")}

    @property
    def most_repetitions(self) -> int:
        """How many repetitions each point has at most."""
        if self.race:
            return self.race.at_most
        return self.repetitions if isinstance(self.repetitions, int) else self.repetitions.at_most

    @property
    def open_ended(self) -> bool:
        """True if the measured results decide how many repetitions a point has."""
        return self.race is not None or not isinstance(self.repetitions, int)

    @property
    def at_least(self) -> int:
        """The least number of repetitions of a point."""
        until = self.race or self.repetitions
        return until if isinstance(until, int) else until.at_least

    @property
    def commands(self) -> list[str]:
        """The names of its commands that run on the DUT as root: metrics of its own, and the set-up of programs."""
        programs = (program for block in self.blocks for program in block.points.program or ())
        setups = ["setup" for program in programs if program.setup]
        return list(dict.fromkeys([*(metric.name for metric in self.metrics), *setups]))

    def to_yaml(self) -> str:
        """Return the plan as resolved: every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


_PARTS = {
    "the plan itself": Plan,
    "a block": Block,
    "the `points` of a block": Points,
    "the `traffic` of a block": Traffic,
    "`trial`": TrialSettings,
    "the `program` of points": UserProgramFile,
    "an element of `metrics`": UserMetric,
    "`repetitions`": Until,
    "`race`": Race,
}


def parse_plan(data: Any, *, where: str = "plan", source: str = "") -> Plan:
    """Check ``data``, which was read from the text ``source``. Raises PlanError naming the invalid fields."""
    if not isinstance(data, dict):
        raise PlanError(f"{where} contains no mapping", remedy="begin with `name:` and `blocks:`; see plans/quick.yaml")
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        wrong = yaml_errors.complaint(error, "a plan", _PARTS, composed(source) if source else None)
        raise PlanError(f"{where}: {wrong}", remedy="`xdplab plan --schema` lists every key") from None


def is_plan_file(name: str) -> bool:
    """Tell a plan file from a program where a command takes either."""
    return name.endswith((".yaml", ".yml"))


def load_plan(path: Path, *, to_measure: bool = True) -> Plan:
    """Read a plan file; files that it names are taken relative to it. Raises PlanError.

    Also raises StrangersFileError if it is to be measured, names commands, and others may have written it.
    """
    try:
        source = read_source(path)
        data = read_yaml(source.text)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", remedy="name a plan file; plans/ holds some") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not YAML: {yaml_words(error)}") from None
    plan = relative_to(parse_plan(data, where=str(path), source=source.text), source.folder)
    if to_measure and plan.commands:
        source.require_trust(f"commands that run as root on the DUT ({', '.join(plan.commands)})")
    if plan.claims:
        claims_room("points").require_points(plan, str(path), source.text)
    return plan


def race_of(
    name: str, sides: Sequence[Plan], limits: Mapping[str, float | str | None], labs: Sequence[str] = ()
) -> Plan:
    """Return the plan in which two plans of one block each race, the first as A and the second as B.

    ``labs``: A's and B's, for kernels or machines that race. ``limits`` are those of `Race`; None: its default. Raises
    PlanError if a plan has several blocks, or if the two have different trials.
    """
    for side in sides:
        if len(side.blocks) != 1:
            raise PlanError(
                f"{side.name} has {len(side.blocks)} blocks, and a side of a race is one", remedy="split the plan"
            )
    first, second = sides
    if first.trial != second.trial:
        raise PlanError(
            f"{first.name} and {second.name} have other `trial:` settings: their rates would differ by these",
            remedy="give both plans the same ones",
        )
    fields = first.model_dump(mode="json", exclude={"repetitions", "race", "claims"})
    blocks = [side.blocks[0].model_dump(mode="json") for side in sides]
    if labs:
        fields["lab"], blocks = labs[0], [blocks[0] | {"lab": "auto"}, blocks[1] | {"lab": labs[1]}]
    given = {key: limit for key, limit in limits.items() if limit is not None}
    return parse_plan(fields | {"name": name, "blocks": blocks, "race": given})


def relative_to(plan: Plan, folder: Path) -> Plan:
    """Return a plan whose files are named from ``folder``, with absolute paths and what its `setup` names."""
    if not any(block.points.program for block in plan.blocks):
        return plan
    data = plan.model_dump(mode="json")
    for block in data["blocks"]:
        for program in block["points"]["program"] or []:
            _place(program, folder)
    return parse_plan(data)


def _place(program: dict[str, Any], folder: Path) -> None:
    """Make a program's paths absolute, and find the files beside the plan that its ``setup`` names."""
    for key in PATHS:
        if program[key] is not None:
            program[key] = str((folder / program[key]).resolve())
    for name, contents in program["maps"].items():
        if isinstance(contents, str):
            program["maps"][name] = str((folder / contents).resolve())
    program["cflags"] = placed(program["cflags"], (folder.resolve(), Path(program["file"]).parent))
    if program["sources"] is not None:
        program["sources"] = [str((folder / path).resolve()) for path in program["sources"]]
    named = program["setup_files"]
    if named is None:
        named = {name: name for name in files_named(program["setup"], folder)}
    program["setup_files"] = {name: str((folder / path).resolve()) for name, path in named.items()}


def files_named(setup: Sequence[Sequence[str]], folder: Path) -> list[str]:
    """Return the words of commands, also within a word for a shell, that name a file in ``folder``."""
    names = {word for argv in setup for text in argv for word in re.split(r"[\s'\"`;|&<>()=$]+", text) if word}
    paths = {path for path in map(Path, names) if not path.is_absolute() and ".." not in path.parts}
    return sorted(str(path) for path in paths if len(path.name) < 256 and (folder / path).is_file())
