# SPDX-License-Identifier: Apache-2.0
import shutil
from collections.abc import Iterator

import pytest

from xdplab.labs.base import OWN_KERNEL
from xdplab.labs.vm import kernels


@pytest.fixture
def _own_kernels_go() -> Iterator[None]:
    """Remove the kernels of one's own that a test has taken into the cache."""
    before = {kernel.folder for kernel in kernels.cached()}
    yield
    for kernel in kernels.cached():
        if kernel.name.startswith(OWN_KERNEL) and kernel.folder not in before:
            shutil.rmtree(kernel.folder)
