"""Debian's archive: which suite, package and version is taken, and the remedy of each failure."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.available import or_skip

from xdplab.errors import LabError, ResultsWarning
from xdplab.labs.vm import archive
from xdplab.labs.vm.architectures import KNOWN

Says = Callable[..., list[tuple[str, ...]]]
BROKEN = "bookworm-security"
SUITES = (BROKEN, "bookworm")


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> Says:
    """What the archive says to a search and of versions; the list that it returns has the suites that are asked for.

    The lists of suite `BROKEN` cannot be fetched.
    """

    def says(search: str = "", madison: str = "") -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def update(root: Path, suites: tuple[str, ...], architecture: str) -> tuple[str, ...]:
            asked.append((*suites, architecture))
            if BROKEN in suites:
                raise LabError("Mirror sync in progress?")
            return suites

        said = {"search": search, "madison": madison}
        monkeypatch.setattr(archive, "_update", update)
        monkeypatch.setattr(archive, "_apt", lambda _tool, _options, verb, *_: said[verb])
        monkeypatch.setattr(archive, "_require_apt", lambda: None)
        return asked

    return says


def test_apt_reads_no_sources_of_the_machines_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with or_skip("Debian mirror"):
        archive._require_apt()
        archive.mirror()
    monkeypatch.setattr(archive, "_apt", lambda *_: "")
    argv = ["apt-get", *archive._update(tmp_path, SUITES), "indextargets", "--no-release-info"]
    entries = subprocess.run([*argv, "--format", "$(SOURCESENTRY)"], capture_output=True, text=True, check=True).stdout
    assert set(entries.split()) == {f"{tmp_path}/sources.list:{line}" for line in (1, 2)}


def test_a_kernel_that_has_left_the_archive_is_said_to_be_gone(apt: Says, tmp_path: Path) -> None:
    apt("linux-image-6.1.0-9-cloud-amd64 - Linux 6.1\n", " linux-headers-x | 2-2 | x\n")
    with pytest.raises(LabError, match=r"kernel 6\.1: Debian's archive has no package of it.*lab kernels"):
        archive.find(tmp_path, "6.1", ("bookworm",))
    with pytest.raises(LabError, match=r"linux-headers-x 1-1 is not in Debian's archive.*lab kernels --again"):
        archive.find_exactly(tmp_path, "linux-headers-x", "1-1", ("bookworm",))


def test_a_version_is_found_behind_a_suite_that_cannot_be_fetched(apt: Says, tmp_path: Path) -> None:
    apt(madison=" linux-headers-x | 2-2 | x\n")
    assert archive.find_exactly(tmp_path, "linux-headers-x", "2-2", SUITES, "arm64") == ("bookworm",)
    with pytest.raises(LabError, match="Mirror sync"):
        archive.find_exactly(tmp_path, "linux-headers-x", "1-1", SUITES, "arm64")


def test_kernels_of_another_name_than_the_architecture_are_found(apt: Says, tmp_path: Path) -> None:
    """Debian's packages of ppc64el end with powerpc64le; a suite whose lists are broken is passed over, and told."""
    package = "linux-image-6.1.0-56-powerpc64le"
    apt(f"{package} - Linux 6.1 for Little-endian 64-bit PowerPC\n", f" {package} | 6.1.192-2 | bookworm\n")
    with pytest.warns(ResultsWarning, match="passed over, though it may be newer: Mirror sync"):
        offer = archive.find(tmp_path, "6.1", SUITES, "ppc64el", KNOWN["ppc64el"].kernels_end)
    assert offer.release == "6.1.0-56-powerpc64le"
    with pytest.raises(LabError, match="Mirror sync"):
        archive.find(tmp_path, "6.1", SUITES[:1], "ppc64el", "powerpc64le")


def test_only_packages_of_the_architecture_and_the_plain_flavour_are_offered(apt: Says, tmp_path: Path) -> None:
    flavours = ("6.1.0-9-arm64", "6.1.0-56-arm64", "6.1.0-57-rt-arm64", "6.1.0-57-cloud-arm64", "6.1.0-58-arm64-16k")
    shown = "".join(f"linux-image-{one} - Linux 6.1\n" for one in (*flavours, "6.1.0-59-amd64"))
    asked = apt(shown, " linux-image-6.1.0-56-arm64 | 6.1.192-2 | bookworm\n")
    offer = archive.find(tmp_path, "6.1", ("bookworm",), "arm64")
    assert (offer.release, offer.packages) == ("6.1.0-56-arm64", ("linux-image-6.1.0-56-arm64",))
    assert asked == [("bookworm", "arm64")]


def test_backports_come_with_the_suite_that_they_are_for(apt: Says, tmp_path: Path) -> None:
    """clang of trixie-backports needs the C library of trixie."""
    asked = apt(madison=" clang-21 | 1:21.1.8-3~bpo13+2 | trixie-backports\n")
    for suite in ("trixie-backports", "sid"):
        archive.find_newest(tmp_path, "clang-21", (suite,), with_base=True)
    archive.find_newest(tmp_path, "clang-21", ("trixie-backports",))
    assert [suites[:-1] for suites in asked] == [("trixie-backports", "trixie"), ("sid",), ("trixie-backports",)]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("E: Failed to fetch Packages.xz  File has unexpected size (1 != 2). Mirror sync in progress?", "try again"),
        ("E: Failed to fetch InRelease  Temporary failure resolving 'mirror'", "is the network up"),
    ],
)
def test_what_apt_cannot_fetch_has_the_remedy_of_its_cause(tmp_path: Path, words: str, remedy: str) -> None:
    tool = tmp_path / "apt-get"
    tool.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 100\n')
    tool.chmod(0o755)
    with pytest.raises(LabError, match=remedy):
        archive._apt(str(tool), (), "update")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("boot/vmlinuz-6.1.0-9", "vmlinuz"),
        ("lib/modules/6.1.0-9/vmlinuz", "vmlinuz"),
        ("boot/vmlinuz-6.1.0-8", None),
        *((f"lib/modules/6.1.0-9/{path}", f"lib/modules/6.1.0-9/{path}") for path in (
            "modules.dep", "kernel/drivers/net/veth.ko.xz", "kernel/net/ipv6/ipv6.ko", "kernel/drivers/virtio/virtio.ko"
        )),
        ("lib/modules/6.1.0-9/kernel/drivers/net/wireless/iwlwifi.ko", None),
        ("lib/modules/6.1.0-9/kernel/net/../../../../etc/passwd", None),
    ],
)  # fmt: skip
def test_a_packages_kernel_and_the_modules_of_a_guest_are_kept(name: str, kept: str | None) -> None:
    assert archive._target(name, "6.1.0-9") == kept
