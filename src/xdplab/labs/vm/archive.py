"""Packages of Debian's archive, through apt with a separate root: the machine's own apt is not changed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from xdplab.errors import LabError, MissingToolError, ResultsWarning
from xdplab.text import natural

MAIN, SECURITY = "debian", "debian-security"
# suite → archive, which every Debian mirror holds under these names
SUITES: dict[str, str] = {
    "bullseye-security": SECURITY,
    "bookworm-security": SECURITY,
    "bookworm": MAIN,
    "trixie-security": SECURITY,
    "trixie": MAIN,
    "trixie-backports": MAIN,
    "sid": MAIN,
    "experimental": MAIN,
}
ALL = tuple(SUITES)
ARCHITECTURE = "amd64"
"""Debian's name of the architecture whose packages are fetched: that of all guests that are labs."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEADLINE_S = 600.0

# From 6.19 on, the content of one package is in three; the old name is an empty package.
_PARTS = ("linux-binary-{}", "linux-modules-{}", "linux-base-{}")
_WHOLE = "linux-image-{}"
_OFFERED = r"^linux-(image|binary)-(\S+-{}) - (?!.*meta-package)"
_OTHER_FLAVOURS = re.compile(r"-(cloud|rt)-")

# The kernel modules that a guest may need, relative to the module tree; a tenth of all.
_KEPT = (
    "modules.*",
    *(f"kernel/{room}/*" for room in ("arch", "crypto", "lib", "net")),
    *(f"kernel/fs/{name}/*" for name in ("9p", "fscache", "netfs", "overlayfs")),
    *("kernel/drivers/char/virtio_console.ko*", "kernel/drivers/virtio/*", "kernel/drivers/net/netdevsim/*"),
    # Cards that QEMU has a model of, and what their drivers need.
    *(f"kernel/drivers/net/{name}/*" for name in ("ethernet/intel/igb", "ethernet/intel/e1000e", "vmxnet3")),
    *(
        f"kernel/drivers/{name}"
        for name in ("dca/*", "ptp/*", "pps/*", "i2c/i2c-core.ko*", "i2c/algos/i2c-algo-bit.ko*")
    ),
)
_KEPT_FLAT = "kernel/drivers/net"
"""A folder of which only the files are kept, without subfolders: veth and virtio_net, not every vendor's cards."""


@dataclass(frozen=True)
class Offer:
    """A kernel that the archive has now: its release (``6.1.0-56-amd64``), package version, packages, and apt's
    options."""

    release: str
    version: str
    packages: tuple[str, ...]
    options: tuple[str, ...]


def find(
    root: Path, name: str, suites: Sequence[str], architecture: str = ARCHITECTURE, ends: str | None = None
) -> Offer:
    """Return the newest kernel whose release begins with ``name``, from the first suite that has one.

    ``root`` is where apt keeps its lists; ``ends``: how releases end, if not with the architecture's name. A suite
    whose lists cannot be fetched is passed over with a warning. Raises LabError if no suite has one.
    """
    wanted = re.compile(re.escape(name) + r"(?![0-9])")
    broken: list[LabError] = []
    for options in _lists(root, suites, architecture, broken):
        shown = _apt("apt-cache", options, "search", "--names-only", f"^linux-(image|binary)-{name}")
        offered = re.findall(_OFFERED.format(ends or architecture), shown, re.MULTILINE)
        releases = {release for _, release in offered if wanted.match(release) and not _OTHER_FLAVOURS.search(release)}
        if releases:
            newest = max(releases, key=natural)
            parts = _PARTS if ("binary", newest) in offered else (_WHOLE,)
            packages = tuple(part.format(newest) for part in parts)
            for one in broken:
                warning = f"kernel {name}: passed over, though it may be newer: {one.message}"
                warnings.warn(warning, ResultsWarning, stacklevel=2)
            return Offer(newest, versions(options, packages[0])[0], packages, options)
    raise LabError(
        f"kernel {name}: Debian's archive has no package of it (any more); looked in {', '.join(suites)}",
        remedy="`xdplab lab kernels` shows what is known and what is in the cache",
    )


def find_exactly(
    root: Path, package: str, version: str, suites: Sequence[str], architecture: str = ARCHITECTURE
) -> tuple[str, ...]:
    """Return apt's options for the first suite that has this version of a package. Raises LabError if none has.

    A suite whose lists cannot be fetched is passed over: the version is the same in any.
    """
    for options in _lists(root, suites, architecture, []):
        if version in versions(options, package):
            return options
    raise LabError(
        f"{package} {version} is not in Debian's archive (any more); looked in {', '.join(suites)}",
        remedy="`xdplab lab kernels --again KERNEL` fetches the kernel of today, which has it",
    )


def _lists(root: Path, suites: Sequence[str], architecture: str, broken: list[LabError]) -> Iterator[tuple[str, ...]]:
    """Yield apt's options for each suite whose lists can be fetched.

    The others' errors go into ``broken``. After the last suite, the first of them is raised.
    """
    _require_apt()
    for suite in suites:
        try:
            options = _update(root / suite, (suite,), architecture)
        except LabError as error:
            broken.append(error)
        else:
            yield options
    if broken:
        raise broken[0]


def find_newest(
    root: Path, package: str, suites: Sequence[str], architecture: str = ARCHITECTURE, *, with_base: bool = False
) -> tuple[tuple[str, ...], str]:
    """Return apt's options for the first suite that has a package, and its newest version. Raises LabError.

    ``with_base``: backports come with the suite that they are for, which has what they depend on.
    """
    _require_apt()
    for suite in suites:
        base = suite.removesuffix("-backports")
        options = _update(root / suite, (suite, base) if with_base and base != suite else (suite,), architecture)
        if offered := versions(options, package):
            return options, offered[0]
    raise LabError(f"{package} is not in Debian's archive (any more); looked in {', '.join(suites)}")


def versions(options: Sequence[str], package: str) -> list[str]:
    """Return the versions of a package, the newest first; none if the suite does not have it."""
    shown = _apt("apt-cache", options, "madison", package)
    return [line.split("|")[1].strip() for line in shown.splitlines()]


def needed(options: Sequence[str], package: str) -> list[str]:
    """Return the names of a package's dependencies; of alternatives the first."""
    shown = _apt("apt-cache", options, "show", "--no-all-versions", package)
    line = next((line for line in shown.splitlines() if line.startswith("Depends:")), "")
    return [need.split()[0] for need in line.removeprefix("Depends:").split(",") if need.strip()]


def dependencies(options: Sequence[str], packages: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of all direct and indirect dependencies of these packages, without virtual ones."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    argv = ("depends", "--recurse", *(f"--no-{kind}" for kind in kinds), *packages)
    needs_of: dict[str, list[str]] = {}
    needs: list[str] = []
    for line in _apt("apt-cache", options, *argv).splitlines():
        if not line.startswith((" ", "<")):
            needs_of[line] = needs = []
        elif line.startswith("<"):
            needs = []
        elif "Depends: " in line and not line.endswith(">"):
            needs.append(line.rpartition(": ")[2])
    return needs_of


def download(packages: Sequence[str], options: Sequence[str], folder: Path) -> list[Path]:
    """Download packages (``NAME`` or ``NAME=VERSION``) into ``folder``; apt checks them by the archive's signature."""
    _apt("apt-get", options, "download", *packages, cwd=folder)
    names = [package.partition("=")[0] for package in packages]
    paths = [next(iter(folder.glob(f"{name}_*.deb")), None) for name in names]
    if missing := [name for name, path in zip(names, paths, strict=True) if path is None]:
        raise LabError(f"apt-get downloaded no {', '.join(missing)}")
    return [path for path in paths if path is not None]


def built_using(package: Path, source: str) -> str:
    """Return the version of a source package that was built into a package. Raises LabError if none was."""
    argv = ["dpkg-deb", "--field", str(package), "Built-Using"]
    output = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    match = re.search(rf"\b{re.escape(source)} \(= ([^)]+)\)", output)
    if match is None:
        raise LabError(f"{package.name} does not say which {source} it was built of")
    return match[1]


def extract(package: Path, folder: Path) -> None:
    done = subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"dpkg-deb cannot unpack {package.name}: {done.stderr.strip()[-300:]}")


def unpack(package: Path, release: str, folder: Path) -> None:
    """Unpack the needed parts of a package: ``vmlinuz`` or ``vmlinux``, ``config`` and ``lib/modules/RELEASE``."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as source:
        with tarfile.open(fileobj=source.stdout, mode="r|") as members:
            for member in members:
                target = _target(member.name.removeprefix("./"), release)
                content = members.extractfile(member) if target and member.isfile() else None
                if target and content:
                    path = folder / target
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
        if source.stdout:
            source.stdout.read()  # read the tar's padding: otherwise its writer dies of a closed pipe
    if source.returncode:
        raise LabError(f"dpkg-deb cannot read {package.name}: exit code {source.returncode}")


def _target(name: str, release: str) -> str | None:
    """Return the target of a package's file, or None if it is not needed."""
    tree = f"lib/modules/{release}/"
    _, is_module, inner = name.partition(tree)
    for single in ("vmlinuz", "vmlinux", "config"):
        if name == f"boot/{single}-{release}" or (is_module and inner == single):
            return single
    if not is_module or ".." in inner:
        return None
    kept = any(fnmatch(inner, pattern) for pattern in _KEPT) or str(Path(inner).parent) == _KEPT_FLAT
    return tree + inner if kept else None


@cache
def mirror() -> str:
    """Return the Debian mirror this machine's own apt uses, without the archive's name. Raises LabError."""
    # Release information is there only after an update.
    argv = ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)"]
    uris = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    mirror_uri = next((uri.rstrip("/") for uri in uris if uri.rstrip("/").endswith(f"/{MAIN}")), None)
    if mirror_uri is None:
        raise LabError(
            "no Debian mirror among this machine's apt sources", remedy="add one: kernels come from Debian's archive"
        )
    return mirror_uri.removesuffix(f"/{MAIN}")


def _update(root: Path, suites: Sequence[str], architecture: str = ARCHITECTURE) -> tuple[str, ...]:
    """Update apt's lists of these suites and return the options that make apt use only these."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    sources = root / "sources.list"
    line = f"deb [arch={architecture} signed-by={KEYRING}] {mirror()}/"
    sources.write_text("".join(f"{line}{SUITES[suite]} {suite} main\n" for suite in suites))
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": root / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": root / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,  # or apt would add those of this machine's own dpkg
        "APT::Sandbox::User": "",  # else root's download goes to a user who may not write here
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
    }
    options = tuple(f"-o{key}={value}" for key, value in settings.items())
    _apt("apt-get", options, "--error-on=any", "update")
    return options


def _apt(tool: str, options: Sequence[str], *argv: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            [tool, "-q", *options, *argv],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"`{tool} {argv[0]}` has not ended in {DEADLINE_S:g} s", remedy="is the network up?") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or [done.stderr.strip()]
        remedy = MIRROR_CHANGES if _MIRROR_CHANGES.search(done.stderr) else "is the network up?"
        raise LabError(f"`{tool} {argv[-1]}`: {lines[0][:300]}", remedy=remedy)
    return done.stdout


MIRROR_CHANGES = "the mirror is being updated: try again in some minutes"
_MIRROR_CHANGES = re.compile(r"unexpected size|Hash Sum mismatch|Mirror sync in progress")
"""What apt says of a list that does not fit the signed index that it had fetched before."""


def _require_apt() -> None:
    needed = {"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg"}
    missing = {package for tool, package in needed.items() if shutil.which(tool) is None}
    if not KEYRING.is_file():
        missing.add("debian-archive-keyring")
    if missing:
        raise MissingToolError(
            f"no kernel can be fetched without {', '.join(sorted(missing))}", remedy="install what is missing"
        )
