"""A local host and one behind SSH (in a lab for these tests), for tests of their common behaviour."""

import os
from collections.abc import Iterator

import pytest

from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab, use_lab


@pytest.fixture(scope="session")
def ssh_lab() -> Iterator[Lab]:
    with use_lab(f"netns:hosts-{os.getpid()}") as lab:
        yield lab


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.root)])
def host(request: pytest.FixtureRequest) -> Host:
    if request.param == "local":
        return LocalHost()
    lab: Lab = request.getfixturevalue("ssh_lab")
    return lab.dut
