"""`xdplab probe`: what a port can do with XDP, tried and not read."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import AS_JSON, in_lab, print_json, show, tell
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole

with lazily():
    from xdplab.studies.probe import asking, bench, page

if TYPE_CHECKING:
    from xdplab.studies.probe.answers import ProbedPort

DISAGREES = 1


@click.command()
@click.argument("port", metavar="[IFACE|LAB]", required=False)
@click.option("--publish", is_flag=True, help="Leave out the names of port, lab and hosts, and addresses.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also write the page into this file.")
@AS_JSON
@in_lab
def probe(lab_name: str | None, port: str | None, publish: bool, markdown: Path | None, as_json: bool) -> None:
    """Try what a port can do with XDP: modes, MTUs, queues, rings, counters, how long it is dark (about a minute).

    The port is the DUT's of LAB (netns), or IFACE of this machine, to which no frames are sent then. Its settings are
    restored. The exit code is 1 if something announced does not work, or the table of drivers is wrong, else 0.
    """
    result = _probed(port or lab_name or "netns", publish)
    if markdown is not None:
        write_whole(markdown, page.page(result).encode())
    if as_json:
        print_json(asdict(result))
    else:
        show(page.answer_rows(result.answers), page.title_of(result))
        show(page.burst_rows(result.bursts), "counters") if result.bursts else None
        for line in page.closing_lines(result):
            tell(line)
    sys.exit(DISAGREES if result.disagreements else 0)


def _probed(name: str, publish: bool) -> ProbedPort:
    with bench.probed(name) as at:
        tried = asking.PortProbe(at)
        tried.ask_all()
        result = tried.result(name, datetime.now(UTC).isoformat(timespec="seconds"))
        return page.published(result, at.names) if publish else result
