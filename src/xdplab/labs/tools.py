"""Tools of this machine that a kind of lab, or a study, needs."""

import os
import shutil
from collections.abc import Mapping

from xdplab.errors import MissingToolError


def path_of(tool: str) -> str | None:
    """Return the path of a tool of this machine, also of one that only root's PATH has; None if it is not here."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")


def require_tools(what: str, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of tools. Raises MissingToolError: ``what`` needs those that are missing, of these packages."""
    paths = {tool: path_of(tool) for tool in packages}
    if missing := [tool for tool, path in paths.items() if path is None]:
        names = sorted({packages[tool] for tool in missing})
        raise MissingToolError(f"{what} needs {', '.join(missing)}", remedy=f"apt install {' '.join(names)}")
    return {tool: str(path) for tool, path in paths.items()}
