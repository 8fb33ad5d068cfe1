"""Two namespaces joined by a veth pair, gone with their block whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost

HERE = Path(__file__).parent

SAMPLER_PRIORITY = "30"
SAMPLER = """
import sys, time
path, seconds = f"/sys/class/net/{sys.argv[1]}/statistics/rx_packets", float(sys.argv[2])
def count():
    return int(open(path).read())
first, deadline = count(), time.monotonic() + 20
while count() < first + 10_000:
    if time.monotonic() > deadline:
        sys.exit("waited for 20 s")
    time.sleep(0.02)
time.sleep(0.2)
before, start = count(), time.monotonic()
time.sleep(seconds)
print((count() - before) / (time.monotonic() - start))
"""
"""Reads clock and counter together, at real-time priority: a real-time sender starves all other processes."""

SENDER_MOST_S = 60.0
"""Seconds after which a peer's sender ends by itself, even if this bench was killed."""


class PeerError(Exception):
    """A sender that sends nothing; its text is what it said."""


class VethPair:
    """DUT with vd0, TG with vg0, and so many queues each."""

    def __init__(self, queues: int = 1) -> None:
        self._queues = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
        self.dut, self.tg = f"xgb{os.getpid()}d", f"xgb{os.getpid()}g"

    def __enter__(self) -> VethPair:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the end of the block is reached
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def _make(self) -> None:
        for name in (self.dut, self.tg):
            subprocess.run(["ip", "netns", "add", name], check=True)
        peer = ["peer", "name", "vg0", "netns", self.tg, *self._queues]
        subprocess.run(
            ["ip", "link", "add", "vd0", "netns", self.dut, *self._queues, "type", "veth", *peer], check=True
        )
        for name, interface in ((self.dut, "vd0"), (self.tg, "vg0")):
            self.run(name, "sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
            self.run(name, "ethtool", "-K", interface, "gro", "on")
            self.run(name, "ip", "link", "set", "dev", interface, "up")

    def run(self, namespace: str, *argv: str) -> str:
        """Run a command to its end inside a namespace; if it fails, stop the bench with the command's output."""
        result = subprocess.run(["ip", "netns", "exec", namespace, *argv], check=False, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"{' '.join(argv)} failed: {result.stdout[-600:]}{result.stderr[-600:]}")
        return result.stdout

    @contextlib.contextmanager
    def dut_program(self, bpf_object: Path, section: str) -> Iterator[None]:
        link = ("ip", "link", "set", "dev", "vd0", "xdpdrv")
        self.run(self.dut, *link, "object", str(bpf_object), "section", section)
        try:
            yield
        finally:
            self.run(self.dut, *link, "off")

    def rate(self, sender: list[str], namespace: str, interface: str, seconds: float) -> float:
        """Run ``sender`` on the TG; return the frames per second the interface receives once they flow.

        Raises PeerError if none arrive.
        """
        with tempfile.TemporaryFile("w+") as log:
            # Above the senders: what ends them must run even where they keep its CPU busy.
            bounded = ["chrt", "-f", SAMPLER_PRIORITY, "timeout", "--kill-after=1", str(SENDER_MOST_S + seconds)]
            command = ["ip", "netns", "exec", self.tg, *bounded, *sender]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
            try:
                return self._sampled(namespace, interface, seconds)
            except RuntimeError as error:
                log.seek(0)
                raise PeerError(f"{' '.join(sender)}: {error}: {log.read()[-600:]}") from error
            finally:
                end_group(process)

    def _sampled(self, namespace: str, interface: str, seconds: float) -> float:
        own = ["chrt", "-f", SAMPLER_PRIORITY, "taskset", "-c", str(max(os.sched_getaffinity(0)))]
        command = ["ip", "netns", "exec", namespace, *own, sys.executable, "-c", SAMPLER, interface, str(seconds)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"no frames arrived ({result.stderr.strip()[-200:]})")
        return float(result.stdout)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a peer with its children: trafgen's real-time child outlives its parent and would spin forever.

    The child may have a process group of its own, made by `timeout`, which ends when its parent does.
    """
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)


def build(cache: Path) -> tuple[str, str, Path]:
    """Return the paths of xdpgen, of the bare sender, and of the BPF object of bare sender and DUTs."""
    bare = build_c(cache, "bare")
    return build_tool(LocalHost(), "xdpgen", str(cache)), bare, build_bpf(cache, "bare")


def build_c(cache: Path, name: str, *libraries: str) -> str:
    """Compile a C file of this folder and return the program's path."""
    flags = ["-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    source, made = HERE / f"{name}.c", str(cache / name)
    subprocess.run(["cc", *flags, str(source), "-o", made, *libraries, "-lbpf"], check=True)
    return made


def build_bpf(cache: Path, name: str) -> Path:
    """Compile a BPF file of this folder and return the object's path."""
    machine = subprocess.run(["cc", "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    made = cache / f"{name}.bpf.o"
    bpf = ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{machine}"]
    subprocess.run([*bpf, "-c", str(HERE / f"{name}.bpf.c"), "-o", str(made)], check=True)
    return made
