"""C text from the templates in xdp_progs: a BPF program, and its twin for user space."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from xdplab.lazy import lazy
from xdplab.programs.spec import BLOCK, OUT_PORT, WORD_BYTES, ProgramSpec
from xdplab.resources import shipped

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = lazy("jinja2")

USER_FLAGS = ("-O2", "-fPIC", "-shared")
"""Flags that compile the twin: ``cc`` with these, its source, ``-o workload.so``."""


def source(spec: ProgramSpec) -> str:
    """Return the BPF program's C text."""
    return _render("program.bpf.c.j2", spec)


def user_source(spec: ProgramSpec) -> str:
    """Return the C text of the same workload for user space; exports ``xdplab_workload`` and ``xdplab_state_bytes``."""
    return _render("user.c.j2", spec)


def kernel_source(spec: ProgramSpec) -> str:
    """Return the C text of the workload alone, as a kernel of microbench: BPF, a module or user space includes it."""
    return _render("kernel.h.j2", spec)


def hash_bits(entries: int) -> int:
    """Return log2 of the places in the user-space hash table: at least twice the entries."""
    return (2 * entries - 1).bit_length()


def _render(template: str, spec: ProgramSpec) -> str:
    size = spec.working_set_bytes or 0
    return (
        _templates()
        .get_template(template)
        .render(
            spec.canonical(),
            workload=spec.kernel,
            out_port=OUT_PORT if spec.action == "redirect" else None,
            has_state=spec.has_state,
            block=1 if spec.form == "loop" else BLOCK,
            hash_bits=hash_bits(size // WORD_BYTES) if size else None,
            name=spec.name.replace("-", "_"),
            summary=_summary(spec),
        )
    )


def _summary(spec: ProgramSpec) -> str:
    end = "sent back" if spec.action == "tx" else "forwarded"
    if not spec.accesses:
        return f"The baseline: no access; MAC addresses swapped, frame {end}."
    where = f" in {spec.working_set_bytes} bytes" if spec.working_set_bytes else ""
    plural = "es" if spec.accesses > 1 else ""
    return f"{spec.workload}, {spec.op}: {spec.accesses} access{plural} per packet{where}, then the frame is {end}."


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("xdp_progs")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C, not HTML
    )
