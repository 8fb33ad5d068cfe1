"""`make bench`: every script of bench/ in turn, then one table of all their aims and the machine they were measured on.

``--page FILE`` also writes the table between two marks of a page. The exit code is 1 if an aim is missed or a script
ends with another exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bounded import AIMS, Aim

BENCH = Path(__file__).parents[1]
WITH_DATA = "thesis"
MOST_ROWS = 12
BEGIN, END = "<!-- the table of make bench begins -->", "<!-- the table of make bench ends -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="names without .py; all by default")
    parser.add_argument("--page", type=Path, help="a page with the two marks")
    parser.add_argument("--data", nargs="*", default=[], help="the thesis' data, for bench/thesis.py")
    arguments = parser.parse_args()
    chosen = [path for path in sorted(BENCH.glob("*.py")) if not arguments.scripts or path.stem in arguments.scripts]
    rows: list[tuple[str, float, int, list[Aim]]] = []
    for script in chosen:
        print(f"\n== {script.name}", flush=True)
        extra = [*arguments.data, "--figures"] if script.stem == WITH_DATA and arguments.data else []
        began = time.monotonic()
        code, aims = measured(script, extra)
        rows.append((script.stem, time.monotonic() - began, code, aims))
    text = table(rows)
    print(f"\n{text}")
    if arguments.page:
        before, _, rest = arguments.page.read_text().partition(BEGIN)
        arguments.page.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")
    return int(any(code for _, _, code, _ in rows))


def measured(script: Path, extra: list[str]) -> tuple[int, list[Aim]]:
    """Run a script; return its exit code and the aims that it had reported by its end."""
    with tempfile.NamedTemporaryFile("r") as kept:
        argv = [sys.executable, str(script), *extra]
        code = subprocess.run(argv, env=os.environ | {AIMS: kept.name}, check=False).returncode
        return code, [Aim(**json.loads(line)) for line in kept]


def table(rows: list[tuple[str, float, int, list[Aim]]]) -> str:
    """Return Markdown: one row per aim, and one per script that ended without any.

    If a script has many aims, as a simulation does, only those that were not met have rows of their own.
    """
    lines = [f"{machine()}\n", "| bench | what | obtained | aim | |", "| --- | --- | --- | --- | --- |"]
    for name, took_s, code, aims in rows:
        shown = aims if len(aims) <= MOST_ROWS else [aim for aim in aims if aim.verdict != "met"]
        if len(aims) > len(shown):
            lines.append(f"| {name} | {len(aims) - len(shown)} of {len(aims)} aims | each within its bounds | | met |")
        for aim in shown:
            cells = (name, aim.name, aim.obtained, aim.bounds, aim.verdict)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        if not aims:
            lines.append(
                f"| {name} | it ended with exit code {code} after {took_s:.0f} s, before its aims | | | MISSED |"
            )
    return "\n".join(lines) + "\n"


def machine() -> str:
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {len(os.sched_getaffinity(0))} CPUs ({next(iter(model), platform.machine())}), "
        f"Linux {platform.release()}, Python {platform.python_version()}, load at the end {load}."
    )


if __name__ == "__main__":
    sys.exit(main())
