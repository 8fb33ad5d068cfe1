"""YAML from users is read with limits."""

import re
import time
from pathlib import Path

import pytest
import yaml

from xdplab.errors import LabError, PlanError
from xdplab.labs.servers.inventory import load_inventory
from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.yaml_file import read_yaml, yaml_words

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


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *((text, text) for text in ("0000:03:00.0", "0000:3b:00.0", "02:00:00:00:00:01", "1:10", "190:20:30.15")),
        *((text, text) for text in ("010", "2026-11-26", "2026-11-26 10:00:00", "10.0.0.1", "1_0.5", "6.12.1", "1e6")),
        *(("1.5", 1.5), (".5", 0.5), ("-2.", -2.0), ("1.5e-3", 1.5e-3), ("6.12", 6.12), ("1_000", 1000)),
        *(("0x1f", 31), ("off", False), ("yes", True), ("~", None), (".inf", float("inf"))),
    ],
)
def test_numbers_are_those_of_yaml_1_2_and_addresses_are_text(word: str, value: object) -> None:
    assert read_yaml(f"a: {word}") == {"a": value}


@pytest.mark.parametrize("plan", sorted(shipped("plans").glob("*.yaml")), ids=lambda path: path.name)
def test_it_reads_what_yaml_reads(plan: Path) -> None:
    assert read_yaml(plan.read_text()) == yaml.safe_load(plan.read_text())


def test_a_word_that_yaml_reads_as_a_switch_is_refused_with_its_block(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nblocks: [{}, {points: {mode: yes}}]\n")
    with pytest.raises(PlanError, match=r"block 2, points\.mode: .*got true"):
        load_plan(file)


def test_every_wrong_field_of_a_plan_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nrepititions: 3\ntrial: {window_s: -1}\nblocks:\n  - points:\n      mode: [native, natve]\n"
        "      queues: x\n  - points: {program: {fil: x.c}}\n"
    )
    with pytest.raises(PlanError) as refused:
        load_plan(file)
    named = re.findall(r"line (\d+): (?:block \d, )?([\w.]+)", refused.value.message)
    assert named == [
        ("2", "repititions"),
        ("3", "trial.window_s"),
        ("6", "points.mode"),
        ("7", "points.queues"),
        ("8", "points.program.fil"),  # and not its `file`, of which it is the misspelling
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: {b: c\n", "line 2, column 1: .*begun in line 1"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2: .*begun in line 1"),
        ("blocks:\n  - points: {mode: native, mode: generic}\n", "lines 2 and 2"),
    ],
)
def test_what_cannot_be_read_is_told_on_one_line_with_its_place(text: str, place: str) -> None:
    """Others: tests/cli/messages.txt."""
    with pytest.raises(yaml.YAMLError) as refused:
        read_yaml(text)
    assert re.search(place, yaml_words(refused.value))
