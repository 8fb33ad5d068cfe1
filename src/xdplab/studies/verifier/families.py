"""Programs that grow: C text from the templates in `programs/`, by one size N and a few options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import PlanError
from xdplab.lazy import lazy

if TYPE_CHECKING:
    import jinja2
    from jinja2 import sandbox
else:
    jinja2, sandbox = lazy("jinja2"), lazy("jinja2.sandbox")

PROGRAMS = Path(__file__).parent / "programs"

MOST_N = 5000
"""Largest size: from 8,192 pending branches on, some kernels fail in the verifier instead of refusing the program."""


@dataclass(frozen=True)
class ProgramFamily:
    """A template, the meaning of its N, and its options with their values, the default first.

    ``usual``: a request measures it unless it names other families.
    """

    name: str
    n_words: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    usual: bool = True


FAMILIES: dict[str, ProgramFamily] = {
    family.name: family
    for family in (
        ProgramFamily(
            "double_strcmp",
            "loop iterations",
            {"form": ("rolled", "unrolled"), "exit": ("<", "!="), "maps": ("btf", "legacy")},
        ),
        ProgramFamily(
            "strcmp_return", "loop iterations", {"form": ("rolled", "unrolled"), "exit": ("<", "!=")}, usual=False
        ),
        ProgramFamily("branches", "branches"),
        ProgramFamily("pruning", "branches", constants={"scalars": 4}),
    )
}


@dataclass(frozen=True)
class Member:
    """One program of a family: ``options`` as (name, value) pairs; other options have their default.

    ``template``: the text of a user's own family, which has no options.
    """

    family: str
    n: int
    options: tuple[tuple[str, str], ...] = ()
    template: str | None = field(default=None, repr=False)

    @property
    def chosen(self) -> dict[str, str]:
        """Every option of the family with its value. Raises PlanError for an unknown family, option or value."""
        if self.template is None and self.family not in FAMILIES:
            raise PlanError(f"no family {self.family!r}", remedy=f"families are {', '.join(FAMILIES)}")
        options = FAMILIES[self.family].options if self.template is None else {}
        given = dict(self.options)
        for name, value in given.items():
            if value not in options.get(name, ()):
                raise PlanError(
                    f"{self.family}: {name}={value} is not one of its options", remedy=f"it takes {dict(options)}"
                )
        return {name: given.get(name, values[0]) for name, values in options.items()}

    @property
    def label(self) -> str:
        """``double_strcmp 100 rolled <``."""
        return " ".join((self.family, str(self.n), *self.chosen.values()))


def source(member: Member) -> str:
    """Return the C text of one member. Raises PlanError for options it does not have."""
    values = member.chosen | {"n": member.n}
    if member.template is not None:
        return _rendered(member, values)
    constants = FAMILIES[member.family].constants
    return _templates(jinja2.Environment).get_template(f"{member.family}.bpf.c.j2").render(values | dict(constants))


def _rendered(member: Member, values: Mapping[str, str | int]) -> str:
    try:
        return _templates(sandbox.SandboxedEnvironment).from_string(member.template or "").render(values)
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise PlanError(
            f"the template of {member.family}{line}: {error}", remedy="it is Jinja2 text, with {{ n }} for the size"
        ) from error


def is_file(family: str) -> bool:
    """Tell whether a family is given as the file of a template: names contain neither dot nor slash."""
    return "/" in family or "." in family


def own_members(paths: Sequence[Path], sizes: Sequence[int]) -> list[Member]:
    """Return the programs of a user's templates, each a family named after its file. Raises PlanError if unusable."""
    members: list[Member] = []
    for path in paths:
        name = path.name.partition(".")[0]
        if name in FAMILIES or name in {member.family for member in members}:
            whose = "of the study's own" if name in FAMILIES else "of another file"
            raise PlanError(f"--family {path}: {name} is a family {whose}", remedy="give the file another name")
        if not sizes:
            raise PlanError(f"--family {path}: your template has no sizes", remedy="give them, such as --size 10")
        text = _text_of(path)
        members += [Member(name, n, template=text) for n in dict.fromkeys(sizes)]
    return members


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"--family {path}: {getattr(error, 'strerror', None) or 'not text'}") from error


@cache
def _templates(kind: type[jinja2.Environment]) -> jinja2.Environment:
    """Return the environment of the study's templates; a sandbox for those of users, which may come from anyone."""
    return kind(
        loader=jinja2.FileSystemLoader(PROGRAMS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C, not HTML
    )
