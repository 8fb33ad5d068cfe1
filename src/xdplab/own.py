"""Files of other users: a file that names code is used only if it belongs to the user, or if the user agrees.

The command line sets how the user is asked (`ask_by`); without that, or without a terminal, the file is refused.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path

from xdplab.errors import XdplabError


class StrangersFileError(XdplabError):
    """A file that names code belongs to another user, or others may write it; none of its commands was run."""

    exit_code = 8


Ask = Callable[[str], bool]
"""A function that asks a question and returns whether the answer is yes."""

BUNDLE = "bundle.json"
"""This file marks an imported run: its files belong to the user who imported it, but others wrote them."""

_ask: Ask | None = None
_allowed: set[tuple[Path, str]] = set()


def ask_by(ask: Ask | None) -> None:
    """Ask the user about another user's file from now on; None: refuse it without a question."""
    global _ask
    _ask = ask
    _allowed.clear()


def require_own(path: Path, what: str) -> None:
    """Raise StrangersFileError unless a file is this user's, or root's, and no other user may write it.

    ``what`` says what the file would run. A copy belongs to the user who made it, who is assumed to have read it. The
    user is asked once for each file and each ``what``.
    """
    _require(path, (path,), what)


def require_own_run(directory: Path) -> None:
    """Raise StrangersFileError unless a run belongs to the user: to continue it is to run the commands that it names.

    The user is asked once for each run directory.
    """
    parts = (directory, directory / "journal.jsonl", directory / "plan.yaml", directory / BUNDLE)
    _require(directory, parts, "commands, programs and labs that are used")


def _require(subject: Path, parts: Sequence[Path], what: str) -> None:
    """Ask about ``subject``, once, if any of its parts belongs to another user."""
    first: dict[str, Path] = {}
    for part in parts:
        if (problem := _problem(part)) is not None:
            first.setdefault(problem, part)
    key = (subject.resolve(), what)
    if not first or key in _allowed:
        return
    words = " and ".join(f"{part} {problem}" for problem, part in first.items()) + f", and it names {what}"
    if _ask is not None and _ask(f"{words}. Have you read it, and may it run?"):
        _allowed.add(key)
        return
    copied = "run a copy of your own (`cp -r`), closed to others (`chmod o-w`)"
    remedy = f"remove {BUNDLE}" if {part.name for part in first.values()} == {BUNDLE} else copied
    raise StrangersFileError(words, remedy=f"read it; then say --trust, or {remedy}")


def _problem(path: Path) -> str | None:
    """Return why a file counts as another user's; None if it does not."""
    try:
        status = path.stat()
    except OSError:
        return None  # reading it gives a better error
    if path.name == BUNDLE:
        return "says that the run came in a bundle"
    mine = {0, os.geteuid(), int(os.environ.get("SUDO_UID", "0") if os.geteuid() == 0 else 0)}
    if status.st_uid not in mine:
        return f"belongs to {_name(status.st_uid)}"
    return "can be written by every user" if status.st_mode & 0o002 else None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
