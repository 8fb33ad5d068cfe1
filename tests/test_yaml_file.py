"""What people write in YAML is read with a bound."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from xdplab.errors import LabError, PlanError
from xdplab.labs.inventory import load_inventory
from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.yaml_file import read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", [BOMB, "&a [*a]", "[" * 100_000], ids=["billions", "itself", "deep"])
@pytest.mark.parametrize("load", [load_plan, load_inventory])
def test_a_file_made_to_hurt_is_refused_at_once(tmp_path: Path, load: object, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    began = time.monotonic()
    with pytest.raises((PlanError, LabError), match="YAML"):
        load(file)  # type: ignore[operator]
    assert time.monotonic() - began < 30


def test_aliases_that_people_use_are_read() -> None:
    assert read_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize("plan", sorted(shipped("plans").glob("*.yaml")), ids=lambda path: path.name)
def test_it_reads_what_yaml_reads(plan: Path) -> None:
    assert read_yaml(plan.read_text()) == yaml.safe_load(plan.read_text())
