"""The table of docs/results/reliability.md: each promise, the test that attacks it, how often it held.

A row keeps its last result and date until it is run again, so the table can be filled in parts.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/results/reliability.md"
BEGIN, END = "<!-- make faults -->", "<!-- end -->"
HEAD = "| promise | test | broken | held | lost | left | bad output | recovered in s: median (most) | last |"
CAMPAIGN = "`make faults`: "
_NONE_COLLECTED = 5


@dataclass(frozen=True)
class Row:
    """A promise's row in the table; a cell is empty if it does not apply or was not tried yet."""

    promise: str
    test: str
    broken: str = ""
    held: str = ""
    lost: str = ""
    left: str = ""
    words: str = ""
    recovered: str = ""
    last: str = ""

    @property
    def key(self) -> str:
        """Return the constant part of a promise: a fault's promise contains its number of classes, which may change."""
        return self.test if self.test.startswith(CAMPAIGN) else self.promise

    @property
    def line(self) -> str:
        return "| " + " | ".join(astuple(self)) + " |"

    @property
    def kept(self) -> bool:
        return self.broken == self.held and not {self.lost, self.left, self.words} - {"", "0"}

    @property
    def files(self) -> list[str]:
        """The test files that attack this promise."""
        return re.findall(r"`(tests/[\w/]*test_\w+\.py)`", self.test)

    @property
    def nightly(self) -> bool:
        """Whether the promise's tests take too long for every check."""
        return "(nightly)" in self.test


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def read_rows() -> list[Row]:
    """Return the page's rows."""
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [Row(*line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines if "---" not in line]


def lines_of(rows: Iterable[Row]) -> list[str]:
    return [HEAD, "|" + " --- |" * HEAD.count(" |"), *(row.line for row in rows)]


def merged(old: Sequence[Row], new: Iterable[Row]) -> list[Row]:
    """Return the old rows, replaced by new ones of the same promise; rows of new promises come last."""
    found = {row.key: row for row in old}
    found |= {row.key: row for row in new}
    return list(found.values())


def write_page(new: Iterable[Row]) -> None:
    """Put rows into the page's table; rows that were not tried now stay."""
    put(BEGIN, lines_of(merged(read_rows(), new)))


def put(begin: str, lines: Iterable[str]) -> None:
    """Replace the text between a mark of the page and its end mark."""
    before, _, rest = PAGE.read_text().partition(begin)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + begin, *lines, END]) + after)


def tested(row: Row) -> Row:
    """Run a promise's tests and return its new row; the old row if none of them can run on this machine."""
    with tempfile.TemporaryDirectory(prefix="xdplab-promise-") as name:
        reports = [_report(row, lab, Path(name) / f"{lab}.xml") for lab in (True, False)]
    cases = [case for report in reports for case in report if case.find("skipped") is None]
    if not cases:
        return row
    broken = sum(_times(case) for case in cases)
    held = sum(_times(case) for case in cases if case.find("failure") is None and case.find("error") is None)
    return replace(row, broken=str(broken), held=str(held), last=today())


def _times(case: ElementTree.Element) -> int:
    """Return how often a test attacked its promise: once, unless the test says how often."""
    said = [one.get("value") for one in case.iter("property") if one.get("name") == "broken"]
    return int(said[0] or 1) if said else 1


def _report(row: Row, lab: bool, report: Path) -> list[ElementTree.Element]:
    """Run the tests with real traffic in their own network namespace, as shell/check.sh does, or the other tests."""
    marked = f"{'' if lab else 'not '}lab{'' if row.nightly else ' and not nightly'}"
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    argv = [*pytest, "-m", marked, f"--junitxml={report}", *row.files]
    if lab and not os.geteuid() and shutil.which("unshare"):
        argv = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *argv]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, _NONE_COLLECTED):
        print(done.stdout[-3000:], flush=True)  # noqa: T201
    return list(ElementTree.parse(report).iter("testcase"))
