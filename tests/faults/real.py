"""Real runs with a fault in a process that a replay lacks (SSH, keeper, generator, loader, holder).

`python -m tests.faults.campaign --only real [--rows REGEX]`: each fault strikes one process of a run in a lab of
namespaces. Then `resume` runs, and the finished trials, the remains and the time are compared with the expected ones.
strace kills a process at its N-th system call that writes.
"""

import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdplab import labs
from xdplab.deploy.device import snapshot
from xdplab.hosts import Host
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state

PLAN = """
name: real
seed: 1
repetitions: 2
trial: {warmup_s: 0.05, window_s: 0.15, pause_s: 0.0}
blocks:
  - points: {mode: native, workload: array, accesses: [0, 100], working_set_bytes: 4096}
  - points: {mode: af_xdp, workload: array, accesses: 0, working_set_bytes: 4096}
    traffic: {engine: afxdp, load: 5kpps}
"""
TRIALS = 6
WRITING = "write,writev,pwrite64,sendto,sendmsg,rename,unlink,mkdir,fsync,ftruncate,chmod,fchmod,bpf,ioctl,execve,kill"
RUN_S, CLEAN_S, APPEAR_S = 240.0, 30.0, 60.0
PR_SET_CHILD_SUBREAPER = 36
SYSCTLS = [f"net/core/bpf_jit_{name}" for name in ("enable", "harden")]
SYSCTLS += ["kernel/bpf_stats_enabled", "kernel/sched_rt_runtime_us"]
XDPLAB = (sys.executable, "-m", "xdplab")

Strike = Callable[[int, int], None]


# --- the descendants of this process: it becomes the parent of every process that a run leaves ---


@dataclass(frozen=True)
class Seen:
    """A process: its command line, and its name in the kernel."""

    pid: int
    words: tuple[str, ...]
    name: str


def adopt() -> None:
    """Make this process the parent of each descendant whose own parent ends, so that all of them can be found."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def below(root: int) -> Iterator[Seen]:
    """Yield the descendants of ``root`` that still run."""
    children: dict[int, list[Seen]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(") ")
            state, parent = rest.split()[:2]
            words = tuple((entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
            if state not in "ZX":
                children.setdefault(int(parent), []).append(Seen(int(entry.name), words, name))
    waiting = [root]
    while waiting:
        for seen in children.get(waiting.pop(), []):
            waiting.append(seen.pid)
            yield seen


def reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _word(seen: Seen, word: str) -> bool:
    return any(word in one for one in seen.words)


ROLES: dict[str, Callable[[Seen], bool]] = {
    "generator": lambda seen: seen.name == "xdpgen",
    "loader": lambda seen: seen.name == "xdpload",
    "AF_XDP application": lambda seen: seen.name == "afxdp_user",
    "holder": lambda seen: seen.words[:1] == ("bash",) and _word(seen, "echo watching"),
    "SSH server": lambda seen: seen.name == "sshd",
    "host's shell": lambda seen: seen.words[:1] == ("sh",) and _word(seen, "xdplab-group"),
    "host's first process": lambda seen: seen.name.startswith("python") and _word(seen, "netns/host.py"),
    "keeper": lambda seen: _word(seen, "netns/keeper.py"),
}
OWN_LAB = ("keeper", "host's first process")  # the lab ends with it


# --- faults ---


def kill_at(number: int) -> Strike:
    """Kill a process by strace at its ``number``-th call that writes; the call is not executed."""

    def strike(pid: int, run: int) -> None:
        inject = f"inject={WRITING}:signal=KILL:when={number}"
        argv = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={WRITING}", "-e", inject, "-p", str(pid)]
        tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        while tracer.poll() is None and Path(f"/proc/{run}").exists() and _runs(run):
            time.sleep(0.05)
        tracer.terminate()
        tracer.wait()

    return strike


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def stop_for(seconds: float) -> Strike:
    """Stop a process with SIGSTOP, then continue it."""

    def strike(pid: int, run: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

    return strike


def without_link(pid: int, run: int) -> None:
    """Delete the link of the generator's host, as if its driver were removed."""
    subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "link", "del", "vg0"], check=True)


def clock_jumps(seconds: int) -> Strike:
    """Set the time of day of a controller that runs with `clock.c`, forward or back."""

    def strike(pid: int, run: int) -> None:
        Path(f"/proc/{run}/cwd/clock").write_text(f"{seconds:+d}\n")

    return strike


def clock_shim(folder: Path) -> Path:
    """Build the library that makes a controller's clock jump."""
    shim = folder / "clock.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", shim, Path(__file__).with_name("clock.c")], check=True)
    return shim


@dataclass(frozen=True)
class Point:
    """One fault: its name, the role of the struck process, which process of this role, and its action."""

    fault: str
    role: str
    which: int
    strike: Strike
    detail: str
    own_lab: bool = False
    clock: bool = False


def kills() -> list[Point]:
    """Return the kills of `make faults`: each role, at calls in its first to its last trial."""
    places = {
        "controller": [(1, n) for n in (1, 3, 10, 30, 60, 100, 200, 400)],
        "generator": [(1, 1), (1, 4), (1, 40), (2, 2), (2, 30)],
        "loader": [(1, 1), (1, 5), (2, 3), (3, 2)],
        "AF_XDP application": [(1, 1), (1, 5), (2, 2)],
        "holder": [(1, 1), (2, 1)],
        "SSH server": [(1, 5), (1, 60), (2, 20), (3, 5)],
        "host's shell": [(1, 1), (20, 1), (40, 1)],
        "host's first process": [(1, 1), (2, 3)],
        "keeper": [(1, 1), (1, 3), (1, 8)],
    }
    return [
        Point("kill (real run)", role, which, kill_at(n), f"{role} {which}, call {n}", role in OWN_LAB)
        for role, every in places.items()
        for which, n in every
    ]


def stops() -> list[Point]:
    """Return the faults that stop a process for a while."""
    every = [
        ("controller", 1, 3.0),
        ("generator", 1, 1.0),
        ("loader", 2, 1.0),
        ("SSH server", 1, 2.0),
        ("SSH server", 3, 20.0),
    ]
    return [Point("SIGSTOP (real run)", role, n, stop_for(s), f"{role} {n}, {s:g} s") for role, n, s in every]


def others() -> list[Point]:
    """Return the faults that delete a link, and those that make clocks jump while a generator runs."""
    link = Point("link deleted (real run)", "generator", 1, without_link, "vg0 deleted", own_lab=True)
    jumps = [("a day on", 86400), ("an hour back", -3600)]
    clocks = [Point("clock jump (real run)", "generator", 1, clock_jumps(s), words, clock=True) for words, s in jumps]
    return [link, *clocks]


# --- one point ---


@dataclass
class State:
    """The state of a machine that a run must restore."""

    processes: set[int]
    pins: set[str]
    links: set[str]
    mounts: set[str]
    files: set[str]
    sysctls: dict[str, str]
    devices: dict[str, Any] = field(default_factory=dict)


def state(lab_name: str | None) -> State:
    """Return the state; also of the lab's devices if there is a lab."""
    found = State(
        {seen.pid for seen in below(os.getpid())},
        {str(path) for path in Path("/sys/fs/bpf").rglob("*")},
        {link["ifname"] for link in json.loads(_said("ip", "-j", "link"))},
        {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        {str(path) for path in _sockets().glob("*")} if _sockets().is_dir() else set(),
        {name: Path("/proc/sys", name).read_text() for name in SYSCTLS if Path("/proc/sys", name).exists()},
    )
    if lab_name is not None:
        with opened(lab_name) as lab:
            for host, interface in ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface)):
                found.devices[host.name] = (snapshot(host, interface).values, _attached(host, interface))
    return found


@contextmanager
def opened(lab_name: str) -> Iterator[labs.Lab]:
    lab = labs.open_lab(lab_name)
    try:
        yield lab
    finally:
        lab.close()


def _attached(host: Host, interface: str) -> bool:
    return "xdp" in json.loads(host.run(["ip", "-j", "link", "show", "dev", interface]).text)[0]


def _sockets() -> Path:
    return Path(f"/run/xdplab/{os.geteuid()}/{Path('/proc/self/ns/net').stat().st_ino}")


def _said(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


KINDS = ("prog", "map", "link")


def objects() -> dict[tuple[str, int], str]:
    """Return the machine's BPF programs, maps and links, by kind and id."""
    found = {}
    for kind in KINDS:
        for one in _shown(kind):
            found[kind, one["id"]] = f"{kind} {one['id']} {one.get('name', '')}"
    return found


def _shown(kind: str) -> list[dict[str, Any]]:
    """Ask bpftool, which fails if an object disappears during its search."""
    for _ in range(20):
        done = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True)
        if not done.returncode:
            return list(json.loads(done.stdout or "[]"))
    raise SystemExit(f"bpftool {kind} show: {done.stderr}")


def held_by(ours: bool) -> set[tuple[str, int]]:
    """Return the BPF objects that the descendants of this process hold, or those that other processes hold."""
    below_us = {seen.pid for seen in below(os.getpid())} | {os.getpid()}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        if (int(process.name) in below_us) is ours:
            for text in _descriptors(process):
                held = re.findall(r"^(prog|map|link)_id:\t(\d+)", text, re.MULTILINE)
                found |= {(kind, int(number)) for kind, number in held}
    return found


def _descriptors(process: Path) -> Iterator[str]:
    with suppress(OSError):  # the process, or one of its files, has gone meanwhile
        for number in os.listdir(process / "fdinfo"):  # noqa: PTH208
            with suppress(OSError):
                yield (process / "fdinfo" / number).read_text()


def new_objects(held: dict[tuple[str, int], str]) -> list[str]:
    """Return the new BPF objects that no other lab holds."""
    new = {key: name for key, name in objects().items() if key not in held}
    others = held_by(ours=False) if new else set()
    return [name for key, name in new.items() if key not in others]


def left_over(before: State, held: dict[tuple[str, int], str], lab_name: str | None) -> list[str]:
    """Return the objects that are new and still exist after a grace time."""
    end = time.monotonic() + CLEAN_S
    while True:
        reap()
        now = state(lab_name)
        found = new_objects(held) + [
            f"{kind}: {sorted(map(str, getattr(now, kind) - getattr(before, kind)))}"
            for kind in ("processes", "pins", "links", "mounts", "files")
            if getattr(now, kind) - getattr(before, kind)
        ]
        found += [f"{kind} changed" for kind in ("sysctls", "devices") if getattr(now, kind) != getattr(before, kind)]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.3)


def finished(run: Path) -> dict[str, str]:
    """Return the checksum of each file of each attempt that the journal calls measured, and of its programs."""
    if not (run / "journal.jsonl").is_file():
        return {}
    done = [attempt for attempt in read_state(RunDirectory(run)).attempts if attempt.status == "measured"]
    folders = [run / "raw" / attempt.trial_id / str(attempt.attempt) for attempt in done]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def journal_of(run: Path) -> bytes:
    """Return the journal's whole lines."""
    path = run / "journal.jsonl"
    return path.read_bytes().rpartition(b"\n")[0] if path.is_file() else b""


def wait_for(point: Point, run: int) -> int | None:
    """Return the process to strike, or None if the run ended before such a process existed."""
    if point.role == "controller":
        return run
    met: list[int] = []
    end = time.monotonic() + APPEAR_S
    while _runs(run) and time.monotonic() < end:
        met += [seen.pid for seen in below(os.getpid()) if ROLES[point.role](seen) and seen.pid not in met]
        if len(met) >= point.which:
            return met[point.which - 1]
        time.sleep(0.005)
    return None


def one(point: Point, folder: Path, lab_name: str) -> dict[str, Any]:
    """Run, strike, resume, and return the outcome."""
    name = f"netns:fault-{secrets.token_hex(3)}" if point.own_lab else lab_name
    kept = None if point.own_lab else lab_name
    before, held = state(kept), objects()
    out = folder / secrets.token_hex(4)
    out.mkdir()
    (out / "plan.yaml").write_text(PLAN)
    (out / "clock").write_text("+0\n")
    environment = {**os.environ, "LD_PRELOAD": str(clock_shim(out))} if point.clock else None
    words = ["--lab", name, "run", "plan.yaml", "--no-figures", "--out", "."]
    with (out / "said.txt").open("w+") as said:
        run = subprocess.Popen([*XDPLAB, *words], cwd=out, env=environment, stdout=said, stderr=said)
        struck = wait_for(point, run.pid)
        if struck is not None:
            point.strike(struck, run.pid)
        wrong = _end(run)
        said.seek(0)
        text = said.read()
    outcome: dict[str, Any] = {
        "fault": point.fault, "call": point.role, "path": "", "lost": [], "left": [], "words": wrong,
        "recover_s": None, "struck": struck is not None, "said": text[-600:],
    }  # fmt: skip
    outcome["words"] += _wrong_words(text)
    _recover(out, name, outcome)
    outcome["left"] += left_over(before, held, kept)
    outcome["left"] += [
        str(path.relative_to(out)) for path in out.rglob(".*") if "partial" in path.name or ".new" in path.name
    ]
    return outcome


def _end(run: subprocess.Popen[bytes]) -> list[str]:
    try:
        run.wait(RUN_S)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return [f"the run had not ended after {RUN_S:.0f} s"]
    return []


def _wrong_words(text: str) -> list[str]:
    return [f"a traceback: {text[-400:]}"] * ("Traceback (most recent call last)" in text)


def _recover(out: Path, lab_name: str, outcome: dict[str, Any]) -> None:
    """Resume the run, or start it again if nothing exists yet; then each trial must be measured and none changed."""
    runs = [path.parent for path in out.glob("[0-9]*/journal.jsonl")]
    before = {run: (finished(run), journal_of(run)) for run in runs}
    what = ["resume", str(runs[0])] if runs else ["run", "plan.yaml", "--out", "."]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*XDPLAB, "--lab", lab_name, *what, "--no-figures"], cwd=out, capture_output=True, text=True, timeout=RUN_S
        )
    except subprocess.TimeoutExpired:
        outcome["words"].append(f"{what[0]} had not ended after {RUN_S:.0f} s")
        return
    outcome["recover_s"] = time.monotonic() - began
    outcome["words"] += _wrong_words(done.stderr)
    outcome["words"] += [f"{what[0]} ended {done.returncode}: {done.stderr[-400:]}"] * bool(done.returncode)
    for run, (files, journal) in before.items():
        now = finished(run)
        outcome["lost"] += [f"{path} is not as it was" for path, value in files.items() if now.get(path) != value]
        outcome["lost"] += ["lines of the journal"] * (not journal_of(run).startswith(journal))
    for run in {path.parent for path in out.glob("[0-9]*/journal.jsonl")}:
        found = read_state(RunDirectory(run))
        measured = [attempt.trial_id for attempt in found.attempts if attempt.status == "measured"]
        outcome["lost"] += [f"{TRIALS - len(set(measured))} trials are not measured"] * (len(set(measured)) != TRIALS)
        outcome["lost"] += ["a trial was counted twice"] * (len(set(measured)) != len(measured))


@contextmanager
def lab_of_its_own() -> Iterator[str]:
    name = f"netns:faults-{secrets.token_hex(3)}"
    with labs.use_lab(name):
        yield name


def struck(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the outcome of each point; print those that break a promise."""
    adopt()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="xdplab-real-") as name, lab_of_its_own() as lab_name:
        for point in points:
            outcome = one(point, Path(name), lab_name)
            outcomes.append(outcome)
            bad = outcome["lost"] + outcome["left"] + outcome["words"]
            took = outcome["recover_s"]
            print(  # noqa: T201
                f"{point.fault}: {point.detail}: {'struck' if outcome['struck'] else 'not reached'}, "
                f"{'?' if took is None else f'{took:.1f}'} s, {bad or 'as promised'}",
                flush=True,
            )
            if bad:
                print(outcome["said"], flush=True)  # noqa: T201
    return outcomes
