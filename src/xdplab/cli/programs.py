"""`programs`: write, show and prove the C of one program; only the proof in a lab's kernel needs a lab."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, echo, in_lab, print_json, tell
from xdplab.lazy import lazy
from xdplab.programs.spec import FORMS, MAP_TYPES, OPS, ProgramSpec

if TYPE_CHECKING:
    from xdplab.deploy import native
    from xdplab.programs import onhost, program, proof
    from xdplab.programs.program import Program
    from xdplab.studies.traffic import runs
else:
    native, runs = lazy("xdplab.deploy.native"), lazy("xdplab.studies.traffic.runs")
    onhost, proof = lazy("xdplab.programs.onhost"), lazy("xdplab.programs.proof")
    program = lazy("xdplab.programs.program")


def _program_options(command: Any) -> Any:
    options = (
        click.argument("what", metavar="WORKLOAD|FILE"),
        click.option("-n", "--accesses", type=int, help="N, per packet.  [default: 0]"),
        click.option("--op", type=click.Choice(OPS)),
        click.option("--form", type=click.Choice(FORMS)),
        click.option("--map-type", type=click.Choice(MAP_TYPES), help="For lookup."),
        click.option("--working-set", "working_set_bytes", type=int, metavar="BYTES"),
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
    if lab_name is None:
        if isinstance(chosen.spec, ProgramSpec):
            answer["proof"] = asdict(proof.prove(chosen.built, user=True))
    else:
        with runs.lab_for(lab_name) as lab:
            folder = f"{lab.work_dir(lab.dut)}/programs/{chosen.built.hash}"
            xdpload = native.build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
            answer["load"] = asdict(onhost.load_report(lab.dut, xdpload, chosen.built, folder))
            if isinstance(chosen.spec, ProgramSpec):
                answer["proof"] = asdict(proof.prove(chosen.built, lab.dut, xdpload=xdpload, folder=folder, user=True))
    if as_json:
        print_json(answer)
        return
    tell(repr(chosen))
    for name, value in {**answer.get("load", {}), **answer.get("proof", {})}.items():
        tell(f"  {name}: {value}")
