"""Options of a user's program that a command line names: what a plan's `program:` has, in the same words.

`programs`: write, show and prove the C of one program; only the proof in a lab's kernel needs a lab.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xdplab.cli.common import AS_JSON, echo, in_lab, print_json, tell
from xdplab.cli.options import options_as
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.programs.spec import FORMS, MAP_TYPES, OPS, ProgramSpec

with lazily():
    import yaml

    from xdplab import labs, yaml_file
    from xdplab.deploy import native
    from xdplab.plan import maps as contents
    from xdplab.programs import onhost, program, proof

if TYPE_CHECKING:
    from xdplab.programs.program import Program

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ProgramSettings:
    """The settings of the programs that a command line names; what is not given has a plan's default."""

    action: str = "tx"
    section: str | None = None
    function: str | None = None
    cflags: str | None = None
    rodata: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    frames: str | None = None

    @property
    def named(self) -> str:
        """The options that are given."""
        names = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return ", ".join("--map" if name == "maps" else f"--{name}" for name in names)

    def of(self, file: Path) -> dict[str, Any]:
        """Return the program of a plan in this folder. Raises PlanError for an option that is not NAME=VALUE."""
        optional = {"section": self.section, "function": self.function, "cflags": self.cflags, "frames": self.frames}
        return {
            "file": str(file),
            "action": self.action,
            "rodata": dict(_pair("--rodata", given) for given in self.rodata),
            "maps": filled(self.maps),
            "setup": [shlex.split(command) for command in self.setup],
            **{name: value for name, value in optional.items() if value is not None},
        }


def filled(given: Sequence[str]) -> dict[str, Any]:
    """Return the maps of a plan: of each option one entry (``NAME=KEY=VALUE``), or a file of entries (``NAME=FILE``).

    Raises PlanError for another form, and for a map that has both.
    """
    maps: dict[str, Any] = {}
    for option in given:
        name, _, text = option.partition("=")
        if Path(text).suffix in contents.FILE_KINDS:
            entry: Any = text
        else:
            key, value = _entry(option, text)
            entry = [{"key": key, "value": value}]
        if name in maps and not (isinstance(entry, list) and isinstance(maps[name], list)):
            raise PlanError(f"--map {option}: map {name} is given twice", remedy="one file, or entries")
        maps[name] = maps[name] + entry if name in maps else entry
    return maps


def _entry(option: str, text: str) -> tuple[Any, Any]:
    """Return key and value; a key in brackets may contain a ``=``."""
    key: Any
    if text[:1] in ("{", "["):
        try:
            key, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"--map {option}: the key is not JSON: {error}") from None
        value = text[end:]
    else:
        key, _, value = text.partition("=")
        value = f"={value}" if _ else ""
    if not key or not value.startswith("="):
        raise PlanError(f"--map {option}: this is neither NAME=KEY=VALUE nor NAME=FILE", remedy=".csv or .json")
    return key, _value("--map", option, value[1:])


def _pair(name: str, option: str) -> tuple[str, Any]:
    variable, _, value = option.partition("=")
    if not variable or not value:
        raise PlanError(f"{name} {option}: this is not NAME=VALUE")
    return variable, _value(name, option, value)


def _value(name: str, option: str, text: str) -> Any:
    """Return the value as a plan would have it."""
    try:
        return yaml_file.read_yaml(text)
    except yaml.YAMLError:
        raise PlanError(f"{name} {option}: {text} is no value of a plan") from None


user_program_options = options_as(
    "programs",
    ProgramSettings,
    click.option("--action", default="tx", show_default=True, help="Action of your own programs."),
    click.option("--section", help="ELF section of your own programs.  [default: xdp]"),
    click.option("--function", help="Function of your own programs, where their section has several."),
    click.option("--cflags", metavar="FLAGS", help='Flags for the compiler of your own programs: "-Iinclude -DN=4".'),
    click.option("--rodata", multiple=True, metavar="NAME=VALUE", help="A constant of your own programs."),
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="NAME=KEY=VALUE|FILE",
        help="An entry of a map of your own programs, or a .csv or .json file of entries: allowed=50220=1.",
    ),
    click.option("--setup", multiple=True, metavar="COMMAND", help="A command on the DUT before each trial."),
    click.option("--frames", metavar="PCAP", help="Frames to send, instead of generated ones."),
)


def _program_options(command: Any) -> Any:
    options = (
        click.argument("what", metavar="WORKLOAD|FILE"),
        click.option("-n", "--accesses", type=int, help="N, per packet.  [default: 0]"),
        click.option("--op", type=click.Choice(OPS)),
        click.option("--form", type=click.Choice(FORMS)),
        click.option("--map-type", type=click.Choice(MAP_TYPES), help="For lookup."),
        click.option("--working-set", "working_set_bytes", type=int, metavar="BYTES"),
        click.option("--entries", type=int, help="For lookup: of its map."),
        click.option("--hit", type=int, metavar="%", help="For lookup: keys that have an entry.  [default: 100]"),
        click.option("--section", help="ELF section of your own file.  [default: xdp]"),
        click.option("--function", help="Function of your own file, where the section has several."),
        click.option("--cflags", metavar="FLAGS", help='Flags for your own file: "-Iinclude -DN=4".'),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _chosen(what: str, **fields: Any) -> Program:
    return program.program(what, **{name: value for name, value in fields.items() if value is not None})


@click.group()
def programs() -> None:
    """XDP programs with exactly N memory accesses: array, packet, chase, lookup; or a C file of your own."""


@programs.command()
@_program_options
def build(what: str, **fields: Any) -> None:
    """Compile WORKLOAD or FILE and print the path of the object."""
    chosen = _chosen(what, **fields)
    tell(str(chosen.built.object))


@programs.command()
@_program_options
@click.option("--disassembly", is_flag=True, help="The object's BPF instructions instead of the C text.")
def show(what: str, disassembly: bool, **fields: Any) -> None:
    """Print the C text of WORKLOAD or FILE."""
    chosen = _chosen(what, **fields)
    echo(chosen.disassembly if disassembly else chosen.source)


@programs.command("prove")
@_program_options
@AS_JSON
@in_lab
def prove_command(lab_name: str | None, /, what: str, as_json: bool, **fields: Any) -> None:
    """Prove WORKLOAD's N: by bytecode, by machine code, and, with --lab, by a run that counts in that lab's kernel."""
    chosen = _chosen(what, **fields)
    answer: dict[str, Any] = {"program": chosen.name}
    proved: proof.Proof | None = None
    if lab_name is None:
        if isinstance(chosen.spec, ProgramSpec):
            proved = proof.prove(chosen.built, user=True)
    else:
        with labs.use_lab(lab_name) as lab:
            folder = f"{lab.work_dir(lab.dut)}/programs/{chosen.built.hash}"
            xdpload = native.build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
            answer["load"] = asdict(onhost.load_report(lab.dut, xdpload, chosen.built, folder, lab.dut_interface))
            if isinstance(chosen.spec, ProgramSpec):
                proved = proof.prove(chosen.built, lab.dut, xdpload=xdpload, folder=folder, user=True)
    if as_json:
        print_json(answer | ({} if proved is None else {"proof": asdict(proved)}))
        return
    tell(repr(chosen))
    for name, value in answer.get("load", {}).items():
        tell(f"  {name}: {value}")
    if proved is not None:
        tell(f"  {proved}")
