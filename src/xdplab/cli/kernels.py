"""`xdplab lab kernels`: the kernels of virtual labs, in the cache and available; `xdplab kernels`: what they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import AS_JSON, echo, print_json, show, tell
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.lazy import lazy
from xdplab.text import iso

if TYPE_CHECKING:
    from xdplab import labs
    from xdplab.labs import cache as disk
    from xdplab.labs.uml import package
    from xdplab.labs.vm import architectures, qemu
    from xdplab.labs.vm import kernels as cache
else:
    labs, disk = lazy("xdplab.labs"), lazy("xdplab.labs.cache")
    package = lazy("xdplab.labs.uml.package")
    cache, qemu = lazy("xdplab.labs.vm.kernels"), lazy("xdplab.labs.vm.qemu")
    architectures = lazy("xdplab.labs.vm.architectures")


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]…")
@click.option("--again", is_flag=True, help="Fetch it though it is in the cache.")
@AS_JSON
def kernels(names: tuple[str, ...], again: bool, as_json: bool) -> None:
    """List the kernels of virtual labs, after fetching those named.

    \b
    xdplab lab kernels 6.1 6.12
    xdplab lab kernels 6.1@arm64
    """
    for name in names:
        cache.fetch(name, again=again)
    rows = [row | {"labs": _labs(str(row["name"]))} for row in cache.rows()]
    if as_json:
        print_json(rows)
    for row in [] if as_json else rows:
        what = f"{row['release']} ({row['version']}) in {row['folder']}" if row["folder"] else "not fetched yet"
        echo(f"{row['name']}: {what}")
    if not as_json:
        echo(f"As labs: vm:KERNEL, or with the way to run it, vm:{next(iter(cache.KNOWN))}:{'|'.join(qemu.WAYS)}")
        echo(f"For studies jit, execution and loading, --place vm:KERNEL@ARCH: KERNEL@{'|'.join(architectures.KNOWN)}")
        echo(f"For cost, --kernel KERNEL@{'|'.join(architectures.COUNTED)}")


def _labs(kernel: str) -> list[str]:
    """Return the labs that a kernel makes; another architecture's is a study's place, and no lab."""
    return [] if ARCHITECTURE_MARK in kernel else [f"vm:{kernel}:{way}" for way in qemu.WAYS]


def tested_kernels() -> tuple[str, ...]:
    """Return the names of the kernels that guests are tested with."""
    return tuple(cache.KNOWN)


@click.group("kernels")
def kept() -> None:
    """See and clear what guests keep on this disk: kernels, headers, sources, modules, saved states.

    All of it is fetched or made again when it is needed. The environment variable XDPLAB_CACHE_MB sets its limit.
    """


@kept.command("list")
@AS_JSON
def listed(as_json: bool) -> None:
    """List what is kept, the one used longest ago first, with its size and the day of its last use."""
    _show(disk.entries(), as_json)
    if not as_json:
        taken = sum(entry.size for entry in disk.entries())
        tell(f"{taken / 1e6:,.0f} MB in {disk.cache_dir()}, limit {disk.limit_bytes() / 1e6:,.0f} MB")


@kept.command()
@click.option(
    "--unused-days", type=click.IntRange(0), default=7, show_default=True, help="Keep what was used in this time."
)
@AS_JSON
def clean(unused_days: int, as_json: bool) -> None:
    """Remove what was not used for some days, except the files of running guests."""
    gone = disk.clean(to_bytes=0, unused_s=unused_days * disk.DAY_S, in_use=_in_use())
    _show(gone, as_json)
    if not as_json:
        tell(f"{sum(entry.size for entry in gone) / 1e6:,.0f} MB were freed")


def _show(entries: Sequence[disk.Entry], as_json: bool) -> None:
    """Show what is kept: its path in the cache, its size, and when it was used last."""
    names = [str(entry.path.relative_to(disk.cache_dir())) for entry in entries]
    used = [iso(entry.used) for entry in entries]
    if as_json:
        facts = zip(names, entries, used, strict=True)
        print_json([{"kept": name, "bytes": entry.size, "last_used": when} for name, entry, when in facts])
    else:
        rows = zip(names, entries, used, strict=True)
        show([{"kept": n, "size_mb": round(e.size / 1e6, 1), "last_used": when[:10]} for n, e, when in rows])


def _in_use() -> set[str]:
    """Return the names of the folders that running guests use."""
    up = [row for row in labs.status() if row["kind"] in ("vm", "uml")]
    folders = {f"{row['release']}_{row['version']}" for row in up}
    return folders | ({package.PACKAGE} if any(row["kind"] == "uml" for row in up) else set())
