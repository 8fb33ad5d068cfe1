"""How `pytest -n N` distributes the tests: each file goes to one process, so that its fixtures are made once.

All files whose tests boot guests or change a machine-wide setting go to the same process.
"""

import re
import signal
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE = re.compile(r"pytest\.mark\.(guest|machine)\b")

# A shell without job control makes its background processes ignore Ctrl-C, and children inherit that; but the programs
# under test must receive it.
signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadScopeScheduling):
    """xdist's own `loadgroup` reads the groups from marks, but finds none under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "machine" if ALONE.search(Path(self.config.rootpath, file).read_text()) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return ByFile(config, log)
