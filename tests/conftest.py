"""How `pytest -n N` shares the tests out: each file goes to one process, for the sake of its fixtures.

Files whose tests boot guests, or switch what the whole machine has once, go to one process together.
"""

import re
import signal
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE = re.compile(r"pytest\.mark\.(guest|machine)\b")

# A shell without job control has what it starts in the background ignore Ctrl-C, and that is inherited: the programs
# under test must hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadScopeScheduling):
    """xdist's own `loadgroup` reads the groups of marks, but finds none under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "machine" if ALONE.search(Path(self.config.rootpath, file).read_text()) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return ByFile(config, log)
