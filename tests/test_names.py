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
