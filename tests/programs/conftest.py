"""A cache of compiled programs for the whole session, and a place where xdpload runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.compiled import made, tool_source

from xdplab.hosts.local import LocalHost


@dataclass(frozen=True)
class Dut:
    """This machine as a host: its xdpload, and a folder for the files."""

    host: LocalHost
    xdpload: str
    folder: str


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def dut(tmp_path_factory: pytest.TempPathFactory) -> Dut:
    folder = tmp_path_factory.mktemp("dut")
    return Dut(LocalHost(), str(made(tool_source("xdpload", folder))), str(folder))
