"""What a claim may say: a sentence, one of `FORMS` with its metric, which points, and the bound that it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from xdplab.errors import PlanError
from xdplab.plan.model import share
from xdplab.yaml_errors import complaint
from xdplab.yaml_file import composed, read_yaml, yaml_words


@dataclass(frozen=True)
class ClaimForm:
    """A form of claim: the keys that it needs, and those of which it needs one or more, its bounds. ``logs``: it is
    about quotients of values, whose logarithms are symmetric."""

    needs: tuple[str, ...]
    bounds: tuple[str, ...] = ()
    logs: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.needs, *self.bounds)


_SIDES, _ENDS = ("of", "to"), ("at_least", "at_most")
FORMS: Mapping[str, ClaimForm] = {
    "ratio": ClaimForm(_SIDES, _ENDS, logs=True),
    "difference": ClaimForm(_SIDES, _ENDS),
    "equal": ClaimForm((*_SIDES, "within"), logs=True),
    "order": ClaimForm(("falling",), logs=True),
    "linear": ClaimForm(("within",)),
    "count": ClaimForm((), ("exactly", *_ENDS)),
}
"""`xdplab.claims.estimates` has how each is estimated, and docs/use/claims.md what it promises."""

Cell = bool | int | float | str
Conditions = Annotated[dict[str, Cell], Field(min_length=1)]
Metric = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Claim(BaseModel):
    """A claim without its sentence. ``printed``: the value that somebody published, as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ratio: Metric | None = None
    difference: Metric | None = None
    equal: Metric | None = None
    order: Metric | None = None
    linear: Metric | None = None
    count: Metric | None = None
    where: dict[str, Cell] = {}
    of: Conditions | None = None
    to: Conditions | None = None
    falling: Annotated[list[Conditions], Field(min_length=2)] | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    exactly: Number | None = None
    within: Annotated[float, BeforeValidator(share), Field(ge=0, lt=1)] | None = None  # exact counts may be equal
    printed: Annotated[str, BeforeValidator(lambda value: f"{value}" if isinstance(value, int | float) else value)] = ""

    @model_validator(mode="after")
    def _of_one_form(self) -> Claim:
        forms = [name for name in FORMS if getattr(self, name) is not None]
        if len(forms) != 1:
            raise ValueError(f"a claim is one of {', '.join(FORMS)}, and this is {' and '.join(forms) or 'none'}")
        form = FORMS[forms[0]]
        given = [name for name in dict.fromkeys(key for one in FORMS.values() for key in one.keys) if self._has(name)]
        if missing := [name for name in form.needs if name not in given]:
            raise ValueError(f"{forms[0]} needs {' and '.join(missing)}")
        if form.bounds and not set(form.bounds) & set(given):
            raise ValueError(f"{forms[0]} needs {' or '.join(form.bounds)}")
        if odd := [name for name in given if name not in form.keys]:
            raise ValueError(f"{forms[0]} has no {' and no '.join(odd)}")
        if self.exactly is not None and len(set(_ENDS) & set(given)):
            raise ValueError("exactly leaves no room for at_least or at_most")
        if self.bounds[0] > self.bounds[1]:
            raise ValueError(f"at_least: {self.at_least:g} is more than at_most: {self.at_most:g}")
        return self

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def form(self) -> str:
        return next(name for name in FORMS if self._has(name))

    @property
    def metric(self) -> str:
        return str(getattr(self, self.form))

    @property
    def sides(self) -> list[dict[str, Cell]]:
        """The conditions of the points that are compared with each other, in their order."""
        return self.falling or [side for side in (self.of, self.to) if side is not None]

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values the claim says that the truth is."""
        if self.within is not None:
            return (1 / (1 + self.within), 1 + self.within) if FORMS[self.form].logs else (-self.within, self.within)
        if self.exactly is not None:
            return self.exactly, self.exactly
        least = 1.0 if self.form == "order" else self.at_least
        return -inf if least is None else least, inf if self.at_most is None else self.at_most

    @property
    def promise(self) -> str:
        """The bound in words."""
        if self.within is not None:
            return f"within {self.within:.3g}"
        words = {"at_least": "at least", "at_most": "at most", "exactly": "exactly"}
        ends = [f"{word} {getattr(self, name):,.10g}" for name, word in words.items() if self._has(name)]
        return " and ".join(ends) or "each at least the next"


@dataclass(frozen=True)
class Sentence:
    """A claim with its ``text``, and its place in its file."""

    text: str
    claim: Claim
    place: int


def sentence_of(given: Mapping[str, Any], place: int = 0) -> Sentence:
    """Return the claim that one entry of a list is: its sentence, and what that means. Raises ValueError."""
    if len(given) != 1 or not isinstance(meaning := next(iter(given.values())), dict):
        raise ValueError("a claim is a sentence, a colon, and what it means: {ratio: forwarded_pps, …}")
    try:
        return Sentence(str(next(iter(given))), Claim.model_validate(meaning), place)
    except ValidationError as error:
        raise ValueError(complaint(error, "a claim", {"a claim": Claim})) from None


def sentences(given: list[dict[str, Any]]) -> list[Sentence]:
    """Return the claims of a list that was checked."""
    return [sentence_of(one, place) for place, one in enumerate(given)]


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    sentence_of(given)
    return given


class ClaimsFile(BaseModel):
    """A file beside a plan; its ``claims`` are those of a plan."""

    model_config = ConfigDict(extra="forbid")

    claims: Annotated[list[Annotated[dict[str, Any], AfterValidator(_checked)]], Field(min_length=1)]


def read_claims(path: Path) -> tuple[list[Sentence], str]:
    """Return the claims of a file, and its text. Raises PlanError with each that is wrong, and its line."""
    try:
        text = path.read_text()
        given = read_yaml(text)
        return sentences(ClaimsFile.model_validate(given).claims), text
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", remedy="name a file that begins with `claims:`") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not YAML: {yaml_words(error)}") from None
    except ValidationError as error:
        wrong = complaint(error, "a file of claims", {"a file of claims": ClaimsFile}, composed(text))
        raise PlanError(f"{path}: {wrong}", remedy="docs/use/claims.md has the forms of claims") from None
