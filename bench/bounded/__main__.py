"""`make bench`: every script of bench/ in turn, then one table of all their aims and the machine they were measured on,
and the scripts' own tables.

``--page FILE`` writes the rows of each script between two marks of a page as soon as it has ended, with the tables of
rates beside those of peers; rows of other scripts, and what else was written into the page meanwhile, stay. Each row
has its day and the load before its script: how many processes were ready to run. The exit code is 1 if an aim is missed
or a script ends in another way.
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
ON_THE_PAGE = ("afxdp_vs_testpmd", "xdpgen_rates")
"""Scripts whose own tables are written into a page: rates beside those of peers."""
MOST_ROWS = 12
MANY = {"met": "each within its bounds", "skipped": "not measured"}
"""Verdicts of which a script with many aims has one row, with its text."""
Found = dict[str, tuple[list[str], list[str]]]
"""By script: its rows of the table of aims, and its own tables."""
BEGIN, END = "<!-- the table of make bench begins -->", "<!-- the table of make bench ends -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="names without .py; all by default")
    parser.add_argument("--page", type=Path, help="a page with the two marks")
    parser.add_argument("--data", nargs="*", default=[], help="the thesis' data, for bench/thesis.py")
    arguments = parser.parse_args()
    chosen = [path for path in sorted(BENCH.glob("*.py")) if not arguments.scripts or path.stem in arguments.scripts]
    found: Found = {}
    failed = False
    for script in chosen:
        print(f"\n== {script.name}", flush=True)
        extra = [*arguments.data, "--figures"] if script.stem == WITH_DATA and arguments.data else []
        when = f"{datetime.now(UTC):%m-%d}, load {os.getloadavg()[0]:.1f}"
        began = time.monotonic()
        code, aims, tables = measured(script, extra)
        failed |= bool(code)
        own = rows_of(script.stem, time.monotonic() - began, code, aims, when), tables
        found[script.stem] = own
        if arguments.page:
            write(arguments.page, {script.stem: (own[0], own[1] if script.stem in ON_THE_PAGE else [])})
    print(f"\n{table(found)}")
    return int(failed)


def write(page: Path, own: Found) -> None:
    """Put a script's rows and tables in place of its former ones; the page is read anew, since it may be edited."""
    before, _, rest = page.read_text().partition(BEGIN)
    former, _, after = rest.partition(END)
    partial = page.with_name(f".{page.name}.partial")
    partial.write_text(f"{before}{BEGIN}\n{table(parts(former) | own)}{END}{after}")
    partial.replace(page)


def parts(text: str) -> Found:
    """Return what an earlier run wrote."""
    found: Found = {}
    head, *sections = text.split("\n### ")
    for line in head.splitlines():
        name = line.partition(" | ")[0].removeprefix("| ")
        if (BENCH / f"{name}.py").is_file():
            found.setdefault(name, ([], []))[0].append(line)
    for section in sections:
        name = section.partition(":")[0]
        if name in found:
            found[name][1].append(f"### {section.rstrip()}\n")
    return found


def measured(script: Path, extra: list[str]) -> tuple[int, list[Aim], list[str]]:
    """Run a script; return its exit code, its aims, none if it ended before it had any, and its tables as Markdown."""
    with tempfile.NamedTemporaryFile("r") as kept:
        argv = [sys.executable, str(script), *extra]
        code = subprocess.run(argv, env=os.environ | {AIMS: kept.name}, check=False).returncode
        found = [json.loads(line) for line in kept]
    tables = [f"### {script.stem}: {one['title']}\n\n{one['table']}" for one in found if "table" in one]
    return code, [Aim(**one) for one in found if "table" not in one], tables


def rows_of(name: str, took_s: float, code: int, aims: list[Aim], when: str) -> list[str]:
    """Return Markdown: one row per aim, or one for a script that ended without any.

    If a script has many aims, as a simulation does, only those that were missed have rows of their own.
    """
    shown = aims if len(aims) <= MOST_ROWS else [aim for aim in aims if aim.verdict not in MANY]
    rows = [(aim.name, aim.obtained, aim.bounds, aim.verdict) for aim in shown]
    for verdict, obtained in MANY.items() if len(shown) < len(aims) else ():
        if alike := [aim for aim in aims if aim.verdict == verdict]:
            rows.append((f"{len(alike)} of {len(aims)} aims", obtained, "", verdict))
    if not aims:
        rows = [(f"it ended with exit code {code} after {took_s:.0f} s, before its aims", "", "", "MISSED")]
    return ["| " + " | ".join(c.replace("|", "\\|") for c in (name, *row, when)) + " |" for row in rows]


def table(found: Found) -> str:
    """Return Markdown: the machine, the table of aims, the scripts' own tables."""
    lines = [
        f"{machine()}\n",
        "| bench | what | obtained | aim | | measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [row for name in sorted(found) for row in found[name][0]]
    return "\n".join(["\n".join(lines) + "\n", *(own for name in sorted(found) for own in found[name][1])])


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
