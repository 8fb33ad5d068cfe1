"""A run as one file for another machine: an RO-Crate with checksums, and the rows that the import must reproduce.

An export has the journal, the plan, programs and raw files, but nothing derived from them. An import trusts none of it:
it checks names, kinds and sizes of entries before it writes anything, refuses what is derived, and derives the rows
itself before the run appears; commands that the run names are not run (`xdplab.trust`).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.errors import ResultsError, XdplabError
from xdplab.plan.model import claims_room
from xdplab.run.disk import LOCK, disk_errors, reason, replacing
from xdplab.run.rundir import RunDirectory
from xdplab.studies.anonymous import TakenOut, anonymous_copy
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.trust import BUNDLE

if TYPE_CHECKING:
    import pandas as pd

SUMS, CRATE, CITATION, README, ROWS, ABOUT = (
    "SHA256SUMS", "ro-crate-metadata.json", "CITATION.cff", "README.md", "tables/rows.csv", "tables/about.json",
)  # fmt: skip
RUN = "run"
DERIVED = ("figures", "tables", "report.html", "audit.md", "audit.json", "run.log", LOCK, BUNDLE)
MOST_BYTES, MOST_FILES, MOST_RATIO = 8 << 30, 200_000, 1000
"""Limits of an imported bundle: total bytes, entries, and bytes of an entry per byte of the archive."""
MOST_OF_ARTIFACT = 50_000_000
"""Bytes of an artifact for reviewers: what mail, forms and patience take."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Taken:
    """An imported run; ``equal``: the ``rows`` derived here equal those of the export byte for byte; else ``why``."""

    path: Path
    files: int
    rows: int
    equal: bool
    why: str


def export(
    run: Run[Any], path: Path, *, author: str | None = None, licence: str | None = None, artifact: bool = False
) -> Path:
    """Write a run of any kind as a zip file. Raises ResultsError for one that holds a link or a special file, and for
    an import, whose rows cannot be derived again without its logs.

    ``artifact``: for reviewers, with its claims in the README. Raises PlanError for a run without claims, ResultsError
    if it is larger than `MOST_OF_ARTIFACT`.
    """
    _require_source(run)
    files = {f"{RUN}/{name}": source for name, source in _files(run.directory.path)}
    texts = _texts(run, author, licence, artifact)
    sums = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    sums |= {name: _sha256(source) for name, source in files.items()}
    crate = _crate(run, {name: (sums[name], size) for name, size in _sizes(files, texts)}, licence)
    texts[CRATE] = json.dumps(crate, indent=1).encode() + b"\n"
    sums[CRATE] = hashlib.sha256(texts[CRATE]).hexdigest()
    texts[SUMS] = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()
    elsewhere = "free some space, or name another place with `--out`; the run is unchanged"
    with replacing(path, elsewhere) as scratch, zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted([*files, *texts]):
            data = texts[name] if name in texts else files[name].read_bytes()
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # undated: equal runs, equal bytes
        if artifact:
            archive.close()
            _require_small(archive, path, scratch.stat().st_size)
    return path


def _require_small(archive: zipfile.ZipFile, path: Path, size: int) -> None:
    """Raise ResultsError if an artifact is too large, with what takes most of it."""
    if size <= MOST_OF_ARTIFACT:
        return
    sizes: Counter[str] = Counter()
    for entry in archive.infolist():
        sizes["/".join(entry.filename.split("/")[:2])] += entry.compress_size
    largest = ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in sizes.most_common(3))
    raise ResultsError(
        f"{path} would have {size / 1e6:.1f} MB, and an artifact has at most {MOST_OF_ARTIFACT / 1e6:g}: {largest}",
        remedy="measure fewer points, or without the passes that write most; a bundle may have any size",
    )


def _require_source(run: Run[Any]) -> None:
    if run.recipe.derive is None:
        raise ResultsError(
            f"{run.directory.path} was imported: no bundle could prove its rows, which were read from logs",
            remedy="pass the logs on, and import them there",
        )


def export_anonymous(
    run: Run[Any], path: Path, *, author: str | None = None, licence: str | None = None, artifact: bool = False
) -> TakenOut:
    """Write a run as a zip file without names of hosts and users, addresses, keys; return what was taken out.

    Raises ResultsError if this would change its rows otherwise: an address in a plan's factors is part of the
    measurement.
    """
    _require_source(run)
    with tempfile.TemporaryDirectory(prefix="xdplab-anonymous-") as scratch:
        folder, taken = anonymous_copy(run.directory, _files(run.directory.path), Path(scratch))
        copy = open_run(folder)
        try:
            same = rows_csv(copy) == taken.without(rows_csv(run))
        except XdplabError:
            same = False
        if not same:
            raise ResultsError(
                f"{run.directory.path}: without its names and addresses this would be another run",
                remedy="its plan's factors hold one: export it without --anonymous, or measure it with other addresses",
            )
        export(copy, path, author=author, licence=licence, artifact=artifact)
    return taken


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if _is_derived(PurePosixPath(name)) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise ResultsError(
                f"{path} is not a regular file: it cannot be exported", remedy="remove it, or copy what it names"
            )
        yield name.as_posix(), path


def _is_derived(name: PurePosixPath) -> bool:
    """Tell what is made of a run's journal and raw files, or for its user, by its path in the run."""
    return name.parts[0] in DERIVED or name.suffix == ".parquet"


def _sizes(files: dict[str, Path], texts: dict[str, bytes]) -> list[tuple[str, int]]:
    return [(n, p.stat().st_size) for n, p in files.items()] + [(n, len(text)) for n, text in texts.items()]


def _texts(run: Run[Any], author: str | None, licence: str | None, artifact: bool) -> dict[str, bytes]:
    name = run.directory.name
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these measurements, cite them as below.",
        "type": "dataset",
        "title": f"XDP measurements: {name}",
        "authors": [{"name": author or "author not stated"}],
        "date-released": datetime.now(UTC).date().isoformat(),
    } | ({"license": licence} if licence else {})
    about = {"name": name, "kind": run.kind.name, "rules": RULES_VERSION, "xdplab": version("xdplab")}
    readme = (
        f"# {name}\n\nA run of xdplab, kind {run.kind.name}, identity {run.directory.run_id}. `{RUN}/` is the run "
        f"directory without what is derived of it; `{ROWS}` are its rows by rules {RULES_VERSION}; `{SUMS}` has the "
        f"SHA-256 of every file (`sha256sum -c {SUMS}`).\n\n    xdplab import bundle THIS.zip\n\nchecks all of it, "
        f"derives the rows anew and compares them byte by byte. Licence of the data: {licence or 'not stated'}.\n"
    )
    if artifact:
        readme = claims_room("judged").for_reviewers(run) + "\n" + readme
    return {
        CITATION: yaml.safe_dump(citation, sort_keys=False, allow_unicode=True).encode(),
        README: readme.encode(),
        ROWS: rows_csv(run),
        ABOUT: json.dumps(about, indent=1).encode() + b"\n",
    }


def rows_csv(run: Run[Any]) -> bytes:
    """Return the rows of a run as CSV: an import must reproduce these bytes."""
    return _csv(run.rows())


def _csv(rows: pd.DataFrame) -> bytes:
    return rows.to_csv(index=False, lineterminator="\n").encode()


def _crate(run: Run[Any], files: dict[str, tuple[str, int]], licence: str | None) -> dict[str, Any]:
    """Return the metadata file of RO-Crate 1.2 (https://w3id.org/ro/crate/1.2)."""
    parts = [
        {"@id": quote(name), "@type": "File", "contentSize": str(size), "sha256": digest}
        for name, (digest, size) in sorted(files.items())
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": run.directory.name,
        "description": f"A run of xdplab of kind {run.kind.name}: journal, plan, programs and raw output of each trial",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "license": licence or "not stated",
        "identifier": run.directory.run_id,
        "hasPart": [{"@id": part["@id"]} for part in parts],
    }
    described = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.2"},
        "about": {"@id": "./"},
    }
    return {"@context": "https://w3id.org/ro/crate/1.2/context", "@graph": [described, root, *parts]}


@contextmanager
def opened(path: Path) -> Iterator[Run[Any]]:
    """Open a run, or a bundle for as long as it is read. Raises XdplabError."""
    if path.is_dir():
        yield open_run(path)
        return
    with tempfile.TemporaryDirectory(prefix="xdplab-bundle-") as scratch:
        run = open_run(import_bundle(path, Path(scratch)).path)
        try:
            yield run
        finally:
            shutil.rmtree(run.directory.cache, ignore_errors=True)


def import_bundle(path: Path, parent: Path, *, name: str | None = None, most_bytes: int = MOST_BYTES) -> Taken:
    """Import a bundle as a run of ``parent``. Raises ResultsError if anything is wrong with it.

    The run gets its name only after every checksum was verified; until then, nothing of it stays.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _checked(archive, path, most_bytes)
            with _scratch_in(parent) as scratch:
                return _taken(archive, entries, scratch, path, parent, name)
    except FileNotFoundError as error:
        raise ResultsError(f"{error.filename or path}: {reason(error)}", remedy="`xdplab export` makes one") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        what = f"{path} cannot be read as a bundle"
        if isinstance(error, OSError):
            raise ResultsError(f"{what}: {reason(error)}") from error
        whole = "is it whole? Copy it again, or name a file that `xdplab export` wrote"
        raise ResultsError(f"{what}: {' '.join(str(error).split())}", remedy=whole) from error


@contextmanager
def _scratch_in(parent: Path) -> Iterator[Path]:
    """Give a folder in ``parent``, which goes at the end, as do the folders that were made for it and are empty."""
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".bundle-", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def _checked(archive: zipfile.ZipFile, path: Path, most_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by name; none of them leaves the folder, is a link, or is larger than it may be."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        parts = PurePosixPath(entry.filename).parts
        kind = stat.S_IFMT(entry.external_attr >> 16)
        odd = entry.filename.startswith("/") or "\\" in entry.filename or entry.filename != "/".join(parts)
        if odd or not parts or any(part in ("..", ".") for part in parts) or entry.is_dir():
            raise ResultsError(f"{path}: {entry.filename!r} is not a valid file name in a bundle")
        if parts[0] == RUN and len(parts) > 1 and _is_derived(PurePosixPath(*parts[1:])):
            raise ResultsError(
                f"{path}: {entry.filename!r} is derived: no export holds it, and another's would decide what is shown",
                remedy="ask for a bundle that `xdplab export` wrote",
            )
        if kind not in (0, stat.S_IFREG):
            raise ResultsError(f"{path}: {entry.filename!r} is a link or a special file")
        if entry.filename in entries:
            raise ResultsError(f"{path}: {entry.filename!r} occurs twice")
        if entry.file_size > MOST_RATIO * max(entry.compress_size, 1 << 10):
            raise ResultsError(f"{path}: {entry.filename!r} would be {entry.file_size} bytes, of {entry.compress_size}")
        entries[entry.filename] = entry
    total = sum(entry.file_size for entry in entries.values())
    if total > most_bytes or len(entries) > MOST_FILES:
        raise ResultsError(f"{path}: {len(entries)} files of {total} bytes are more than {MOST_FILES} of {most_bytes}")
    return entries


def _taken(
    archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], scratch: Path, path: Path, parent: Path,
    name: str | None,
) -> Taken:  # fmt: skip
    sums = _sums(archive, entries, path)
    for entry in entries.values():
        if entry.filename != SUMS and _written(archive, entry, scratch / entry.filename) != sums[entry.filename]:
            raise ResultsError(f"{path}: {entry.filename} does not match its checksum")
    try:
        about = json.loads((scratch / ABOUT).read_bytes())
        chosen, rules = name or str(about["name"]), str(about["rules"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path}: {ABOUT} cannot be read: {error}") from error
    if not _NAME.fullmatch(chosen):
        raise ResultsError(f"{path}: {chosen!r} is not a valid name of a run", remedy="give one with --name")
    if (parent / chosen).exists():
        raise ResultsError(f"{parent / chosen} already exists", remedy="give another name with --name")
    (scratch / RUN / BUNDLE).write_text(json.dumps({"bundle": path.name, "rules": rules}) + "\n")
    copy_of_run = open_run(scratch / RUN)
    rows = copy_of_run.rows()
    equal = _csv(rows) == (scratch / ROWS).read_bytes()
    derived = copy_of_run.directory.cache
    (scratch / RUN).rename(parent / chosen)
    cache = RunDirectory.open(parent / chosen).cache
    shutil.rmtree(cache, ignore_errors=True)  # of another run that had this name
    with suppress(OSError):
        derived.rename(cache)
    other = f"it was exported by rules {rules}, and these are {RULES_VERSION}" if rules != RULES_VERSION else ""
    return Taken(parent / chosen, len(entries), len(rows), equal, other or ("" if equal else "its rows differ"))


def _sums(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], path: Path) -> dict[str, str]:
    """Return the checksums; they must cover all files and no others."""
    missing = [name for name in (SUMS, ABOUT, ROWS, f"{RUN}/journal.jsonl") if name not in entries]
    if missing:
        raise ResultsError(f"{path} is not a bundle of xdplab: it has no {missing[0]}")
    lines = archive.read(entries[SUMS]).decode(errors="replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if set(sums) != set(entries) - {SUMS}:
        odd = sorted(set(sums) ^ (set(entries) - {SUMS}))[0]
        raise ResultsError(f"{path}: {odd} is in {SUMS} or in the bundle, but not in both")
    return sums


def _written(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> str:
    """Write an entry, never more than its declared size, and return its SHA-256."""
    digest, left = hashlib.sha256(), entry.file_size
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, path.open("xb") as target:
        while data := source.read(_CHUNK):
            left -= len(data)
            if left < 0:
                raise ResultsError(f"{entry.filename} is longer than it says")
            digest.update(data)
            target.write(data)
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
