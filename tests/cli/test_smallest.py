"""`--smallest` reduces only what the command line does not set; its other options stay."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from xdplab.cli import cli, conduct, study_verifier


@pytest.mark.parametrize(
    ("module", "words", "expected"),
    [
        (
            study_verifier,
            ["verifier", "--repetitions", "2", "--testbed"],
            {"repetitions": 2, "testbed": True, "loads": 5},
        ),
        (study_verifier, ["verifier"], {"repetitions": 1, "testbed": False, "loads": 5}),
        (conduct, ["execution", "--repetitions", "4"], {"repetitions": 4, "calls": 20, "smallest": True}),
        (conduct, ["loading", "--repetitions", "30"], {"loads": 30, "compiles": 1, "smallest": True}),
    ],
)
def test_what_was_said_stands_beside_smallest(
    monkeypatch: pytest.MonkeyPatch, module: Any, words: list[str], expected: dict[str, object]
) -> None:
    asked: list[Any] = []

    def conduct(kind: object, request: Any, *options: object, **more: object) -> int:
        asked.append(request())
        return 0

    monkeypatch.setattr(module, "conduct", conduct)
    done = CliRunner().invoke(cli, ["study", *words, "--smallest"])
    assert done.exception is None or isinstance(done.exception, SystemExit | click.exceptions.Exit), done.output
    (request,) = asked
    assert {name: getattr(request, name) for name in expected} == expected
