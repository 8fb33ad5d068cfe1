"""`xdplab lab`: bring a lab up and down, see what is up, run a command on one of its hosts; `restore` its devices.

`xdplab lab kernels`: the kernels of virtual labs, in the cache and available; `xdplab kernels`: what they take, and
what a packet costs in each.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from xdplab.cli.common import AS_JSON, Verb, Verbs, ask_on_terminal, echo, in_lab, print_json, show, tell
from xdplab.cli.options import STEAL
from xdplab.errors import HostError, LabInUseError
from xdplab.lazy import lazily
from xdplab.text import iso

with lazily():
    from xdplab import labs
    from xdplab.deploy import device, dpdk, kernel_settings
    from xdplab.doctor import tune as doctor_tune
    from xdplab.labs import base
    from xdplab.labs import cache as disk
    from xdplab.labs.servers import host as server_host
    from xdplab.labs.servers import inventory as inventories
    from xdplab.labs.uml import package
    from xdplab.labs.vm import architectures, qemu
    from xdplab.labs.vm import kernels as cache
    from xdplab.studies.traffic import session

if TYPE_CHECKING:
    from xdplab.hosts import Process

_for_user = click.option("--for-user", metavar="UID|NAME", help="The lab's owner (by default you).")
_name = click.argument("name", required=False)


@click.group()
def lab() -> None:
    """Bring a lab up, see it, use it, take it down.

    NAME is `netns` (the default) or `netns:ANYTHING`, as many side by side as you like. Only `up` needs root, and
    calls sudo for it. `vm:6.1` is the same lab in a guest of that kernel, and needs no root; the clock of
    `vm:6.1:count` counts instructions. `uml` is one host at native speed, without root.
    """


@lab.command()
@_name
@_for_user
@in_lab
def up(lab_name: str | None, name: str | None, for_user: str | None) -> None:
    """Bring a lab up; a lab that is already up stays unchanged."""
    name = _chosen(name or lab_name)
    came_up = labs.up(name, for_user=for_user)
    echo(f"lab {name} is up" if came_up else f"lab {name} was up already")


@lab.command()
@_name
@_for_user
@click.option("--force", is_flag=True, help="Do not ask.")
@in_lab
def down(lab_name: str | None, name: str | None, for_user: str | None, force: bool) -> None:
    """Take a lab down, with everything that runs in it. Asks first if the lab is in use."""
    name = _chosen(name or lab_name)
    user = None if force else labs.used_by(name, for_user=for_user)
    if user and not ask_on_terminal(f"lab {name} is in use by {user}. End it?"):
        raise LabInUseError(
            f"lab {name} is in use by {user}",
            remedy=f"wait until it ends, or `xdplab lab down {name} --force`; `xdplab resume RUN` continues a run",
        )
    was_up = labs.down(name, for_user=for_user)
    echo(f"lab {name} is down" if was_up else f"lab {name}: none of yours was up")


@lab.command()
@_for_user
@AS_JSON
@in_lab
def status(lab_name: str | None, for_user: str | None, as_json: bool) -> None:
    """Show the labs that are up; with --lab, that one."""
    if lab_name is not None:
        labs.require_name(lab_name)
    rows = [row for row in labs.status(for_user=for_user) if lab_name in (None, row["lab"])]
    if as_json:
        print_json([row | {"since": iso(row["since"])} for row in rows])
    elif not rows:
        none, name = ("no lab", "") if lab_name is None else (f"lab {lab_name}: none", f" {lab_name}")
        echo(f"{none} of yours is up (xdplab lab up{name})")
    for line in () if as_json else (*map(_line, rows), *_lines_of_others(lab_name, for_user)):
        echo(line)


def _lines_of_others(lab_name: str | None, for_user: str | None) -> Iterator[str]:
    """Yield what is up and not the user's: root sees the labs, others only whose they are."""
    for user, rows in labs.of_others(for_user=for_user).items():
        yield from (f"{user}'s (--for-user {user}): {_line(row)}" for row in rows if lab_name in (None, row["lab"]))
        if not rows:
            yield f"{user} has labs here that are not yours"


@lab.command()
@click.argument("inventory", type=click.Path(path_type=Path))
def sudoers(inventory: Path) -> None:
    """Print what an INVENTORY's servers need in /etc/sudoers.d/xdplab, for users that are not root there."""
    lines = server_host.sudoers(inventories.load_inventory(inventory, for_sudo=True))
    if not lines:
        echo(f"{inventory}: each user is root, so nothing is needed", err=True)
    for host, text in lines.items():
        echo(f"# on {host}\n{text}", nl=False)


@lab.command(context_settings={"ignore_unknown_options": True})
@click.option("--lab", "name", metavar="NAME", help="Which lab (by default netns).")
@click.option("--deadline", "deadline_s", type=float, default=600.0, show_default=True, help="Seconds.")
@_for_user
@click.argument("host", metavar="dut|tg|guest")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(name: str | None, deadline_s: float, for_user: str | None, host: str, command: tuple[str, ...]) -> None:
    """Run a command on a host of the lab; input, output and exit code are passed on.

    \b
    xdplab lab run dut -- ip -s link show vd0
    """
    chosen = labs.open_lab(_chosen(name), for_user=for_user)
    with contextlib.closing(chosen):
        process = chosen.host(host).start(command, deadline_s=deadline_s)
        threading.Thread(target=_forward_stdin, args=(process, deadline_s), daemon=True).start()
        try:
            result = process.pass_through(_binary(sys.stdout), _binary(sys.stderr))
        except KeyboardInterrupt:
            process.kill()
            sys.exit(130)
    if result.timed_out:
        result.require()
    sys.exit(result.exit_code if result.exit_code is not None and result.exit_code >= 0 else 255)


def _chosen(name: str | None) -> str:
    """Return the lab meant: the one named here, the global --lab, or netns."""
    return str(name or click.get_current_context().obj or "netns")


def _line(row: dict[str, Any]) -> str:
    parts = [
        f"{row['lab']}: up for {time.time() - row['since']:.0f} s",
        row["label"] + (f" ({row['why']})" if row["why"] else ""),
        _link(row["hosts"], row["queues"]),
        f"in use by a run: {row['locked_by']}" if row["locked_by"] else "free",
    ]
    return "; ".join(parts)


def _link(hosts: dict[str, Any], queues: int) -> str:
    """Describe a lab's hosts; those of a guest are made on first use."""
    if "dut" not in hosts:
        return f"host {', '.join(hosts)}"
    return f"dut {hosts['dut']['interface']} – tg {hosts['tg']['interface']}, {queues} queues"


def _binary(stream: Any) -> BinaryIO:
    binary: BinaryIO = stream.buffer
    return binary


def _forward_stdin(process: Process, deadline_s: float) -> None:
    # os.read, because a thread that waits in sys.stdin would hold its lock when the interpreter ends
    with contextlib.suppress(OSError, HostError):  # no standard input, or the command reads no more
        while data := os.read(0, 1 << 16):
            process.send(data, within_s=deadline_s)
    process.close_stdin()


@click.command()
@STEAL
@in_lab
def restore(lab_name: str | None, steal: bool) -> None:
    """Restore the settings that the ends of the lab's links had before a run died."""
    lab = labs.open_lab(lab_name or "netns")
    with lab.lock("restore", steal=steal):
        for end in session.all_endpoints(lab):
            restored = device.restore_remembered(end.host, end.interface, lab.state_dir(end.host))
            outcome = "restored" if restored else "nothing to restore"
            tell(f"{end.host.name} {end.interface}: {outcome}")
        if lab.generator.by_dpdk and (pci := lab.generator.pci) is not None:
            found_port = dpdk.give_back(lab.tg, pci, lab.state_dir(lab.tg))
            outcome = f"given back to {found_port.driver}" if found_port else "was not bound to DPDK"
            tell(f"{lab.tg.name} {pci}: {outcome}")
        for host in {id(h): h for h in (lab.dut, lab.tg)}.values():
            if kernel_settings.put_back(host):
                tell(f"{host.name}: real-time throttling is restored")
            if doctor_tune.undo(host, lab.state_dir(host)):
                tell(f"{host.name}: the changes of `doctor --tune` are undone")
    lab.close()


@lab.command()
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
    return [] if base.ARCHITECTURE_MARK in kernel else [f"vm:{kernel}:{way}" for way in qemu.WAYS]


def tested_kernels() -> tuple[str, ...]:
    """Return the names of the kernels that guests are tested with."""
    return tuple(cache.KNOWN)


KEPT = {
    "report": Verb("cost_kernels", "report", "What does a packet cost in each kernel, and why?"),
    "list": Verb("lab", "listed", "List what is kept, the one used longest ago first."),
    "clean": Verb("lab", "clean", "Remove what was not used for some days, except the files of running guests."),
}


@click.group("kernels", cls=Verbs, verbs=KEPT)
def kept() -> None:
    """Compare guests' kernels; see and clear what guests keep on this disk: kernels, headers, sources, modules, saved
    states.

    All of it is fetched or made again when it is needed. The environment variable XDPLAB_CACHE_MB sets its limit.
    """


@click.command("list")
@AS_JSON
def listed(as_json: bool) -> None:
    """List what is kept, the one used longest ago first, with its size and the day of its last use."""
    _show(disk.entries(), as_json)
    if not as_json:
        taken = sum(entry.size for entry in disk.entries())
        tell(f"{taken / 1e6:,.0f} MB in {disk.cache_dir()}, limit {disk.limit_bytes() / 1e6:,.0f} MB")


@click.command()
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
