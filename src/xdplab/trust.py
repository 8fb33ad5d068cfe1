"""Files of other users: what a file names is run only if the user alone could write it, or if the user agrees.

The command line sets how the user is asked (`ask_by`); without that, or without a terminal, the file is refused.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import XdplabError


class StrangersFileError(XdplabError):
    """A file that names code belongs to another user, or others may write it; none of its commands was run."""

    exit_code = 8


Ask = Callable[[str], bool]
"""A function that asks a question and returns whether the answer is yes."""

BUNDLE = "bundle.json"
"""This file marks an imported run: its files belong to the user who imported it, but others wrote them."""
_DATA = ("raw", "figures", "tables")
"""Folders of a run that name nothing that is run."""

_ask: Ask | None = None
_allowed: set[tuple[str, str]] = set()


def ask_by(ask: Ask | None) -> None:
    """Ask the user about another user's file from now on; None: refuse it without a question."""
    global _ask
    _ask = ask
    _allowed.clear()


@dataclass(frozen=True)
class SourceFile:
    """A file's content, and why others may have written it: both of the file that was opened, so no link can be changed
    in between.

    ``folder`` is the file's own, without links: what the file names is relative to it.
    """

    path: Path
    content: bytes
    folder: Path
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        """Raises UnicodeDecodeError."""
        return self.content.decode()

    def require_trust(self, what: str) -> None:
        """Raise StrangersFileError if others may have written the file; ``what`` says what it would run.

        A copy belongs to the user who made it, who is assumed to have read it. The user is asked once for each content
        and each ``what``.
        """
        import hashlib  # loads OpenSSL

        _require(hashlib.sha256(self.content).hexdigest(), self.problems, what)


def read_source(path: Path) -> SourceFile:
    """Read a file that may name code. Raises OSError."""
    with path.open("rb") as file:
        content, status = file.read(), os.fstat(file.fileno())
        real = Path(f"/proc/self/fd/{file.fileno()}").readlink()
        problems = [f"{path} {problem}" for problem in _writers(status, file.fileno())]
    if not real.is_absolute():  # a pipe has no folder
        return SourceFile(path, content, path.parent, tuple(problems))
    return SourceFile(path, content, real.parent, (*problems, *_problems_above(real)))


def require_run(directory: Path) -> None:
    """Raise StrangersFileError if others may have written a run: to continue it is to run the commands that it names.

    The user is asked once for each run directory.
    """
    real = directory.resolve()
    problems = [f"{path} {problem}" for path in _parts(real) for problem in _writers(path.lstat(), path)]
    _require(str(real), (*problems, *_problems_above(real / BUNDLE)), "commands, programs and labs that are used")


def _parts(run: Path) -> Iterator[Path]:
    yield run
    for folder, folders, names in os.walk(run):
        folders[:] = [name for name in folders if name not in _DATA]
        yield from (Path(folder, name) for name in sorted((*folders, *names)))


def _problems_above(file: Path) -> Iterator[str]:
    """Yield which folders above a file let others put another one in its place, or came in a bundle."""
    for folder in file.parents:
        yield from (f"{folder} {problem}" for problem in _writers(folder.lstat(), folder))
        if (folder / BUNDLE).exists():
            yield f"{folder / BUNDLE} says that the run came in a bundle"


def _writers(status: os.stat_result, file: int | Path) -> Iterator[str]:
    """Yield who else may write a file, or may replace the user's files in a folder."""
    trusted = users()
    if status.st_uid not in trusted:
        yield f"belongs to {_user(status.st_uid)}"
    elif stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return  # in a sticky folder each user replaces only his own files
    elif status.st_mode & stat.S_IWOTH:
        yield "can be written by every user"
    elif status.st_mode & stat.S_IWGRP and (others := _others_of_group(status.st_gid, trusted, file)):
        yield f"can be written by {others}"


def users() -> set[int]:
    """Return whose files count as the user's: root's, and those of the user who called sudo."""
    caller = os.environ.get("SUDO_UID", "0") if os.geteuid() == 0 else "0"
    return {0, os.geteuid(), int(caller) if caller.isdecimal() else 0}


def _others_of_group(gid: int, trusted: set[int], file: int | Path) -> str | None:
    """Return the group that may write a file, unless the user is its only member (as many systems set up users)."""
    if "system.posix_acl_access" in os.listxattr(file):
        return "users that its access list names"  # the mode's bits of a group are then those of the list
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return f"group {gid}"
    names = {user.pw_name for user in pwd.getpwall() if user.pw_uid in trusted}
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    return f"group {group.gr_name}" if members - names else None


def _require(subject: str, problems: Sequence[str], what: str) -> None:
    """Ask about ``subject``, once, if there is a problem with it. Of many, the first of each kind is named."""
    if not problems or (subject, what) in _allowed:
        return
    kinds: dict[str, str] = {}
    for problem in problems:
        kinds.setdefault(problem.partition(" ")[2], problem)
    text = f"{' and '.join(kinds.values())}, and it names {what}"
    if _ask is not None and _ask(f"{text}. Have you read it, and may it run?"):
        _allowed.add((subject, what))
        return
    copied = "run a copy of your own (`cp -r`), closed to others (`chmod go-w`), in a folder of your own"
    bundled = all(f"/{BUNDLE} says" in problem for problem in problems)
    raise StrangersFileError(text, remedy=f"read it; then say --trust, or {f'remove {BUNDLE}' if bundled else copied}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
