"""An option that takes one value and is given twice is refused: before, the last one won silently."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from xdplab.cli import cli


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("runs --format csv --format json", "--format"),
        ("--lab netns:a --lab netns:b runs", "--lab"),
        ("plan smoke --lab netns:a --lab netns:b", "--lab"),
        ("programs build chase --accesses 1 --accesses 2", "--accesses"),
        ("lab status --lab netns:a --lab netns:b", "--lab"),
        ("study loading --name a --name b", "--name"),
    ],
)
def test_an_option_that_stands_twice_is_refused(line: str, option: str) -> None:
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 2
    assert f"{option} is given 2 times and takes one value" in done.output


def test_an_option_that_takes_several_may_stand_several_times() -> None:
    done = CliRunner().invoke(cli, ["figures", "no-such-run", "--only", "throughput", "--only", "latency"])
    assert "stands" not in done.output
    assert "stands" not in CliRunner().invoke(cli, ["doctor", "--json", "--json", "--help"]).output
