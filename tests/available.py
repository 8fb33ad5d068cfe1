"""What tests with guests need of a machine: they are skipped where it is not there."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from xdplab import labs
from xdplab.errors import LabError
from xdplab.labs.vm import kernels, qemu


@contextmanager
def or_skip(what: str = "guest") -> Iterator[None]:
    """Skip the test, or those of the fixture, if the block cannot have ``what``."""
    try:
        yield
    except LabError as error:
        pytest.skip(f"no {what} is available here: {error}")


def guest_kernel(name: str = "6.1") -> kernels.Kernel:
    """Return a kernel that guests boot, or skip without it or QEMU."""
    with or_skip():
        qemu.require_tools()
        return kernels.kernel(name)


def unused(*names: str) -> None:
    """Skip if one of these labs is up: the test would disturb the work of others, or they it."""
    if taken := {row["lab"] for row in labs.status()}.intersection(names):
        pytest.skip(f"{', '.join(taken)} is in use")
