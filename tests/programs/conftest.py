"""A cache of compiled programs for the whole session, and a place where xdpload runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.compiled import build_once

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
    return Dut(LocalHost(), build_once("xdpload"), str(tmp_path_factory.mktemp("dut")))
