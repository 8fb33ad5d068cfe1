"""Where the C rooms and the plans lie: the checkout's own folders, or their copies inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def room(name: str) -> Path:
    """Return the folder of one room: of C (``xdp_progs``, ``xdpload``, ``xdpgen``, ``afxdp_user``, ``bpfverify``,
    ``verifier_progs``, ``offload_progs``, ``microbench``, ``jitbench``, ``loadbench``) or of ``plans``.

    Raises FileNotFoundError where neither a checkout nor a wheel holds it.
    """
    for candidate in (_PACKAGE.parents[1] / name, _PACKAGE / "rooms" / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"room {name!r} is neither in the checkout nor in the installed package")
