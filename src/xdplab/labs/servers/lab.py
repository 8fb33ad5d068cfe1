"""Labs of real servers: `rack.yaml`. They are not made or taken down, but connected, checked and locked.

The lock of a server's port is a file on the host, where other controllers see it; it is released when its holder ends.
The holder is a shell on the host, at the end of the controller's connection. The controller sends it a line every few
seconds, and it stores the time of each on the host. A hanging holder keeps the lock but stores no new time: then
`steal` takes the lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.errors import HostError, LabError, UnsupportedError
from xdplab.hosts import Host
from xdplab.hosts.held import Held, Holder
from xdplab.labs.base import DUT_FIFO, TG_FIFO, Arrangement, Clock, Cpus, GeneratorPlace, LinkEnds, share_out, turned
from xdplab.labs.receiving import pin_threads, place_interrupts, receive_in_threads
from xdplab.labs.servers.host import reach
from xdplab.labs.servers.inventory import Interface, Inventory, Machine, load_inventory
from xdplab.labs.servers.ports import Port, find_port, online_cpus

BEAT_S = 5.0
SILENT_S = 60
"""Seconds without a note after which a lock may be stolen."""
LET_GO_S = 40.0
"""Seconds that a host may take to see that our own lost connection is dead."""
LOOK_S = 1.0

# $1 the lock, $2 who, $3 seconds of silence after which it is stolen, or never. Ports of one name in two network
# namespaces of a host are two ports: the file's name carries the namespace's number. Built-in commands only, once it is
# held: nothing is started on the host while a window is measured. Only a process that has the lock open is killed.
# Whoever can open a lock can hold it for ever: no other user can.
_LOCK = """
space=$(stat -L -c %i /proc/self/ns/net) || exit 1
set -- "${1%.lock}.$space.lock" "$2" "$3"
umask 077; exec 9>>"$1" && chmod 600 "$1" || exit 1
if ! flock -n 9; then
    silent=$(($(date +%s) - $(stat -c %Y "$1.beat" 2>/dev/null || echo 0)))
    read -r holder <"$1.pid"
    if [ "$3" != never ] && [ "$silent" -ge "$3" ] && [ "/proc/$holder/fd/9" -ef "$1" ]; then
        kill -s KILL "$holder"
        flock -w 5 9 || { echo "taken $silent $(cat "$1.who")"; exit; }
    else
        echo "taken $silent $(cat "$1.who")"
        exit
    fi
fi
echo "$2" >"$1.who"; echo $$ >"$1.pid"; echo >"$1.beat"
lock=$1
beat() { echo >"$lock.beat"; }
"""


class PortLock:
    """One port, held until `close`. Each holder has a unique token, by which it recognises its own lost lock."""

    def __init__(self, host: Host, path: str, who: str, *, steal: bool = False) -> None:
        """Raises LabError naming the holder, and how long it has been silent."""
        self._host, self._path = host, path
        self._who = f"{who} on {os.uname().nodename}"
        self._held = self._take("never" if not steal else str(SILENT_S))

    def _take(self, silent: str) -> Held:
        """Take it, also from a holder that has been ``silent`` for so many seconds."""
        self._host.run(["mkdir", "-p", "-m", "755", self._path.rpartition("/")[0]])
        holder = Holder(f"the lock {self._path}", _LOCK, (self._path, self._who, silent), beat_s=BEAT_S)
        return Held(self._host, holder, _refuse)

    def regain(self) -> None:
        """Take it again after its connection was lost. Raises LabError if another holder has it meanwhile."""
        try:
            self._held.require()
        except HostError:
            self._held = self._again()

    def _again(self) -> Held:
        """Until the host notices that the old connection is dead, that connection still holds the lock."""
        until = time.monotonic() + LET_GO_S
        while True:
            try:
                return self._take("never")
            except _Taken as taken:
                if taken.who != self._who or time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Release it; harmless if the connection is gone."""
        with contextlib.suppress(HostError):
            self._held.close()


def _refuse(line: str) -> None:
    """Raise the error for what the script prints of a lock that another holder has."""
    _, silent_s, who = line.split(" ", 2)
    raise _Taken(who, int(silent_s))


class _Taken(LabError):
    """Another holder has the lock."""

    def __init__(self, who: str, silent_s: int) -> None:
        self.who = who
        silent = f", silent for {silent_s} s" if silent_s >= SILENT_S else ""
        way = "it is dead or hangs: --steal takes the lab from it" if silent else "wait for it"
        super().__init__(f"a run is going on in this lab: {who}{silent}", remedy=f"{way}, or use another lab")


PORTS_DIR = "/run/xdplab/ports"
"""A server's folder of its ports' locks and original states: one for all inventories, whatever their names and work
directories. A reboot empties it, and a full disk does not fill it."""

DEFAULT = ""  # an inventory is a file, so it needs a name


class InventoryLab:
    """A `Lab` of an inventory. Its hosts are connected and its ports checked on first use."""

    kind = "inventory"
    leased = False
    clock: Clock | None = "time"
    native_dir: Path | None = None

    def __init__(self, name: str, inventory: Inventory) -> None:
        self.name = name
        self._inventory = inventory
        self._made: dict[str, Host] = {}
        self._threaded: bool | None = None
        self._locks: list[PortLock] = []
        self._second: LinkEnds | None = None
        self._state_dirs: dict[str, str] = {}
        self.arrangement: Arrangement = inventory.arrangement

    @cached_property
    def dut(self) -> Host:
        return self._reach("dut", self._inventory.dut)

    @cached_property
    def tg(self) -> Host:
        return self._reach("tg", self._inventory.tg)

    @cached_property
    def second_ports(self) -> tuple[Port, Port] | None:
        """The DUT's and the TG's ends of the second link; None if the inventory has one link."""
        dut, tg = self._inventory.dut.second_interface, self._inventory.tg.second_interface
        return (find_port(self.dut, dut), find_port(self.tg, tg)) if dut and tg else None

    def second_link(self, *, make: bool = True) -> LinkEnds | None:
        if self.second_ports is None:
            return None
        (dut_port, tg_port), dut, tg = self.second_ports, self._inventory.dut, self._inventory.tg
        assert dut.second_interface is not None  # the two ports were found by these
        assert tg.second_interface is not None
        ends = LinkEnds(dut_port.name, tg_port.name, dut.second_interface.mac, tg.second_interface.mac)
        if make and self._second is None:
            self._second = ends
            self._threaded = None
        return ends

    @cached_property
    def dut_port(self) -> Port:
        return find_port(self.dut, self._inventory.dut.interface)

    @cached_property
    def tg_port(self) -> Port:
        return find_port(self.tg, self._inventory.tg.interface)

    @property
    def dut_interface(self) -> str:
        return self.dut_port.name

    @property
    def tg_interface(self) -> str:
        return self.tg_port.name

    @property
    def dut_mac(self) -> str:
        return self._inventory.dut.interface.mac

    @property
    def tg_mac(self) -> str:
        return self._inventory.tg.interface.mac

    @property
    def generator(self) -> GeneratorPlace:
        return replace(self._inventory.tg.generator.place(), pci=self._inventory.tg.interface.pci)

    @property
    def virtual(self) -> bool:
        return self.dut_port.virtual or self.tg_port.virtual

    @property
    def label(self) -> str:
        what = "virtual link" if self.virtual else "hardware"
        return f"{what}, {Path(self.name).stem}, {self.dut_port.driver} – {self.tg_port.driver}, {self.arrangement}"

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        inventory = self._inventory
        dut = tuple(inventory.dut.cpus) or online_cpus(self.dut, self.dut_port.near_cpus)
        tg = tuple(inventory.tg.cpus) or online_cpus(self.tg, self.tg_port.near_cpus)
        same = (arrangement or self.arrangement) == "split" and set(dut) == set(tg)
        return share_out(dut, "split") if same else Cpus(dut=dut, tg=tg)

    def host(self, name: str) -> Host:
        if name not in ("dut", "tg"):
            raise LabError(f"lab {self.name} has no host {name!r}", remedy="it has dut and tg")
        return self.dut if name == "dut" else self.tg

    def work_dir(self, host: Host) -> str:
        return f"{self._inventory.work_dir}/{re.sub(r'[^A-Za-z0-9._-]', '_', Path(self.name).stem)}"

    def state_dir(self, host: Host) -> str:
        if host.name not in self._state_dirs:  # a port belongs to a network namespace
            space = host.run(["readlink", "/proc/self/ns/net"]).text
            self._state_dirs[host.name] = f"{PORTS_DIR}/{re.sub(r'[^0-9]', '', space)}"
        return self._state_dirs[host.name]

    @contextlib.contextmanager
    def lock(self, who: str | None = None, *, steal: bool = False) -> Iterator[None]:
        """Hold all ports, the TG's first. The locks are on the hosts, where other controllers see them.

        A port with a PCI address has a second lock of this name: while DPDK has the port, it has no other.
        """
        named = [(host, name) for host, port, at in self._ports() for name in {port.name, at.pci or port.name}]
        with contextlib.ExitStack() as stack:
            for host, name in named:
                path = f"{PORTS_DIR}/{name}.lock"
                self._locks.append(PortLock(host, path, who or f"process {os.getpid()}", steal=steal))
                stack.callback(self._let_go)
            yield

    def _ports(self) -> list[tuple[Host, Port, Interface]]:
        """Return each port with its host and its entry in the inventory, the TG's first."""
        dut, tg = self._inventory.dut, self._inventory.tg
        second_dut, second_tg = self.second_ports or (None, None)
        ends = [
            (self.tg, self.tg_port, tg.interface),
            (self.tg, second_tg, tg.second_interface),
            (self.dut, self.dut_port, dut.interface),
            (self.dut, second_dut, dut.second_interface),
        ]
        return [(host, port, at) for host, port, at in ends if port is not None and at is not None]

    def _let_go(self) -> None:
        self._locks.pop().close()

    def turn(self, tell: Callable[[str | None], None]) -> contextlib.AbstractContextManager[None]:
        """There is nothing to wait for: the ports are locked, and the inventory chooses their CPUs."""
        return contextlib.nullcontext()

    def regain(self) -> None:
        self._threaded = None  # a watchdog has restored the devices
        self._require_names()
        for lock in self._locks:
            lock.regain()

    def _require_names(self) -> None:
        """Raise LabError if a port has another name now: after a reboot its old name may be the managing port's."""
        for host, port, at in self._ports():
            if host is self.tg and self.generator.by_dpdk:
                continue  # it is known by its PCI address
            if (now := find_port(host, at).name) != port.name:
                raise LabError(
                    f"{host.name}: the port with MAC {at.mac} was {port.name} and is {now}",
                    remedy="`xdplab resume` continues a run",
                )

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """On two machines each queue's interrupts go to a CPU of its own, as far as there are enough.

        The TG receives on the CPUs that do not send, if it has any. In ``split`` both ports of the one machine receive
        in threads, on their own CPUs. Raises UnsupportedError if these threads are not visible.
        """
        if arrangement == "hosts":
            return self._place_interrupts(queues)
        if self._threaded is not (arrangement == "split"):
            self._threaded = arrangement == "split"
            ends = [(self.dut, self.dut_interface), (self.tg, self.tg_interface)]
            if second := self._second:
                ends += [(self.dut, second.dut_interface), (self.tg, second.tg_interface)]
            receive_in_threads(ends, self._threaded)
        if not self._threaded:
            return {"softirq": "on the sender's CPU" if self.virtual else "where the interrupts go"}
        cpus = self.cpus(arrangement)
        if second := self._second:  # its direction gets the CPUs after those of the first one's queues
            pin_threads(self.dut, second.dut_interface, turned(cpus.dut, queues), DUT_FIFO)
            pin_threads(self.tg, second.tg_interface, turned(cpus.tg, queues), TG_FIFO)
        dut = pin_threads(self.dut, self.dut_interface, cpus.dut, DUT_FIFO)
        tg = pin_threads(self.tg, self.tg_interface, cpus.tg, TG_FIFO)
        if dut < queues or tg < 1:
            raise UnsupportedError(
                f"lab {self.name}: of the softirq threads of {self.dut_interface} and {self.tg_interface} only {dut} "
                f"and {tg} can be seen",
                remedy="use two machines, or a netns lab for arrangement split",
            )
        return {"dut_threads": dut, "tg_threads": tg, "dut_cpus": cpus.dut, "tg_cpus": cpus.tg}

    def _place_interrupts(self, queues: int) -> dict[str, Any]:
        cpus = self.cpus("hosts")
        placed = {"dut_interrupts": place_interrupts(self.dut, self.dut_interface, cpus.dut)}
        senders = queues if self._second is None else 2 * queues
        receiving = cpus.tg[senders:] or cpus.tg
        if not self.generator.by_dpdk:
            placed["tg_interrupts"] = place_interrupts(self.tg, self.tg_interface, receiving)
        if second := self._second:
            behind = turned(cpus.dut, queues)
            placed["dut_second_interrupts"] = place_interrupts(self.dut, second.dut_interface, behind)
            placed["tg_second_interrupts"] = place_interrupts(self.tg, second.tg_interface, receiving)
        return placed

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Servers need not be kept up."""
        yield

    def close(self) -> None:
        for host in self._made.values():
            host.close()

    def _reach(self, name: str, machine: Machine) -> Host:
        self._made[name] = reach(name, machine)
        if len(self._made) == 2:
            self._require_arrangement()
        return self._made[name]

    def _require_arrangement(self) -> None:
        boots = {host.get("/proc/sys/kernel/random/boot_id") for host in self._made.values()}
        if (len(boots) == 2) != (self.arrangement == "hosts"):
            count = "two machines" if len(boots) == 2 else "one machine"
            remedy = f"write `arrangement: {'hosts' if len(boots) == 2 else 'shared'}`"
            raise LabError(
                f"lab {self.name}: arrangement {self.arrangement}, but dut and tg are {count}", remedy=remedy
            )


def require_name(instance: str) -> None:
    """Raise LabError for a file that is not an inventory."""
    load_inventory(Path(instance))


def open_lab(instance: str, _uid: int) -> InventoryLab:
    """Return the lab of an inventory file. Raises LabError naming what is wrong with the file."""
    return InventoryLab(instance, load_inventory(Path(instance)))


def up(instance: str, _uid: int, *, lease: bool = False) -> bool:
    """Check the file; xdplab does not start servers. Returns False: no lab was made."""
    load_inventory(Path(instance))
    return False


def down(instance: str, _uid: int) -> bool:
    """Leave the servers unchanged. Returns False: no lab was taken down."""
    load_inventory(Path(instance))
    return False


def arrangement(instance: str) -> Arrangement:
    """Return the arrangement an inventory states."""
    return load_inventory(Path(instance)).arrangement
