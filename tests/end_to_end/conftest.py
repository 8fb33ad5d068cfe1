"""A lab for these tests, and the command line as a user types it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.labs.rack import rack, written
from xdplab import labs
from xdplab.labs import Lab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes namespaces")


def xdplab(
    *argv: str, cwd: Path | None = None, check: bool = True, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the command line; if it fails, show its output."""
    done = forked.xdplab(*argv, cwd=cwd, timeout_s=timeout_s)
    if check and done.returncode:
        pytest.fail(f"xdplab {' '.join(argv)} ended {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


@pytest.fixture(scope="session")
def lab_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a netns lab; with XDPLAB_TEST_INVENTORY set, an inventory that names its hosts as servers."""
    name = f"netns:e2e-{secrets.token_hex(4)}"
    labs.up(name)
    try:
        yield _inventory_of(name, tmp_path_factory.mktemp("rack")) if "XDPLAB_TEST_INVENTORY" in os.environ else name
    finally:
        labs.down(name)


def _inventory_of(name: str, folder: Path) -> str:
    with contextlib.closing(labs.open_lab(name)) as lab:
        return written(rack(lab, folder), folder)


@pytest.fixture
def lab(lab_name: str) -> Iterator[Lab]:
    lab = labs.open_lab(lab_name)
    try:
        yield lab
    finally:
        lab.close()
