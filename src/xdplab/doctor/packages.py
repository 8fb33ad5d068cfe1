"""The one table of what a machine needs (packages.tsv), with each distribution's package names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("packages.tsv")
INSTALLERS = {"debian": "apt-get install", "ubuntu": "apt-get install", "fedora": "dnf install"}


@dataclass(frozen=True)
class Need:
    """One line of the table. ``packages`` is keyed by distribution; A|B means that releases without package A have
    B."""

    look: str
    name: str
    use: str
    packages: dict[str, str]
    why: str

    def remedy(self, distribution: str | None) -> str:
        """Return the command to type or, if the distribution is unknown, the package to look for."""
        if distribution is None:
            return f"install what has {self.name} (Debian: {self.packages['debian']})"
        here, _, older = self.packages[distribution].partition("|")
        return f"{INSTALLERS[distribution]} {here}" + (f" (in older releases {older})" if older else "")


def needs(use: str | None = None) -> list[Need]:
    """Return the table's lines, all or those of one use."""
    lines = [line.split("\t") for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    table = [
        Need(look, name, use_, {"debian": debian, "ubuntu": ubuntu, "fedora": fedora}, why)
        for look, name, use_, debian, ubuntu, fedora, why in lines
    ]
    return [need for need in table if use in (None, need.use)]


def distribution(os_release: str) -> str | None:
    """Return the column for the machine of this /etc/os-release, or None."""
    lines = (line.partition("=") for line in os_release.splitlines())
    values = {key: value.strip("\"'") for key, _, value in lines}
    return _first_known([values.get("ID", ""), *values.get("ID_LIKE", "").split()])


def _first_known(words: Iterable[str]) -> str | None:
    return next((word for word in words if word in INSTALLERS), None)
