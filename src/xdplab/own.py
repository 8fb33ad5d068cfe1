"""What is a stranger's: a file that names code is only used where it is one's own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from xdplab.errors import XdplabError


class StrangersFileError(XdplabError):
    """A file that names code belongs to another user, or others may write it; nothing of it was run."""

    exit_code = 8


def require_own(path: Path, what: str) -> None:
    """Raise StrangersFileError unless a file is this user's, or root's, and no other user may write it.

    ``what`` says what the file would run. A file of a stranger that was copied is the copier's, who has read it.
    """
    try:
        status = path.stat()
    except OSError:
        return  # its reader gives the better error
    mine = {0, os.geteuid(), int(os.environ.get("SUDO_UID", "0") if os.geteuid() == 0 else 0)}
    if status.st_uid not in mine:
        problem = f"belongs to {_name(status.st_uid)}"
    elif status.st_mode & 0o002:
        problem = "can be written by every user"
    else:
        return
    raise StrangersFileError(
        f"{path} {problem}, and it names {what}",
        remedy="read it; then run a copy of your own (`cp -r`), closed to others (`chmod o-w`)",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
