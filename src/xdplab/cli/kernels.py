"""`xdplab lab kernels`: the kernels of virtual labs, in the cache and available."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from xdplab.later import later

if TYPE_CHECKING:
    from xdplab.labs.vm import kernels as cache
    from xdplab.labs.vm import qemu
else:
    cache, qemu = later("xdplab.labs.vm.kernels"), later("xdplab.labs.vm.qemu")


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]…")
@click.option("--again", is_flag=True, help="Fetch it though it is in the cache.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def kernels(names: tuple[str, ...], again: bool, as_json: bool) -> None:
    """List the kernels of virtual labs, after fetching those named.

    \b
    xdplab lab kernels 6.1 6.12
    """
    for name in names:
        cache.fetch(name, again=again)
    rows = [row | {"labs": [f"vm:{row['name']}:{way}" for way in qemu.WAYS]} for row in cache.rows()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    for row in [] if as_json else rows:
        what = f"{row['release']} ({row['version']}) in {row['folder']}" if row["folder"] else "not fetched yet"
        click.echo(f"{row['name']}: {what}")
    if not as_json:
        click.echo(f"As labs: vm:KERNEL, or with the way to run it, vm:{next(iter(cache.KNOWN))}:{'|'.join(qemu.WAYS)}")
