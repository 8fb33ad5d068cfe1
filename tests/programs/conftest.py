"""A cache of compiled programs for the whole session, and a place where xdpload runs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from xdplab.hosts.local import LocalHost
from xdplab.resources import shipped


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
    if os.geteuid():
        pytest.skip("needs root: it loads programs into the kernel")
    folder = tmp_path_factory.mktemp("dut")
    subprocess.run(["cp", "-r", shipped("xdpload"), shipped("common"), folder], check=True)
    subprocess.run(["make", "-s", "-B", "-C", folder / "xdpload"], check=True)
    return Dut(LocalHost(), str(folder / "xdpload/xdpload"), str(folder))
