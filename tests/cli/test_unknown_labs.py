"""An impossible lab name, and a kernel that cannot be fetched: each verb ends with the same exit code."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from xdplab import cli, labs
from xdplab.errors import LabError, UnsupportedError
from xdplab.labs import cache
from xdplab.labs.vm import archive, kernels
from xdplab.studies.traffic import turns

VERBS = [
    "lab status --lab",
    "lab up",
    "lab down",
    "lab run dut true --lab",
    "plan smoke --lab",
    "run smoke --lab",
    "search smoke --lab",
    "selftest --lab",
    "calibrate --lab",
    "restore --lab",
    "doctor --lab",
    "probe",
    "study execution --place",
    "study loading --place",
    "study jit --place",
    "study offload --place",
    "study neighbour --place",
]
UNKNOWN = {
    "nosuch": "netns, netns:NAME",
    "netns:a/b": "letters, digits",
    "vm:9.9": ", ".join(kernels.KNOWN),
    "vm:6.1:warp": "count",
    "nosuch.yml": "No such file",
}
"""Names, and what each answer offers instead."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The kernels requested from Debian's archive, which has none of them; the cache is empty."""
    names: list[str] = []

    def find(_root: Path, name: str, _suites: object) -> archive.Offer:
        names.append(name)
        raise LabError(f"kernel {name}: Debian's archive has no package of it")

    monkeypatch.setattr(archive, "find", find)
    monkeypatch.setattr(cache, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(kernels, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    kernels._not_offered.cache_clear()
    return names


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", UNKNOWN)
def test_every_verb_refuses_an_unknown_lab_alike(verb: str, name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.cli, [*verb.split(), name])
    assert isinstance(done.exception, LabError), done.output
    assert done.exception.exit_code == LabError.exit_code
    line = str(done.exception)
    assert name.removeprefix("vm:").removeprefix("netns:") in line
    assert UNKNOWN[name] in line
    assert not (tmp_path / "results").exists()


def test_the_archive_is_asked_once_and_only_for_a_kernel_that_is_not_known(asked: list[str]) -> None:
    for name in ("6.1", "6.12", "9.9", "9.9", "7.2"):
        CliRunner().invoke(cli.cli, ["lab", "status", "--lab", f"vm:{name}"])
    assert asked == ["9.9"]


@pytest.mark.parametrize(
    "verb", ["run smoke", "plan smoke", "search smoke", "race array packet", "calibrate", "selftest"]
)
def test_what_needs_rates_is_refused_before_a_guest_that_counts_boots(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(turns, "use_lab", lambda name: pytest.fail("the guest was booted"))
    for name in ("vm:6.12:count", "vm:6.12:count:mine"):
        done = CliRunner().invoke(cli.cli, ["--lab", name, *verb.split()])
        assert isinstance(done.exception, UnsupportedError), done.output
        assert "xdplab cost PROGRAM --kernel 6.12`" in str(done.exception)
    assert not labs.counts("vm:6.12")
    assert not (tmp_path / "results").exists()
