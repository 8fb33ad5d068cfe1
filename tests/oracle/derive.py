"""Everything that is derived of recorded runs, of plans and of a replayed run, as files.

The command line derives it, so that the code below it may be divided anew.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import yaml
from click.testing import CliRunner

from tests.oracle.kinds import RECORDED, ROOT, Recorded
from tests.unpack import unpacked
from xdplab.cli import cli
from xdplab.errors import ResultsWarning, XdplabError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kind import Kind, Run

Files = dict[str, bytes]
DATA = Path(os.environ.get("XDPLAB_THESIS_DATA", ROOT.parent / "shared" / "data"))
THESIS = DATA / "thesis-dev.tar.xz"
SAMPLE = ROOT / "results" / "sample"
KEPT = (".csv", ".json", ".md", ".svg", ".txt")
"""A figure's PDF and PNG, on request, say what its SVG says."""
NUMBER = re.compile(rb"(-?\d+\.\d+(?:e[-+]?\d+)?)")
DATED = ("CITATION.cff", "ro-crate-metadata.json")
"""Files of a bundle with the day of the export."""


def spoken(*argv: str) -> bytes:
    """Return what a command prints, and its error or exit code. Needs neither root nor a lab."""
    done = CliRunner().invoke(cli, argv)
    if done.exception is not None and not isinstance(done.exception, SystemExit | XdplabError):
        raise done.exception
    error = done.exception if isinstance(done.exception, XdplabError) else None
    code = done.exit_code if isinstance(done.exception, SystemExit) else 0
    ended = f"{type(error).__name__}: {error}\n" if error else f"exit code {code}\n" if code else ""
    return (done.stdout + ended).encode()


@contextlib.contextmanager
def at(folder: Path) -> Iterator[None]:
    """Work in a folder of its own: no output depends on the machine's paths, width, time zone or cache."""
    before = dict(os.environ)
    os.environ |= {"XDPLAB_CACHE": str(folder / "cache"), "TZ": "UTC", "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
    time.tzset()
    try:
        with contextlib.chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResultsWarning)
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


def as_csv(table: Path) -> bytes:
    """Return a table as CSV; its second line has the types of the columns."""
    frame = pd.read_parquet(table)
    names, *rows = frame.to_csv(index=False, lineterminator="\n").encode().split(b"\n", 1)
    return b"\n".join([names, ",".join(map(str, frame.dtypes)).encode(), *rows])


def kept(folder: Path) -> Files:
    """Return the files of a folder that are compared, by their names below it."""
    files = {f"{folder.name}/{path.name}": path.read_bytes() for path in folder.glob("*") if path.suffix in KEPT}
    return {name: rounded(data) if name.endswith(".svg") else data for name, data in files.items()}


def rounded(svg: bytes) -> bytes:
    """Return an SVG whose numbers have two decimals: what another CPU adds in another order looks the same."""
    return NUMBER.sub(lambda number: f"{float(number[0]):.2f}".encode(), svg)


@contextlib.contextmanager
def opened_once() -> Iterator[None]:
    """Give all commands one `Run` of a folder: what several of them show is derived once."""
    runs: dict[Path, Run[Any]] = {}
    opened, tables = Kind.run, Run.tables

    def run_in(kind: Kind[Any], directory: RunDirectory) -> Run[Any]:
        return runs.setdefault(directory.path.resolve(), opened(kind, directory))

    with (
        patch.object(Kind, "run", run_in),
        patch.object(Run, "tables", lambda run: run._once("tables", partial(tables, run))),
    ):
        yield


@opened_once()
def of_run(run: str, other: str) -> Files:
    """Return all that the commands derive of the run in folder ``run``, and its comparison with ``other``."""
    printed = {
        "tables.txt": spoken("tables", run),
        "status.json": spoken("status", run, "--json"),
        "show.json": spoken("show", run, "--json"),
        "audit.txt": spoken("audit", run),
        "compare.json": spoken("compare", run, other, "--json"),
        "figures.txt": spoken("figures", run, "--out", "figures"),
        "export.txt": spoken("export", run, "--out", "run.zip"),
    }
    found = {path.with_suffix(".csv").name: as_csv(path) for path in Path(run).glob("*.parquet")}
    found |= {path.name: path.read_bytes() for path in Path(run).glob("audit.*")}
    return printed | found | kept(Path(run) / "tables") | kept(Path("figures"))


def bundled(bundle: Path) -> bytes:
    """Return the checksums of an exported bundle's files; one of all the files of the run, which are as recorded."""
    if not bundle.exists():
        return b"no bundle\n"
    sums = zipfile.ZipFile(bundle).read("SHA256SUMS").decode().splitlines(keepends=True)
    asis = [line for line in sums if line.partition("  ")[2].startswith("run/")]
    more = [line for line in sums if line not in asis and not line.rstrip().endswith(DATED)]
    return "".join([*more, f"{digest(''.join(asis).encode())}  run/ ({len(asis)} files)\n"]).encode()


def digest(data: bytes) -> str:
    """Return the first 16 digits of a checksum: they tell files apart."""
    return hashlib.sha256(data).hexdigest()[:16]


def recorded(run: Recorded, folder: Path) -> Files:
    for name in {run.name, run.other or run.name}:
        unpacked(RECORDED[name].archive, folder)
    with at(folder):
        return of_run(run.name, run.other or run.name) | {"SHA256SUMS": bundled(Path("run.zip"))}


def sample(folder: Path) -> Files:
    """The run that comes with the project, without its tables."""
    without = shutil.ignore_patterns("*.parquet", "figures", "tables", "audit.*")
    shutil.copytree(SAMPLE, folder / "sample", ignore=without)
    with at(folder):
        return of_run("sample", "sample") | {"SHA256SUMS": bundled(Path("run.zip"))}


def made_up(folder: Path) -> Files:
    """An import of made-up logs in the formats of the thesis."""
    from xdplab.thesis import made_logs  # whoever deletes the thesis deletes these two subjects

    made_logs.write(folder / "logs", made_logs.tree())
    return _imported(folder)


def thesis(folder: Path) -> Files:
    """An import of a slice of the thesis' own logs, which are not here: only checksums are kept of what is derived."""
    (folder / "logs").mkdir()
    (folder / "logs" / THESIS.name).symlink_to(THESIS.absolute())
    return _imported(folder)


BEGUN = re.compile(rb'"begun": "[^"]*"')
"""An import begins when it is made."""


def _imported(folder: Path) -> Files:
    with at(folder):
        with patch("secrets.token_hex", "0a".__mul__):  # the run's identity
            spoken("import", "thesis", "logs", "--out", "results")
        (made,) = Path("results").iterdir()
        made.rename("run")
        drawn = {"regenerate.txt": spoken("regenerate", "run", "--csv", "--out", "published")}
        files = drawn | of_run("run", "run") | kept(Path("published"))
    return {
        name: BEGUN.sub(b'"begun": "now"', data) if name.endswith(".json") else data for name, data in files.items()
    }


def plans(folder: Path) -> Files:
    """Every plan, dry."""
    with at(folder), one_cpu():
        files = sorted((ROOT / "plans").glob("*.yaml"))
        dry = {f"{p.stem}.json": spoken("--lab", "netns", "plan", str(p), "--dry-run", "--json") for p in files}
        return dry | {"factors.md": spoken("plan", "--factors"), "schema.json": spoken("plan", "--schema")}


@contextlib.contextmanager
def one_cpu() -> Iterator[None]:
    """Work on one CPU: a plan's arrangement depends on their number."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def sources(folder: Path) -> Files:
    """The programs of three plans, as C."""
    with at(folder):
        return {f"{plan}.txt": programs_of(plan) for plan in ("smoke", "quick", "thesis-mini")}


def programs_of(plan: str) -> bytes:
    """Return the checksum of each program's C text in a plan."""
    lines = {}
    for block in yaml.safe_load((ROOT / "plans" / f"{plan}.yaml").read_text())["blocks"]:
        points = {name: value if isinstance(value, list) else [value] for name, value in block["points"].items()}
        for workload, *values in product(points["workload"], *(points.get(name, [None]) for name in PROGRAM)):
            given = [(option, str(v)) for option, v in zip(PROGRAM.values(), values, strict=True) if v is not None]
            words = [workload, *(word for pair in given for word in pair)]
            lines[" ".join(words)] = digest(spoken("programs", "show", *words))
    return "".join(f"{kept_sum}  {words}\n" for words, kept_sum in lines.items()).encode()


PROGRAM = {"accesses": "--accesses", "op": "--op", "map_type": "--map-type", "working_set_bytes": "--working-set"}
"""A point's factors that are part of its program, and the options of `programs show`."""


def journal(folder: Path) -> Files:
    """The journal of a run that is measured again from its record, without a lab: its events, and the keys of each."""
    argv = [sys.executable, "-c", REPLAY, str(SAMPLE), str(folder / "results")]
    paths = {"XDPLAB_CACHE": str(folder / "cache"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    subprocess.run(argv, check=True, cwd=folder, env=os.environ | paths, capture_output=True)
    (path,) = (folder / "results").glob("*/journal.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return {"events.txt": "".join(f"{event['event']}: {' '.join(keys(event))}\n" for event in events).encode()}


REPLAY = """
import sys
from pathlib import Path
from tests.faults.replay import Record, Replay
Path(sys.argv[2]).mkdir()
Replay(Record(Path(sys.argv[1])), Path(sys.argv[2])).whole()
"""


def keys(event: Mapping[str, Any], depth: int = 2) -> Iterator[str]:
    for name, value in event.items():
        inner = " ".join(keys(value, depth - 1)) if isinstance(value, dict) and depth > 1 else ""
        yield f"{name}{{{inner}}}" if inner else name


SUBJECTS: dict[str, Callable[[Path], Files]] = {
    "plans": plans,
    "sources": sources,
    "journal": journal,
    "sample": sample,
    "import": made_up,
    "thesis": thesis,
    **{name: partial(recorded, run) for name, run in RECORDED.items()},
}
"""What is derived, by name: each takes an empty folder."""
NOT_KEPT = ("thesis",)
"""Subjects of which only checksums are kept."""


def missing(subject: str) -> str | None:
    """Return why a subject cannot be derived here."""
    if subject == "thesis" and not THESIS.is_file():
        return f"the thesis' raw logs are not here: no {THESIS} (XDPLAB_THESIS_DATA names another folder)"
    if subject == "sources" and shutil.which("clang") is None:
        return "`xdplab programs show` needs clang"
    return None
