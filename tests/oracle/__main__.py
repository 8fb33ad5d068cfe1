"""The oracle: what is derived of recorded runs must not change unnoticed. From the root of the checkout:

    python -m tests.oracle record FOLDER    measures one smallest run of every kind (root, guests, about 8 minutes)
    python -m tests.oracle write            derives everything of the recorded runs, and keeps it as expected
    python -m tests.oracle check            derives it again, and prints the first difference of each file

`--only NAME` (repeatable) takes one run, or one subject, of the list. `make test-fast` checks too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from tests.oracle import derive, expected
from tests.oracle.kinds import RECORDED, ROOT, Recorded

MOST_BYTES = 3_000_000


def record(folder: Path, names: Sequence[str]) -> int:
    """Measure the runs into ``folder``, and keep each without names and addresses. Return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [RECORDED[name] for name in names or RECORDED]
    lines = [_measured(run, folder) for run in wanted if run.alone]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines += pool.map(lambda run: _measured(run, folder), [run for run in wanted if not run.alone])
    size = sum(run.archive.stat().st_size for run in RECORDED.values() if run.archive.exists())
    print(f"{size} bytes together, of {MOST_BYTES} at most", flush=True)  # noqa: T201
    return int(not all(lines) or size > MOST_BYTES)


def _measured(run: Recorded, folder: Path) -> bool:
    began = time.monotonic()
    out = Path(tempfile.mkdtemp(prefix=f"{run.name}-", dir=folder))
    done = _xdplab(*run.argv, "--out", str(out))
    (made,) = [path for path in out.iterdir() if path.is_dir()] or [None]
    why = f"was not measured: {done.stderr.strip()[-500:]}" if made is None else ""
    if made is not None and not (why := _kept(run, made, out / "run.zip")):
        said = _xdplab("show", str(made)).stdout.strip().splitlines() or [""]
        verdicts = next((line for line in said if line.startswith("verdicts")), said[-1])
        why = f"{run.archive.stat().st_size} bytes, {time.monotonic() - began:.0f} s; {verdicts}"
    print(f"{run.name}: {why}", flush=True)  # noqa: T201
    return made is not None


def _kept(run: Recorded, made: Path, bundle: Path) -> str:
    """Keep a measured run without names and addresses; return why it cannot be kept, or nothing."""
    done = _xdplab("export", str(made), "--anonymous", "--out", str(bundle))
    if done.returncode:
        return f"was not exported: {done.stderr.strip()[-500:]}"
    with zipfile.ZipFile(bundle) as archive:
        # A kernel module names folders of the machine that built it, and nothing is derived of it.
        names = [name for name in archive.namelist() if name.startswith("run/") and not name.endswith(".ko")]
        files = {f"{run.name}/{name.removeprefix('run/')}": archive.read(name) for name in names}
    if holding := [name for name, data in files.items() if str(ROOT).encode() in data]:
        return f"is not kept: {', '.join(holding)} names this checkout's folder"
    run.archive.parent.mkdir(exist_ok=True)
    run.archive.write_bytes(expected.packed(files))
    return ""


def _xdplab(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "xdplab", *words]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def derived(subject: str) -> derive.Files:
    with tempfile.TemporaryDirectory(prefix="xdplab-oracle-") as folder:
        return derive.SUBJECTS[subject](Path(folder))


def written(subject: str) -> list[str]:
    if why := derive.missing(subject):
        return [f"{subject}: left as it is: {why}"]
    return [f"{subject}: {expected.write(subject, derived(subject))} bytes"]


def checked(subject: str) -> list[str]:
    if why := derive.missing(subject):
        print(f"{subject}: not checked: {why}", flush=True)  # noqa: T201
        return []
    return expected.differences(subject, derived(subject))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "write", "check"))
    parser.add_argument("folder", nargs="?", type=Path, help="of record: where it measures")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[*derive.SUBJECTS])
    asked = parser.parse_args(argv)
    if asked.verb == "record":
        if asked.folder is None:
            parser.error("record needs a FOLDER to measure in")
        return record(asked.folder.absolute(), asked.only)
    act = written if asked.verb == "write" else checked
    with ProcessPoolExecutor() as pool:
        ends = {subject: pool.submit(act, subject) for subject in asked.only or derive.SUBJECTS}
    broken = [f"{subject}: {error!r}" for subject, end in ends.items() if (error := end.exception())]
    lines = [line for end in ends.values() if end.exception() is None for line in end.result()]
    print(*(lines + broken or ["nothing differs"]), sep="\n")  # noqa: T201
    return int(bool(broken) or (asked.verb == "check" and bool(lines)))


if __name__ == "__main__":
    sys.exit(main())
