"""Where the thesis' logs are: a clone, a folder of it, an archive of it, or a folder that holds such archives.

The name of a log says which point it measured; its folder says which repetition, and AF_XDP.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from xdplab.errors import ResultsError

Kind = Literal["generator", "sar", "perf"]
_KINDS: dict[str, Kind] = {"res": "generator", "stats_sar": "sar", "stats_perf": "perf"}
_MODES = {"xdpdrv": "native", "xdpgeneric": "generic"}
_FOLDER = re.compile(r"resultados(?P<af_xdp>_af_xdp)?(?P<repetition>[0-9]{1,3})")
_NAME = re.compile(
    r"(?P<kind>res|stats_sar|stats_perf)_combined_(?P<queues>[0-9]{1,3})(?P<s>[+.])"
    r"algoritmo_for_0_a_(?P<accesses>[0-9]{1,7})(?P=s)pkt_(?P<frame_bytes>[0-9]{2,5})(?P=s)"
    r"ebpf_(?P<hook>xdpdrv|xdpgeneric)(?P=s)varIP_[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?P=s)"
    r"timeout_(?P<seconds>[0-9]{1,5})\.(?P<suffix>txt|csv)"
)
_PROGRAM = re.compile(r"for_0_a_([0-9]{1,7})\.c")
LOG_FOLDERS = {"gerador", "sar", "perf"}


@dataclass(frozen=True)
class Measured:
    """One trial: the point and its repetition."""

    mode: str
    repetition: int
    queues: int
    accesses: int
    frame_bytes: int


@dataclass(frozen=True)
class LogName:
    """What the path of one log says: ``path`` begins with the repetition's folder, ``seconds`` were planned."""

    path: str
    kind: Kind
    suffix: str
    seconds: int
    measured: Measured

    @property
    def stem(self) -> str:
        """The path without its suffix: a ``.csv`` twin has the same."""
        return self.path.rpartition(".")[0]


def below_folder(path: str) -> str | None:
    """Return the part of ``path`` from its last repetition folder on, or None if there is none above a file."""
    parts = PurePosixPath(path).parts
    places = [place for place, part in enumerate(parts[:-1]) if _FOLDER.fullmatch(part)]
    return "/".join(parts[places[-1] :]) if places else None


@dataclass(frozen=True)
class MeasuredProgram:
    """Which trials a C file beside the logs was measured in: all queue counts and sizes, and both hooks of XDP."""

    af_xdp: bool
    repetition: int
    accesses: int


def parse_program(path: str) -> MeasuredProgram | None:
    """Return what the path (as of ``below_folder``) of a C file says, or None if it is no measured program."""
    folder, name = path.split("/", 1)[0], path.rpartition("/")[2]
    place, match = _FOLDER.fullmatch(folder), _PROGRAM.fullmatch(name)
    if place is None or match is None:
        return None
    return MeasuredProgram(bool(place["af_xdp"]), int(place["repetition"]), int(match[1]))


def is_log_place(path: str) -> bool:
    """True for text and CSV files in a folder of logs: all files there should be logs."""
    parts = path.split("/")
    return len(parts) > 2 and parts[1] in LOG_FOLDERS and path.endswith((".txt", ".csv"))


def parse_name(path: str) -> LogName | None:
    """Return what ``path`` (as of ``below_folder``) says, or None if its name is in neither grammar."""
    folder, name = path.split("/", 1)[0], path.rpartition("/")[2]
    place, match = _FOLDER.fullmatch(folder), _NAME.fullmatch(name)
    if place is None or match is None:
        return None
    mode = "af_xdp" if place["af_xdp"] else _MODES[match["hook"]]
    point = (int(match[name]) for name in ("queues", "accesses", "frame_bytes"))
    measured = Measured(mode, int(place["repetition"]), *point)
    return LogName(path, _KINDS[match["kind"]], match["suffix"], int(match["seconds"]), measured)


ARCHIVES = (".tar", ".tar.xz", ".tar.gz", ".tar.bz2", ".tgz", ".txz")
MOST_BYTES = 1 << 20  # the longest log has 0.1 MB: a larger file is not a log
FIRST_BYTES = 128 << 10  # more than the longest log has: one reading is enough
HEAD_BYTES = 8192  # of a twin: its labels and some dozens of rows
MOST_TIMES, UNPACKED_BYTES = 100, 16 << 20
"""An archive of logs unpacks to 30 times its size. More than so many times, beyond so many bytes, and it is none."""


@dataclass(frozen=True)
class Problem:
    """A file with unexpected content: a named, counted anomaly. ``line`` is 1-based or None."""

    file: str
    kind: str
    text: str
    line: int | None = None


@dataclass(frozen=True)
class RawLog:
    """One log: its bytes (out of an archive), or the file that holds them."""

    name: LogName
    file: str | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """Return the log's bytes. Raises OSError."""
        return self.data if self.file is None else _content(self.file)


def _content(file: str) -> bytes:
    """Return a file's bytes in four system calls; a file object takes nine, a tenth of an import's time."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, FIRST_BYTES)
        if len(data) < FIRST_BYTES:
            return data
        parts = [data]
        while part := os.read(descriptor, MOST_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


@dataclass
class Found:
    """Files other than logs: problems, twins (the same log as CSV) and unrelated files.

    ``programs`` are the C files beside the logs, path → text; ``twin_heads`` the beginnings of the twins, stem → bytes.
    """

    problems: list[Problem] = field(default_factory=list)
    twins: int = 0
    others: int = 0
    programs: dict[str, str] = field(default_factory=dict)
    twin_heads: dict[str, bytes] = field(default_factory=dict)

    def add_program(self, path: str, data: bytes) -> None:
        """Keep a C file, once."""
        self.programs.setdefault(path, data.decode(errors="replace"))


def raw_logs(paths: Sequence[Path], files: Found) -> Iterator[RawLog]:
    """Yield every log below ``paths``. Raises ResultsError for a path that is neither folder nor archive."""
    for path in paths:
        if path.is_dir():
            yield from _of_folder(path, files)
        elif path.is_file():
            yield from _of_archive(path, files)
        else:
            raise ResultsError(f"{path} is no folder and no archive", remedy="name a clone of the thesis' repository")


def _of_folder(folder: Path, found: Found) -> Iterator[RawLog]:
    files: dict[str, str] = {}
    archives = []
    sizes: dict[str, int] = {}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        # A path given may itself be a repetition's folder, or lie inside one.
        below = below_folder((Path(parent).absolute() / "*").as_posix())
        inside = None if below is None else below.removesuffix("*")
        for name in folders:
            if inside is not None and parse_name(inside + name):
                found.problems.append(Problem(inside + name, "foreign", "a folder with the name of a log"))
        for name in sorted(names):
            file = f"{parent}/{name}"
            kind, size = _kind_and_size(file)
            if kind == "other":  # a FIFO or a device would be waited for
                found.others += 1
                if inside is not None:
                    found.problems.append(Problem(inside + name, "foreign", "neither a file nor a folder"))
            elif name.endswith(ARCHIVES):
                archives.append(Path(file))
            elif inside is not None:
                files[inside + name], sizes[inside + name] = file, size
            else:
                found.others += 1
    stems = {path.removesuffix(".txt") for path in files if path.endswith(".txt")}
    for path, file in files.items():
        if path.endswith(".csv") and path.removesuffix(".csv") in stems:
            found.twins += 1
            found.twin_heads[path.removesuffix(".csv")] = _head(file)
        elif sizes[path] > MOST_BYTES:
            found.problems.append(Problem(path, "foreign", f"larger than {MOST_BYTES >> 20} MB: no log"))
        elif log_name := _log_name(path, found):
            yield RawLog(log_name, file)
        elif parse_program(path):
            found.add_program(path, Path(file).read_bytes())
    for archive in archives:
        yield from _of_archive(archive, found)


def _kind_and_size(file: str) -> tuple[str, int]:
    try:
        status = os.stat(file)  # noqa: PTH116 - a Path takes longer to make than to ask
    except OSError:
        return "file", 0  # reading it will say why
    return "file" if stat.S_ISREG(status.st_mode) else "other", status.st_size


def _head(file: str) -> bytes:
    try:
        with Path(file).open("rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""  # it is a duplicate: nothing is missing without it


def _log_name(path: str, files: Found) -> LogName | None:
    """Return what the path says; a text file among the logs with another name is a problem, others are no logs."""
    name = parse_name(path)
    if name is None and is_log_place(path):
        files.problems.append(Problem(path, "foreign", "its name is in neither grammar of the logs"))
    elif name is None and parse_program(path) is None:
        files.others += 1
    return name


def _of_archive(archive: Path, files: Found) -> Iterator[RawLog]:
    """Twins are known only at an archive's end: CSV files are kept until then."""
    stems: set[str] = set()
    waiting: list[RawLog] = []
    try:
        for member, data in _members(archive):
            path = below_folder(member)
            if path is None:
                files.others += 1
            elif data is None:
                files.problems.append(Problem(path, "foreign", f"larger than {MOST_BYTES >> 20} MB: no log"))
            elif (name := _log_name(path, files)) and name.suffix == "csv":
                waiting.append(RawLog(name, None, data))
            elif name:
                stems.add(name.stem)
                yield RawLog(name, None, data)
            elif parse_program(path):
                files.add_program(path, data)
    except (tarfile.ReadError, EOFError, lzma.LZMAError, zlib.error) as error:
        if not stems:
            raise ResultsError(f"{archive} cannot be read as an archive: {error}") from error
        files.problems.append(Problem(archive.name, "truncated", f"the archive ends early: {error}"))
    twins = {log.name.stem: log.data[:HEAD_BYTES] for log in waiting if log.name.stem in stems}
    files.twins += len(twins)
    files.twin_heads |= twins
    yield from (log for log in waiting if log.name.stem not in twins)


def _members(archive: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield (path, bytes) of the regular files in an archive, None for bytes that are too many to be a log."""
    try:
        most, unpacked = MOST_TIMES * archive.stat().st_size + UNPACKED_BYTES, 0
        with _opened(archive) as tar:
            for member in tar:
                unpacked += member.size
                if unpacked > most:
                    raise ResultsError(f"{archive} unpacks to more than {most:,} bytes: that is no archive of logs")
                if not member.isfile():
                    continue
                stream = tar.extractfile(member) if member.size <= MOST_BYTES else None
                yield member.name, stream.read() if stream else None
    except OSError as error:
        raise ResultsError(f"{archive} cannot be read: {error.strerror or error}") from error


def _opened(archive: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(archive, "r|*")
    except AttributeError:  # CPython's own fault, at a gzip header with an extra field
        raise tarfile.ReadError("its gzip header is damaged, or has an extra field") from None
