"""Times of a guest, from command to shell and to its end, beside virtme-ng with the same kernel; and equal counts.

Both boot Debian's kernel under plain emulation on one CPU with this machine's root file system, run `uname` and end.
They take turns, and medians of wall time are compared. xdplab takes part twice: as a guest that starts from a saved
state, for which the limits are, and as the first guest, which boots and saves that state. virtme-ng is found on PATH or
named by --vng (`python3 -m venv V && V/bin/pip install virtme-ng`, then --vng V/bin/vng). Then two guests under
`-icount` run the same loop: their counts must agree to 0.1 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bounded import Aim, run

from xdplab import labs
from xdplab.labs.cache import cache_dir, locked
from xdplab.labs.vm import archive, kernels

SHELL_S, CYCLE_S, MOST_DIFFERENCE = 3.0, 5.0, 0.001

OURS = """
import sys, time
from xdplab.labs import use_lab
with use_lab(sys.argv[1]) as lab:
    print(lab.host("guest").run(["uname", "-r"]).text, end="", flush=True)
"""

LOOP = r"""
#include <stdio.h>
#include <time.h>
static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(void)
{
	long best = 1L << 62;
	for (int turn = 0; turn < 50; turn++) {
		long begin = now();
		for (volatile int i = 0; i < 100000; i++)
			;
		long took = now() - begin;
		best = took < best ? took : best;
	}
	printf("%ld\n", best);
}
"""

OURS_FIRST = "xdplab, the first one"
SAYS = {"xdplab": "", OURS_FIRST: "", "virtme-ng": "virtme-ng "}
"""The text before the release; virtme-ng's kernel also prints it on its console."""

Turn = tuple[float, float]
"""Limits in seconds: to the shell's answer, and to the end."""


def timed(argv: list[str], expected: str) -> Turn:
    """Run a command that boots a guest; return the seconds until the expected output and until its end."""
    began = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = b""
        while expected.encode() not in said:
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                raise SystemExit(f"`{argv[0]}` did not say {expected!r}: {said[-400:].decode(errors='replace')}")
            said += chunk
        shell = time.monotonic() - began
        process.stdout.read()
    return shell, time.monotonic() - began


def our_command(kernel: kernels.Kernel) -> list[str]:
    return [sys.executable, "-c", OURS, f"vm:{kernel.release}:functional"]


def our_first_command(kernel: kernels.Kernel, folder: Path) -> list[str]:
    """Return the same command, with a cache that holds the kernels but no saved state."""
    lines = 'rm -rf "$0" && mkdir -p "$0/xdplab" && ln -s "$1" "$0/xdplab" && shift && exec "$@"'
    shell = ["sh", "-c", lines, str(folder), str(cache_dir() / "kernels")]
    return ["env", f"XDG_CACHE_HOME={folder}", *shell, *our_command(kernel)]


def virtme_command(vng: str, kernel: kernels.Kernel, folder: Path) -> list[str]:
    """Unpack the whole kernel package, which virtme-ng needs. virtme-ng 1.42 boots only with --verbose."""
    with locked("kernels") as root:
        package = f"linux-image-{kernel.release}"
        options = archive.find_exactly(root / "apt", package, kernel.version, kernels.suites(kernel.name))
        (file,) = archive.download([f"{package}={kernel.version}"], options, folder)
    archive.extract(file, folder)
    subprocess.run(["/sbin/depmod", "-b", str(folder), kernel.release], check=True)
    os.environ["PATH"] = f"{Path(vng).parent}:{os.environ['PATH']}"
    image = folder / f"boot/vmlinuz-{kernel.release}"
    run = f"{vng} --run {image} --disable-kvm --cpus 1 --memory 1G --verbose --exec 'uname -nr'"
    return ["script", "-qec", run, "/dev/null"]


def counts(kernel: kernels.Kernel, folder: Path) -> list[int]:
    """Return the instructions of the same loop in two boots."""
    (folder / "loop.c").write_text(LOOP)
    subprocess.run(["cc", "-O2", "-static", "-o", str(folder / "loop"), str(folder / "loop.c")], check=True)
    found = []
    for _ in range(2):
        with labs.use_lab(f"vm:{kernel.release}:count") as lab:
            lab.host("guest").put(folder / "loop", "/tmp/loop", mode=0o755)
            found.append(int(lab.host("guest").run(["/tmp/loop"], deadline_s=300).text))
    return found


def race(kernel: kernels.Kernel, vng: str | None, turns: int, folder: Path) -> list[Aim]:
    commands: dict[str, Callable[[], list[str]]] = {
        "xdplab": lambda: our_command(kernel),
        OURS_FIRST: lambda: our_first_command(kernel, folder / "cache"),
    }
    if vng:
        commands["virtme-ng"] = lambda: virtme_command(vng, kernel, folder)
    else:
        print("virtme-ng: not installed (python3 -m venv V && V/bin/pip install virtme-ng, then --vng V/bin/vng)")
    argvs = {name: make() for name, make in commands.items()}
    took: dict[str, list[Turn]] = {name: [] for name in argvs}
    timed(argvs["xdplab"], kernel.release)  # from now on a saved state exists
    for _ in range(turns):
        for name, argv in argvs.items():
            took[name].append(timed(argv, SAYS[name] + kernel.release))
    for name, rows in took.items():
        shell, whole = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name}: shell after {shell:.2f} s, whole cycle {whole:.2f} s")
    shell, whole = (statistics.median(column) for column in zip(*took["xdplab"], strict=True))
    print(f"load now {os.getloadavg()[0]:.1f}")
    return [Aim("shell, s", shell, at_most=SHELL_S), Aim("whole cycle, s", whole, at_most=CYCLE_S)]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", default="6.1")
    parser.add_argument("--vng", default=shutil.which("vng"))
    parser.add_argument("--turns", type=int, default=5)


def measure(options: argparse.Namespace) -> list[Aim]:
    kernel = kernels.kernel(options.kernel)
    with tempfile.TemporaryDirectory() as work:
        fast = race(kernel, options.vng, options.turns, Path(work))
        one, other = counts(kernel, Path(work))
    difference = abs(one - other) / one
    print(f"the same loop in two boots: {one} and {other} instructions, {difference:.4%} apart")
    return [*fast, Aim("counts of two boots apart", difference, at_most=MOST_DIFFERENCE)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1800, options=options))
