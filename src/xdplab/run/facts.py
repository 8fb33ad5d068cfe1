"""The facts that a trial records besides its raw files: a dataclass of its study, and a JSON object in the journal.

Every field is None by default: a failed trial has fewer facts.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xdplab.errors import ResultsError
from xdplab.run.state import Attempt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

F = TypeVar("F")


def as_json(facts: DataclassInstance | dict[str, Any]) -> dict[str, Any]:
    """Return the known fields as plain values, for the journal."""
    fields = facts if isinstance(facts, dict) else asdict(facts)
    return {name: value for name, value in fields.items() if value is not None}


def facts_of(kind: type[F], attempt: Attempt) -> F:
    """Return an attempt's facts as ``kind``.

    Raises ResultsError naming a field that ``kind`` lacks, or whose value has the wrong type: the journal was edited.
    """
    from pydantic import ValidationError  # imported here, because `status` reads journals too, but no facts

    facts = {name: value for name, value in attempt.facts.items() if value not in (None, {})}
    for name in facts.keys() - {field.name for field in fields(cast(Any, kind))}:
        raise _edited(attempt, name, "there is no such fact")
    try:
        return cast(F, _adapter(cast(Any, kind)).validate_python(facts))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _edited(attempt, ".".join(map(str, first["loc"])), first["msg"]) from error


def _edited(attempt: Attempt, name: str, why: str) -> ResultsError:
    return ResultsError(
        f"{attempt.trial_id}, attempt {attempt.attempt}: facts.{name} in the journal: {why}",
        remedy="was the journal edited? a run of another version needs that version",
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
