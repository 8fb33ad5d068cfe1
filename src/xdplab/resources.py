"""Where the C sources, templates, scripts and plans are: in the checkout, or their copies inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE.parents[1], _PACKAGE.parents[1] / "native", _PACKAGE / "shipped", _PACKAGE / "shipped" / "native")


def shipped(name: str) -> Path:
    """Return the folder of a C tool (``xdpgen``, ``xdpload``, ``afxdp_user``, …), of templates, scripts or ``plans``.

    Raises FileNotFoundError where neither a checkout nor a wheel holds it.
    """
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(f"{name!r} is neither in the checkout nor in the installed package")
