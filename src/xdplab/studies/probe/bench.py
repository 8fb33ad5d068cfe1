"""The means of a probe: a port that is held while settings of it change, the program, and bursts of known numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xdplab.counters.table import LAGS_S
from xdplab.deploy.device import restore
from xdplab.deploy.guarded import GuardedDevice, put_all_back
from xdplab.deploy.native import build_tool
from xdplab.deploy.queues import Endpoint
from xdplab.deploy.xdp import XdpLoader, XdpRequest, attach, await_nothing_attached
from xdplab.errors import FormatError, UnsupportedError
from xdplab.formats.ethtool import parse_driver, parse_statistics
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.labs.rights import missing_rights
from xdplab.labs.servers.ports import refuse_ssh_route
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import UserProgram
from xdplab.resources import cache_root
from xdplab.studies.guests import free_lab, tool_in
from xdplab.studies.probe.answers import ProbedBurst

RUN_ID = "0be"
MAGIC = 0x78646C62 ^ int(RUN_ID, 16)
"""As native/common/payload.h has it."""
ACTIONS = {"drop": 1, "pass": 2, "tx": 3, "redirect": 4}
"""Codes of linux/bpf.h."""
FRAMES, RATE_PPS, LONGEST_S = 1000, 5_000.0, 5.0
SETTLE_S = 0.3
"""A driver counts what it sent when it frees the descriptors."""
SESSION_S = 120.0
_PROGRAM = Path(__file__).parent / "programs" / "probe.bpf.c"
_ANNOUNCED = Path(__file__).parent / "announced.py"
_STATE, _FOLDER = "/run/xdplab/probe/state", "/run/xdplab/probe/files"


class NotTried(Exception):
    """Why something is not tried."""


@dataclass(frozen=True)
class ProbeBench:
    """``end`` is the port; ``lab`` has the sender of frames, None for an interface of this machine. Paths are the
    port's host's, but ``xdpgen``'s."""

    end: Endpoint
    lab: Lab | None
    xdpload: str
    program: str
    announced: str
    xdpgen: str = ""
    xdpgen_here: str = ""
    held: list[GuardedDevice] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return self.end.host

    @property
    def interface(self) -> str:
        return self.end.interface

    @property
    def sender(self) -> Lab:
        """The lab. Raises NotTried if there is none."""
        if self.lab is None:
            raise NotTried("an interface alone has no sender of frames: name a lab")
        return self.lab

    @property
    def others(self) -> list[Endpoint]:
        """The TG's end, if its settings have to follow those of the port."""
        lab = self.lab
        return [] if lab is None or lab.generator.follows else [Endpoint(lab.tg, lab.tg_interface)]

    @property
    def names(self) -> list[str]:
        """All names and addresses by which the port, its lab and its hosts are known."""
        if self.lab is None:
            return [self.interface]
        lab = self.lab
        hosts = [lab.dut.name, lab.tg.name]
        return [lab.name, *hosts, lab.dut_interface, lab.tg_interface, lab.dut_mac, lab.tg_mac]

    def loaded(self, mode: str, *, action: str = "pass", frags: bool = False, end: Endpoint | None = None) -> XdpLoader:
        """Attach the program. Raises UnsupportedError with the kernel's words."""
        end = end or self.end
        section = "tc" if mode in ("tcx", "tc") else "xdp.frags" if frags else "xdp"
        rodata = {} if section == "tc" else {"action": ACTIONS[action], "magic": MAGIC}
        request = XdpRequest(self.program, end.interface, mode, section=section, rodata=rodata)
        loader = attach(end.host, self.xdpload, request, deadline_s=SESSION_S)
        self.await_link()
        return loader

    def await_link(self) -> None:
        """Wait until both ends have a link: some cards are reset as a program is attached or a setting changes."""
        for end in [self.end] if self.lab is None else [self.end, Endpoint(self.lab.tg, self.lab.tg_interface)]:
            end.await_link()

    def counters(self) -> dict[str, int]:
        """Return the counters of the driver by name, and those of the link as ``link.rx.packets``."""
        shown = self.host.run(["ethtool", "-S", self.interface], check=False)
        try:
            driver = parse_statistics(shown.stdout) if shown.ok else {}
        except FormatError:  # a driver may have no counter at all
            driver = {}
        link = self.host.run(["ip", "-s", "-s", "-j", "link", "show", "dev", self.interface]).row("ifindex")
        ways = {way: link["stats64"][way] for way in ("rx", "tx")}
        return driver | {f"link.{way}.{name}": n for way, names in ways.items() for name, n in names.items()}

    @contextmanager
    def sending(
        self, *, flows: int = 1, queues: int = 1, frame_bytes: int = 64, frames: int = FRAMES, receive: bool = True
    ) -> Iterator[Generator]:
        """Give the TG's sender, which is ready; a burst of it has so many frames."""
        lab = self.sender
        settings = GeneratorSettings(
            "afxdp",
            lab.tg_interface,
            queues=queues,
            cpus=lab.cpus().tg[:1],
            batch=8,
            rate_pps=RATE_PPS,
            max_frames=frames,
            settle_s=SETTLE_S,
            run_id=RUN_ID,
        ).changed(flows=flows, frame_bytes=frame_bytes, src_mac=lab.tg_mac, dst_mac=lab.dut_mac, receive=receive)
        with Generator(lab.tg, settings, self.xdpgen, deadline_s=SESSION_S) as generator:
            generator.start()
            lab.place(lab.arrangement, queues)
            yield generator
            generator.stop()

    def burst(self, mode: str, action: str) -> ProbedBurst:
        """Send one burst to the program. Raises NotTried, UnsupportedError where the mode is refused."""
        with self.sending() as generator, self.loaded(mode, action=action) as loader:
            before = self.settled()
            summary = generator.burst("probe", LONGEST_S).summary
            after = self.settled()
            seen = sum(loader.count("queues"))
            loader.detach()
        rose = {name: n - before.get(name, 0) for name, n in after.items() if n > before.get(name, 0)}
        sent = summary.tx_packets
        exact = [name for name, n in rose.items() if n == seen]
        return ProbedBurst(mode, action, sent, seen, summary.rx_packets or 0, rose, exact)

    def settled(self) -> dict[str, int]:
        """Return the counters once the driver has taken over those of the NIC."""
        time.sleep(SETTLE_S + LAGS_S.get(self.driver, 0.0))
        return self.counters()

    @property
    def driver(self) -> str:
        return parse_driver(self.host.run(["ethtool", "-i", self.interface]).stdout)

    def described(self) -> dict[str, Any]:
        """Return what `ethtool -i` says of the port, its kernel, and whether the lab is virtual."""
        shown = self.host.run(["ethtool", "-i", self.interface]).text
        pairs = dict(line.partition(": ")[::2] for line in shown.splitlines())
        kernel = self.host.run(["uname", "-r"]).text.strip()
        return {
            "virtual": None if self.lab is None else self.lab.virtual,
            "driver": self.driver,
            "firmware": pairs.get("firmware-version", ""),
            "bus": pairs.get("bus-info", ""),
            "kernel": kernel,
        }

    def announcement(self) -> dict[str, Any]:
        """Return what the kernel announces of the port now, as `announced.py` prints it."""
        shown: dict[str, Any] = json.loads(self.host.run(["python3", "-I", self.announced, self.interface]).text)
        return shown

    def set_mtu(self, mtu: int) -> None:
        """Give both ends an MTU; whether the TG's end takes it is its own affair. Raises UnsupportedError."""
        if lab := self.lab:
            lab.tg.run(["ip", "link", "set", "dev", lab.tg_interface, "mtu", str(mtu)], check=False)
        done = self.host.run(["ip", "link", "set", "dev", self.interface, "mtu", str(mtu)], check=False)
        if not done.ok:
            raise UnsupportedError((done.error_text or done.text).replace("\n", ": "))

    def put_back(self) -> None:
        """Restore what was changed since the ends were taken; they stay held."""
        for one in self.held:
            restore(one.host, one.interface, one.before)


@contextmanager
def bench_at(lab: Lab) -> Iterator[ProbeBench]:
    """Hold both ends of a lab's link in this block, ready to be tried.

    Raises UnsupportedError for a lab with another generator, HostError if an end is in use.
    """
    if lab.generator.by_dpdk:
        raise UnsupportedError(f"lab {lab.name}: a probe sends with xdpgen, not {lab.generator.kind}")
    folder = f"{lab.work_dir(lab.dut)}/probe"
    end, other = Endpoint(lab.dut, lab.dut_interface), Endpoint(lab.tg, lab.tg_interface)
    bench = _prepared(end, folder, tool_in(lab, lab.dut, "xdpload"), lab)
    bench = replace(bench, xdpgen=tool_in(lab, lab.tg, "xdpgen"), xdpgen_here=tool_in(lab, lab.dut, "xdpgen"))
    ends = {one: lab.state_dir(one.host) for one in (end, other)}
    with _held(bench, ends):
        yield bench


def _prepared(end: Endpoint, folder: str, xdpload: str, lab: Lab | None) -> ProbeBench:
    program, announced = f"{folder}/probe.bpf.o", f"{folder}/{_ANNOUNCED.name}"
    end.host.put(build(UserProgram(str(_PROGRAM)), cache_directory()).object, program)
    end.host.put(_ANNOUNCED, announced)
    return ProbeBench(end, lab, xdpload, program, announced)


@contextmanager
def _held(bench: ProbeBench, ends: dict[Endpoint, str]) -> Iterator[None]:
    """Keep the settings of the ends, and restore them after the block; if this process is killed, a watchdog does."""
    devices = [GuardedDevice(end.host, end.interface, state_dir) for end, state_dir in ends.items()]
    with ExitStack() as stack:
        stack.callback(put_all_back, devices, at_once=False)
        for device in devices:
            await_nothing_attached(device.host, device.interface)
            device.take()
            bench.held.append(device)
        yield


@contextmanager
def probed(name: str) -> Iterator[ProbeBench]:
    """Give the bench of a lab, or of an interface of this machine. Raises LabError, UnsupportedError, HostError."""
    if "/" not in name and Path("/sys/class/net", name).exists():
        with _alone(name) as bench:
            yield bench
        return
    with free_lab(name) as lab, bench_at(lab) as bench:
        yield bench


@contextmanager
def _alone(interface: str) -> Iterator[ProbeBench]:
    """Refuse the interface that this machine is reached by: its link goes down for moments."""
    host = LocalHost()
    if lacking := missing_rights(("CAP_NET_ADMIN", "CAP_SYS_ADMIN")):
        raise UnsupportedError(f"{lacking}: nothing can be tried of {interface}", remedy="use sudo")
    refuse_ssh_route(host, interface)
    bench = _prepared(
        Endpoint(host, interface), _FOLDER, build_tool(host, "xdpload", str(cache_root() / "native")), None
    )
    try:
        with _held(bench, {bench.end: _STATE}):
            yield bench
    finally:
        host.run(["rm", "-rf", _FOLDER])
