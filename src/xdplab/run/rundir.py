"""A run directory. It is relocatable and written only here; everything in it can be rebuilt from journal and raw
files."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from xdplab.errors import PlanError, ResultsError, XdplabError
from xdplab.resources import cache_root
from xdplab.run.disk import LOCK, disk_errors, locked, reason, replacing, sync, sync_one
from xdplab.run.journal import NAME, Journal
from xdplab.trust import require_run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
SEARCHED = "search.json"
"""The file with a search's options in its run: a continued search must use the same."""
_UNFINISHED = ".new"
_TEMPORARY = re.compile(r"\..+\.partial")
_FOLDERS = ("", "raw/*", "programs", "programs/*", "files/*", "figures", "tables")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class RunDirectory:
    """Paths and writes of one run: plan.yaml, manifest.json, journal.jsonl, programs/, raw/, tables, figures/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")
        self._created: dict[str, Any] | None = None
        self._made_here = False

    @classmethod
    def create(
        cls,
        parent: Path,
        name: str,
        *,
        run_id: str,
        plan_yaml: str,
        fill: Callable[[RunDirectory], None] | None = None,
        **facts: Any,
    ) -> RunDirectory:
        """Make ``parent/<date>-<name>`` (``-2``, ``-3`` … where it exists). Raises ResultsError.

        ``fill`` writes the other contents of a new run, such as the journal's line with the planned trials. The run
        appears under its name when all of this is on disk: a kill or a full disk before that leaves no run.
        ``facts`` go to the journal's first line; ``kind="import"`` marks a run whose tables are not derived from raw
        files of its own.
        """
        if not _NAME.fullmatch(name):
            raise PlanError(f"{name!r} cannot name a run", remedy="letters, digits, . _ - and at most 64")
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with _hidden(parent) as path:
                run = cls(path)
                (path / "plan.yaml").write_text(plan_yaml)
                run.journal.append("created", run_id=run_id, **facts)
                if fill is not None:
                    fill(run)
                for part in (*path.rglob("*"), path):
                    sync_one(part)
                directory = cls(_named(path, f"{date.today().isoformat()}-{name}"))
                directory._made_here = True
                return directory
        except OSError as error:
            raise ResultsError(f"no run directory can be made in {parent}: {reason(error)}") from error

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run. Raises ResultsError if ``path`` is not a run, or was killed before it had a plan."""
        real = Path(os.path.realpath(path))  # of a link that leads to itself too, which `resolve` refuses up to 3.12
        path = path if path.absolute() == real else real  # a link may be changed while the run is used
        if not (path / "journal.jsonl").is_file():
            raise ResultsError(f"{path} is not a run directory (it has no journal.jsonl)", remedy=_runs_in(path))
        run = cls(path)
        run._first()
        return run

    def require_trust(self) -> None:
        """Raise StrangersFileError if others may have written the run, before a command that it names is run."""
        if not self._made_here:
            require_run(self.path)

    def _first(self) -> dict[str, Any]:
        if self._created is None:
            self._created = next(self.journal.events(), None)
        if self._created is None or self._created["event"] != "created":
            raise ResultsError(
                f"{self.path} is not a run: it was killed before its plan was written, and nothing was measured",
                remedy=f"remove it (`rm -r {self.path}`) and start again",
            )
        return self._created

    @property
    def name(self) -> str:
        """The directory's name, also of `.`."""
        return self.path.resolve().name

    @property
    def plan_text(self) -> str:
        """The content of plan.yaml. Raises ResultsError if the run has lost it."""
        try:
            return (self.path / "plan.yaml").read_text()
        except FileNotFoundError:
            raise ResultsError(
                f"{self.path} has lost its plan.yaml, which says what was measured",
                remedy="put that file back, or `xdplab import bundle` the run's bundle again",
            ) from None
        except UnicodeDecodeError as error:
            raise ResultsError(f"{self.path / 'plan.yaml'} is not a plan: {error}") from None

    @property
    def plan_data(self) -> dict[str, Any]:
        """The keys of plan.yaml with their values. Raises ResultsError if it is not such a file."""
        import yaml

        from xdplab.yaml_file import read_yaml, yaml_words

        try:
            data = read_yaml(self.plan_text)
        except yaml.YAMLError as error:
            raise ResultsError(f"{self.path / 'plan.yaml'} is not YAML: {yaml_words(error)}") from None
        return data if isinstance(data, dict) else {}

    @property
    def run_id(self) -> str:
        return str(self._first()["run_id"])

    @property
    def begun(self) -> float:
        """When the run was made, in seconds since 1970."""
        return float(self._first()["time"])

    @property
    def imported(self) -> bool:
        """True if the tables came from other people's logs: they are read unchanged, never rebuilt."""
        return self._first().get("kind") == "import"

    @property
    def cache(self) -> Path:
        """The user's folder for tables derived from a run that the user may not write."""
        import hashlib

        place = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]  # copies of a run may differ
        return cache_root() / "runs" / f"{self.run_id}-{place}"

    @property
    def outputs(self) -> Path:
        """The folder of tables, figures and findings: the run, or the user's cache if the run is read-only.

        Raises ResultsError for another user's run with a link: what the link names would be read, or be replaced.
        """
        if not os.access(self.path, os.W_OK):
            return self.cache
        if self.path.stat().st_uid != os.geteuid():
            _refuse_links(self.path)
        return self.path

    @property
    def figures(self) -> Path:
        return self.outputs / "figures"

    def program_dir(self, program_hash: str) -> Path:
        return self.path / "programs" / _part(program_hash)

    def raw_dir(self, trial_id: str, attempt: int) -> Path:
        return self.path / "raw" / _part(trial_id) / str(attempt)

    @contextmanager
    def attempt(self, trial_id: str, attempt: int) -> Iterator[Path]:
        """Give a scratch folder that becomes ``raw/<trial>/<attempt>`` in one step when the block ends without error.

        A kill at any instant leaves the attempt's raw files whole or absent. They are on disk when this returns: a
        later journal line never names files that a power cut has lost. Raises ResultsError if the disk fails.
        """
        final = self.raw_dir(trial_id, attempt)
        self._require_inside(final)
        scratch = final.with_name(f".{attempt}.partial")
        with disk_errors(final):
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)  # whole, but never journalled: killed between the two
            scratch.mkdir(parents=True)
            try:
                yield scratch
                scratch.rename(final)
                sync(final)
            except BaseException:
                shutil.rmtree(final, ignore_errors=True)
                raise
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _require_inside(self, folder: Path) -> None:
        """Raise ResultsError if the path to a folder of the run leads out of it by a symbolic link."""
        steps = folder.relative_to(self.path).parts
        links = [path for n in range(len(steps)) if (path := self.path.joinpath(*steps[: n + 1])).is_symlink()]
        if links:
            raise ResultsError(
                f"{links[0]} leads out of the run: files there would be replaced",
                remedy="a run directory must contain no links; get a copy without them",
            )

    def record(self, event: str, **facts: Any) -> None:
        """Write a journal line about files of the run; the files are on disk before the line. Raises ResultsError."""
        sync(self.path)
        self.journal.append(event, **facts)

    def write_json(self, relative: str, data: Mapping[str, Any]) -> None:
        self.write_bytes(relative, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())

    def write_bytes(self, relative: str, data: bytes) -> None:
        """Replace a file in one step. Raises ResultsError (full disk)."""
        with replacing(self.path / relative) as scratch:
            scratch.write_bytes(data)

    def write_table(self, relative: str, table: pd.DataFrame) -> None:
        """Replace a parquet file in one step."""
        with replacing(self.path / relative) as scratch:
            table.to_parquet(scratch, index=False, compression="zstd")

    def write_tables(self, relative: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
        """Replace a parquet file in one step by tables of one schema, never more than one of them in memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        named = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        with (
            replacing(self.path / relative) as scratch,
            pq.ParquetWriter(scratch, schema, compression="zstd", use_dictionary=named) as file,
        ):
            for table in tables:
                file.write_table(table)

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Be the only writer: clean up after a kill; refuse if another process measures into this run."""
        with ExitStack() as held:
            self._hold(held)
            _refuse_links(self.path)
            with disk_errors(self.path):
                self.journal.mend()
                for temporary in _temporaries(self.path):
                    _remove(temporary)
            yield

    def _hold(self, held: ExitStack) -> None:
        """If no process can write, as on a read-only mount, no lock is needed."""
        if not os.access(self.path, os.W_OK):
            return
        try:
            with disk_errors(self.path):
                alone = held.enter_context(locked(self.path))
        except PermissionError as error:
            raise ResultsError(
                f"{self.path} was left by a killed run of another user: {reason(error)}: {self.path / LOCK}",
                remedy="let its owner resume it, or resume a copy",
            ) from error
        if not alone:
            raise ResultsError(f"{self.path} is being measured by another process")


def _runs_in(folder: Path) -> str | None:
    """Return where the runs of a folder are; None if it holds none."""
    runs = sorted(journal.parent for journal in folder.glob("*/journal.jsonl"))
    return (f"{runs[0]} is one" if len(runs) == 1 else f"`xdplab runs {folder}` lists those in it") if runs else None


def _part(name: str) -> str:
    """Return a name that the run's files gave, to be a part of a path. Raises ResultsError if it leads elsewhere."""
    if not NAME.fullmatch(name):
        raise ResultsError(f"{name!r} cannot be the name of a folder: the run was edited or damaged")
    return name


def read_json(path: Path, parse: Callable[[Any], T]) -> T:
    """Return what ``parse`` makes of the JSON in a file of a run. Raises ResultsError if it is absent or of other
    content."""
    try:
        return parse(json.loads(path.read_bytes()))
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {reason(error)}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        complaint = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ResultsError(
            f"{path} was edited or damaged: {complaint}", remedy="put it back, or import again"
        ) from error


def sizes(folder: Path) -> dict[str, int]:
    """Return the files below a folder with their bytes, by their paths in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def _refuse_links(folder: Path) -> None:
    """Raise ResultsError for a symbolic link below a run directory: a write would go elsewhere."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise ResultsError(
                    f"{entry.path} is a symbolic link: writes would go elsewhere",
                    remedy="a run directory must contain no links; remove it, or replace it by the file itself",
                )
            if entry.is_dir():
                _refuse_links(Path(entry.path))


def _temporaries(run: Path) -> Iterator[Path]:
    """Yield the leftovers of a kill: half-written files and attempts."""
    for folder in _FOLDERS:
        for path in run.glob(f"{folder}/.*" if folder else ".*"):
            if _TEMPORARY.fullmatch(path.name):
                yield path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _hidden(parent: Path) -> Iterator[Path]:
    """Give a new hidden folder in ``parent``; it is removed when the block ends, unless it was renamed.

    Leftover folders of killed processes are removed; a live process holds its own.
    """
    for left in parent.glob(f".*{_UNFINISHED}"):
        if not left.is_symlink():
            _sweep(left)
    with ExitStack() as stack:
        while (path := _held(parent, stack)) is None:
            pass  # another process removed it as abandoned before it was held
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        yield path


def _held(parent: Path, stack: ExitStack) -> Path | None:
    path = parent / f".{os.urandom(8).hex()}{_UNFINISHED}"
    path.mkdir()
    try:
        ours = stack.enter_context(locked(path))
    except FileNotFoundError:
        return None
    return path if ours else None


def _sweep(unfinished: Path) -> None:
    try:
        with locked(unfinished) as abandoned:
            if abandoned:
                shutil.rmtree(unfinished, ignore_errors=True)
    except (FileNotFoundError, NotADirectoryError, PermissionError, ResultsError):
        return  # its process has just renamed it, or it is another user's, or a link


def _named(path: Path, base: str) -> Path:
    """Rename a folder to the first free name; an empty folder (a kill may have left it) counts as free."""
    for number in range(1, 10_000):
        target = path.with_name(base if number == 1 else f"{base}-{number}")
        try:
            return path.rename(target)
        except (FileExistsError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    raise ResultsError(f"{path.parent} already holds 9,999 runs named {base}")


@contextmanager
def discarded_if_nothing_began(run: RunDirectory) -> Iterator[None]:
    """Remove a run that an error ends before its first trial: a program does not compile, a place is absent."""
    try:
        yield
    except XdplabError as error:
        if next(run.journal.events("started", "finished"), None) is None:
            shutil.rmtree(run.path, ignore_errors=True)
            error.remedy = (error.remedy or "").partition(", then `xdplab resume")[0] or None
        raise
