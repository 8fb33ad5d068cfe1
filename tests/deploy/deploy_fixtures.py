"""The veth lab, compiled tools and programs, for tests/deploy and tests/afxdp_user."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once
from veth_pair import VethLab

from xdplab.deploy.native import build_workload
from xdplab.hosts.local import LocalHost

DROP_PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int drop(struct xdp_md *ctx) { return XDP_DROP; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""

SWAP_WORKLOAD = """
#include <string.h>
const unsigned long xdplab_state_bytes = 16;
unsigned long xdplab_workload(void *state, unsigned char *data, unsigned int length)
{
    unsigned char mac[6];
    memcpy(mac, data, 6);
    memcpy(data, data + 6, 6);
    memcpy(data + 6, mac, 6);
    if (*(char *)state && length >= 58)
        memcpy(data + 42, state, 16);
    return length;
}
"""


@pytest.fixture
def lab() -> Iterator[VethLab]:
    lab = VethLab(f"xdt{os.getpid()}")
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The build cache on the host, for this test session."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def xdpload() -> str:
    return build_once("xdpload")


@pytest.fixture(scope="session")
def afxdp_user() -> str:
    return build_once("afxdp_user")


@pytest.fixture(scope="session")
def xdpgen() -> str:
    return build_once("xdpgen")


@pytest.fixture(scope="session")
def swap_workload(cache: str) -> str:
    """A workload that swaps the MACs and, if it has a state, writes the state's 16 bytes into the payload."""
    return build_workload(LocalHost(), SWAP_WORKLOAD, cache)


@pytest.fixture(scope="session")
def drop_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled program that drops everything."""
    return bpf_object(tmp_path_factory.mktemp("drop"), DROP_PROGRAM, name="drop")
