"""The build tree for a place's modules."""

from __future__ import annotations

import platform
from pathlib import Path

from xdplab.errors import UnsupportedError
from xdplab.labs.guests.modules import BuildTree
from xdplab.labs.uml import source as uml_source
from xdplab.labs.vm import headers
from xdplab.studies.places import HOST


def tree_of(place: str) -> BuildTree:
    """Return the build tree of a place's kernel, fetched where it is a lab's, or another architecture's.

    Raises UnsupportedError if this machine has none of its own kernel, LabError if it cannot be fetched.
    """
    kind, _, rest = place.partition(":")
    if kind == HOST:
        return _own_tree(platform.release())
    if kind == "uml":
        return uml_source.tree()
    return headers.tree(rest.partition(":")[0])


def _own_tree(release: str) -> BuildTree:
    path = Path(f"/lib/modules/{release}/build")
    if not path.is_dir():
        raise UnsupportedError(
            f"this machine has no headers of its kernel {release} to build a module with",
            remedy=f"in Debian: apt install linux-headers-{release}",
        )
    return BuildTree(release, release, path.resolve(), _arch(), "gcc")


def _arch() -> str:
    """Return what kbuild calls this machine's architecture."""
    return {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
