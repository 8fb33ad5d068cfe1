# SPDX-License-Identifier: Apache-2.0
"""One meaning per name, as CONTRIBUTING promises: a search for a class finds only one."""

import ast
from collections import defaultdict
from pathlib import Path

import xdplab


def test_a_class_name_is_used_once() -> None:
    """The notebook's own classes carry the public name of what they show: Run is a run, Program a program."""
    places = defaultdict(list)
    package = Path(xdplab.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(package).as_posix())
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


VAGUE = {"asked", "found", "known", "said", "there", "told"}


def test_no_variable_or_function_has_a_name_that_says_nothing() -> None:
    """A name is the noun of the thing, a function is a verb; fields may be columns and keys, whose names stay."""
    package = Path(xdplab.__file__).parent
    vague = []
    for path in package.rglob("*.py"):
        fields = set()
        for node in ast.walk(ast.parse(path.read_text())):  # a class comes before what is in it
            if isinstance(node, ast.ClassDef):
                fields |= {id(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
            name = node.id if stored else node.name if isinstance(node, ast.FunctionDef) else ""
            if name.strip("_") in VAGUE:
                vague.append(f"{path.relative_to(package)}:{node.lineno} {name}")
    assert vague == []
