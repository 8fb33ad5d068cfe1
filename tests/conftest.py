"""How `pytest -n N` distributes the tests: a file goes to one process, so that its fixtures are made once.

All files whose tests boot guests or change a machine-wide setting go to the same process. What takes longest begins
first, so that no process is left with it at the end.
"""

import functools
import gc
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE = re.compile(r"pytest\.mark\.(guest|machine)\b")

# A shell without job control makes its background processes ignore Ctrl-C, and children inherit that; but the programs
# under test must receive it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# An end by SIGTERM, too, leaves no fixture's lab, setting or process.
signal.signal(signal.SIGTERM, signal.default_int_handler)

# With it jsonschema, which nbformat brings, makes grammars of addresses: 1.5 s, and no schema here needs them.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

gc.disable()  # what is imported and collected stays; to look through it again and again took a tenth of the CPU time


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.enable()
    gc.freeze()


LONGEST = (
    *("machine", "tests/programs/test_programs_kernel.py", "tests/native/test_warnings.py"),
    *("tests/figures/test_catalogue.py", "tests/figures/test_drawing.py", "tests/programs/test_programs_bytecode.py"),
    *("tests/analysis/test_compare.py", "tests/thesis/test_thesis_rules.py", "tests/moongen_lua/test_moongen_lua.py"),
    *("tests/test_face.py", "tests/run/test_derived_tables.py", "tests/studies/test_damaged_runs.py"),
    *("tests/analysis/test_findings.py", "tests/cli/test_startup.py", "tests/test_closure.py"),
    *("tests/studies/test_maker.py", "tests/studies/test_kept.py", "tests/studies/test_anonymous.py"),
    *("tests/native/counted/test_instruction_counts.py", "tests/claims/test_reproduced.py"),
    *("tests/thesis/test_published.py", "tests/hosts/test_host_contract.py", "tests/studies/test_report.py"),
    *("tests/studies/test_frame.py", "tests/labs/test_lab_commands.py"),
    # those of `make test-all`
    *("tests/compilers/test_compilers.py", "tests/faults/test_replayed_faults.py", "tests/thesis/test_truth.py"),
    *("tests/studies/verifier/test_verifier_command.py", "tests/plan/test_factors.py", "tests/labs/test_inventory.py"),
    *("tests/notebooks/test_notebooks.py", "tests/test_site.py", "tests/deploy/test_deploy_watchdog.py"),
    *("tests/studies/jit/test_jitbench.py", "tests/labs/test_keeper_socket.py", "tests/figures/test_size.py"),
    "tests/studies/verifier/test_bpfverify_corrupted.py",
)
"""8 s of CPU time each, or more; by their number of tests, as xdist would order them, some would come last."""

BY_TEST = "tests/oracle/test_oracle.py"
"""Its tests share nothing: each may go to another process."""


def scope_of(nodeid: str, root: Path) -> str:
    file = nodeid.split("::", 1)[0]
    if file == BY_TEST:
        return nodeid
    return "machine" if _is_alone(root / file) else file


@functools.cache
def _is_alone(file: Path) -> bool:
    return bool(ALONE.search(file.read_text()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the tests with traffic, or with guests, need not import the files that have none: it takes 8 s."""
    wanted = re.match(r"(lab|guest) and ", config.option.markexpr or "")
    if wanted is None or not collection_path.match("test_*.py"):
        return None
    return None if f"mark.{wanted[1]}" in collection_path.read_text() else True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The mark alone says it: no test or fixture asks for the user a second time."""
    if os.geteuid() != 0 and item.get_closest_marker("root"):
        pytest.skip("needs root")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        ranks = {name: rank for rank, name in enumerate(LONGEST)}
        scopes = {item.nodeid: scope_of(item.nodeid, config.rootpath) for item in items}
        items.sort(key=lambda item: ranks.get(scopes[item.nodeid], len(ranks)))


class ByFile(LoadScopeScheduling):
    """xdist's own `loadgroup` reads the groups from marks, but finds none under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self.config.rootpath)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return ByFile(config, log)
