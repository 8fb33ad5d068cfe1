"""The audit's first page and the table of conclusions in docs/results/thesis.md, as made by the commands.

``python -m tests.thesis.doc_tables DATA… --from RUN`` (``make thesis DATA=… RUN=…``) writes them there again. DATA are
the arguments of `xdplab import thesis`, RUN is your own run. A test makes those of the published data and compares.
"""

import argparse
import tempfile
from collections.abc import Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.trials import trials_table
from xdplab.thesis import kind
from xdplab.thesis.album import own_run
from xdplab.thesis.conclusions import conclusions, corrected_reading, in_markdown, own_reading, published_reading
from xdplab.thesis.imported import import_thesis, imported_trials
from xdplab.thesis.views import source_of

PAGE = Path(__file__).parents[2] / "docs/results/thesis.md"
BEGINS = {"audit": "> ", "conclusions": "| statement | where |"}
"""How the first line of each block begins; an empty line ends it."""


def block(name: str) -> list[str]:
    """Return the lines of a block of the page."""
    lines = dropwhile(lambda line: not line.startswith(BEGINS[name]), PAGE.read_text().splitlines())
    return list(takewhile(bool, lines))


def quoted(summary: Sequence[str]) -> list[str]:
    """Return the audit's first page from the docs page."""
    return [f"> {line}".rstrip() for line in "\n".join(summary).strip().splitlines()]


def made(data: Sequence[Path], own: Path, folder: Path) -> dict[str, list[str]]:
    """Return both blocks, made from ``data`` and the user's own run; the import goes to ``folder``."""
    run = import_thesis(data, folder).run
    trials = imported_trials(run)
    source = source_of(trials)
    mine = own_run(own.name, trials_table(RunDirectory.open(own)))
    table = conclusions([published_reading(source), corrected_reading(source), own_reading(mine)])
    return {"audit": quoted(kind.audit(run.name, trials).summary), "conclusions": in_markdown(table)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--from", type=Path, required=True, dest="own")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        blocks = made(arguments.data, arguments.own, Path(folder))
    for name, lines in blocks.items():
        PAGE.write_text(PAGE.read_text().replace("\n".join(block(name)), "\n".join(lines)))


if __name__ == "__main__":
    main()
