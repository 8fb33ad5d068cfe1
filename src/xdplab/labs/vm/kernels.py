"""Debian's kernels for guests: found and checked by apt, unpacked into the user's own cache, never installed.

A kernel's folder holds what a guest needs and nothing else: ``vmlinux`` (booted directly, which saves the guest its
decompression), ``boot.cpio`` (the modules without which it cannot reach its root), ``config``, and the module tree
without drivers that no guest needs. A complete folder is renamed into place, so an interrupted fetch cannot look
finished.

From a distribution's ``vmlinuz`` to the ``vmlinux`` inside it.

Source of the layout: the kernel's Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from xdplab.errors import LabError
from xdplab.labs.base import ARCHITECTURE_MARK, MITIGATED, OWN_KERNEL
from xdplab.labs.cache import cache_dir, locked, make, mark_used, require_space
from xdplab.labs.tools import require_tools
from xdplab.labs.vm import architectures, archive, initramfs
from xdplab.labs.vm.architectures import Architecture
from xdplab.run.disk import reason
from xdplab.text import natural

_MAGIC = (0x202, b"HdrS")
_SETUP_SECTORS, _PAYLOAD, _VERSION = 0x1F1, 0x248, 0x20E
_ELF = b"\x7fELF"
_BANNER = re.compile(rb"Linux version (\d+\.\d+[^\n\0]*)")


def vmlinux(vmlinuz: bytes) -> bytes:
    """Return the ELF image. Raises ValueError if the file is not a kernel, or its compression is unknown."""
    offset, magic = _MAGIC
    if vmlinuz[offset : offset + len(magic)] != magic:
        raise ValueError("its vmlinuz is no x86 kernel image")
    sectors = vmlinuz[_SETUP_SECTORS] or 4
    start, length = struct.unpack_from("<II", vmlinuz, _PAYLOAD)
    start += (sectors + 1) * 512
    image = _decompressed(vmlinuz[start : start + length])
    if not image.startswith(_ELF):
        raise ValueError("what its vmlinuz holds is no ELF image")
    return image


def image_version(content: bytes) -> str:
    """Return the version in a kernel's image: a bzImage has it in its header, a vmlinux in its banner.

    Raises ValueError if the file is neither.
    """
    offset, magic = _MAGIC
    if content[offset : offset + len(magic)] == magic:
        start = struct.unpack_from("<H", content, _VERSION)[0] + 512
        banner = content[start : content.find(b"\0", start)]
    else:
        match = _BANNER.search(content) if content.startswith(_ELF) else None
        banner = match[1] if match else b""
    text = banner.decode("ascii", errors="replace").strip()
    if not re.match(r"\d+\.\d+", text):
        raise ValueError("it is no x86 kernel image (bzImage or vmlinux) that names its version")
    return text


def _decompressed(payload: bytes) -> bytes:
    for magic, decompress in _DECOMPRESSORS.items():
        if payload.startswith(magic):
            return decompress(payload)
    raise ValueError(f"its vmlinuz is compressed in a way that is not known here: {payload[:6].hex()}")


def _zstd(payload: bytes) -> bytes:
    import pyarrow as pa  # imported here, because labs are used far more often than kernels are fetched

    size: int = struct.unpack("<I", payload[-4:])[0]  # appended by the kernel's Makefile
    plain: bytes = pa.Codec("zstd").decompress(payload[:-4], decompressed_size=size, asbytes=True)
    return plain


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    # ends with the stream: the size after it does not belong to it
    b"\xfd7zXZ\0": lambda payload: lzma.LZMADecompressor().decompress(payload),
    b"\x1f\x8b": lambda payload: zlib.decompressobj(wbits=31).decompress(payload),
    b"\x28\xb5\x2f\xfd": _zstd,
}


KNOWN: dict[str, tuple[str, ...]] = {
    "5.10": ("bullseye-security",),
    "6.1": ("bookworm-security", "bookworm"),
    "6.12": ("bookworm-security", "trixie-security"),
    "7.2": ("trixie-backports", "sid"),
}
"""Kernels that are tested, and the suites that have them; any other name is searched in all suites."""

CHECKED = ("vmlinux", "boot.cpio", "busybox", "config")
_DESCRIPTION = "kernel.json"
_NAME = re.compile(rf"\d+\.\d+[A-Za-z0-9.+~-]*|{OWN_KERNEL}[0-9a-f]{{12}}")
_SPACE_MB = 1000
"""The most disk space for packages and unpacked files of one kernel while it is fetched."""


@dataclass(frozen=True)
class Kernel:
    """One kernel in the cache. ``sha256`` holds the hex digest of each file in `CHECKED`.

    ``packages``: for a user's own kernel, its version string with the hash of its image.
    """

    name: str
    release: str
    version: str
    packages: tuple[str, ...]
    sha256: dict[str, str]
    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / name

    def check(self) -> None:
        """Raise LabError unless the guest's boot files are those that were fetched."""
        for name, expected in self.sha256.items():
            try:
                checksum = _sha256(self.file(name))
            except OSError as error:
                checksum = str(error.strerror)
            if checksum != expected:
                raise LabError(
                    f"kernel {self.name}: {self.file(name)} is not what was fetched",
                    remedy=f"`xdplab lab kernels --again {self.name}`",
                )


def cached() -> list[Kernel]:
    """Return the kernels in the cache, by release."""
    descriptions = sorted((cache_dir() / "kernels").glob(f"*/{_DESCRIPTION}"))
    return sorted((_read(path.parent) for path in descriptions), key=lambda kernel: natural(kernel.release))


def kernel(name: str) -> Kernel:
    """Return a kernel by name (``6.1``, or more exactly ``6.1.0-56``), fetched if it is not in the cache, checked.

    The boot option (`MITIGATED`) does not make it another kernel.
    """
    name = name.removesuffix(MITIGATED)
    _require_form(name)
    cached_kernel = _in_cache(name) or fetch(name)
    cached_kernel.check()
    mark_used(cached_kernel.folder)
    return cached_kernel


def _in_cache(name: str) -> Kernel | None:
    """Return the newest kernel of that name in the cache."""
    have = [kernel for kernel in cached() if _is_called(kernel, name)]
    return have[-1] if have else None


def _is_called(kernel: Kernel, name: str) -> bool:
    """Tell whether a kernel is of that name and of the same architecture."""
    if OWN_KERNEL in (kernel.name[: len(OWN_KERNEL)], name[: len(OWN_KERNEL)]):
        return kernel.name == name
    plain, _, architecture = name.partition(ARCHITECTURE_MARK)
    same = kernel.name.partition(ARCHITECTURE_MARK)[2] == architecture
    return same and re.match(re.escape(plain) + r"(?![0-9])", kernel.release) is not None


def require_available(name: str) -> None:
    """Raise LabError for a kernel that is neither known nor in the cache nor in Debian's archive.

    The archive is asked only for a name that is neither known nor in the cache; this takes some seconds, once.
    """
    plain = name.removesuffix(MITIGATED)
    _require_form(plain)
    if plain in KNOWN or _in_cache(plain) or (why := _not_offered(plain)) is None:
        return
    names = sorted({kernel.name for kernel in cached()})
    raise LabError(
        f"kernel {plain}: {why}",
        remedy=f"there are {', '.join(KNOWN)}; in the cache: {', '.join(names) or 'none'}",
    )


@functools.cache
def _not_offered(name: str) -> str | None:
    """Return why a kernel cannot be fetched; None if it can."""
    if name.startswith(OWN_KERNEL):
        return "it is a user's own, and not in the cache"
    try:
        with locked("kernels") as root:
            _find(root / "apt", name)
    except LabError as error:
        return error.message.removeprefix(f"kernel {name.partition(ARCHITECTURE_MARK)[0]}: ")
    return None


def fetch(name: str, *, again: bool = False) -> Kernel:
    """Fetch the newest kernel of that name. One that is in the cache already is kept, unless ``again``.

    Raises LabError naming what is missing: the package, apt, space.
    """
    _require_form(name)
    if name.startswith(OWN_KERNEL):
        raise LabError(f"kernel {name} is a user's own and not in the cache", remedy="name its image again")
    with locked("kernels") as root:
        require_space(root, f"kernel {name}", _SPACE_MB)  # before apt is asked: that takes seconds
        offer = _find(root / "apt", name)
        folder = root / f"{offer.release}_{offer.version}"
        if again or not folder.exists():
            _, architecture = architectures.parted(name)
            fill = functools.partial(_fill_foreign, offer, name, architecture) if architecture else None
            make(folder, fill or functools.partial(_fill, offer, name), what=f"kernel {name}", space_mb=_SPACE_MB)
        return _read(folder)


def with_driver(kernel: Kernel, driver: str) -> Kernel:
    """Return the kernel with the module of a driver; one that was fetched without it is fetched again.

    Raises LabError for a user's own kernel that has none.
    """
    if _has_driver(kernel, driver):
        return kernel
    if not kernel.name.startswith(OWN_KERNEL):
        kernel = fetch(kernel.name, again=True)
        if _has_driver(kernel, driver):
            return kernel
    raise LabError(f"kernel {kernel.name} has no driver {driver}", remedy="another kernel, or --modules with it")


def _has_driver(kernel: Kernel, driver: str) -> bool:
    tree = kernel.file("lib/modules") / kernel.release
    lists = [path.read_text() for path in (tree / "modules.dep", tree / "modules.builtin") if path.exists()]
    return any(f"/{driver}.ko" in names for names in lists)


def adopt(path: Path, modules: Path | None = None, needs: Sequence[str] = initramfs.BOOT) -> Kernel:
    """Take a user's own kernel, a bzImage or a vmlinux, into the cache, and return it under its own name.

    ``modules`` is its module tree (the folder with modules.dep, or one that holds lib/modules/RELEASE), which is not
    moved, or a tar of one, or a folder of .ko files: of these two what the guest ``needs`` is kept. Without one, all of
    that must be built in. Raises LabError if it is not a kernel, or its tree lacks that.
    """
    try:
        content = path.read_bytes()
        version = image_version(content)
    except (OSError, ValueError, struct.error) as error:
        raise LabError(
            f"{path} cannot be a guest's kernel: {reason(error)}", remedy="name a bzImage or a vmlinux"
        ) from error
    release = version.split()[0]
    with tempfile.TemporaryDirectory(prefix="xdplab-modules-") as scratch:
        tree = _module_tree(modules, release, Path(scratch)) if modules else None
        is_kept = tree is not None and not tree.is_relative_to(Path(scratch).resolve())
        boot = initramfs.modules(tree, needs) if tree else b""
        digest = hashlib.sha256(content + boot + str(tree if is_kept else "").encode()).hexdigest()
        name = f"{OWN_KERNEL}{digest[:12]}"

        def fill(folder: Path) -> None:
            (folder / "vmlinux").write_bytes(content)
            (folder / "boot.cpio").write_bytes(boot)
            (folder / "lib/modules").mkdir(parents=True)
            inside = folder / "lib/modules" / release
            if tree is None:
                inside.mkdir()
            elif is_kept:
                inside.symlink_to(tree)
            else:
                initramfs.copy_closure(tree, needs, inside)
            _describe(folder, name, release, name, [f"{version} sha256:{hashlib.sha256(content).hexdigest()}"])

        with locked("kernels") as root:
            folder = root / f"{release}_{name}"
            if not folder.exists():
                make(folder, fill, what=f"kernel {path}", space_mb=_SPACE_MB)
            return _read(folder)


def _module_tree(modules: Path, release: str, scratch: Path) -> Path:
    """Return the module tree of a kernel; that of a tar, or of .ko files alone, is made in ``scratch``."""
    place = modules
    if modules.is_file():
        place = scratch
        try:
            with tarfile.open(modules) as packed:
                packed.extractall(scratch, filter="data")
        except tarfile.TarError as error:
            raise LabError(f"{modules} is no tar of modules: {error}") from error
    inside = f"lib/modules/{release}"
    for tree in (place, place / inside, place / "usr" / inside):
        if (tree / "modules.dep").exists():
            return tree.resolve()
    if not (files := sorted(place.glob("*.ko*"))):
        raise LabError(
            f"{modules} holds no modules.dep, nor does {inside} in it, nor any *.ko",
            remedy=f"make modules_install INSTALL_MOD_PATH=DIR, or depmod -b DIR {release}, and name DIR",
        )
    (scratch / inside).mkdir(parents=True)
    for file in files:
        shutil.copy(file, scratch / inside)
    _tool("depmod", "-b", str(scratch), release)
    return (scratch / inside).resolve()


def _find(apt: Path, name: str) -> archive.Offer:
    """Return the newest kernel of a name in the archive; each architecture has apt's lists of its own."""
    plain, architecture = architectures.parted(name)
    if architecture is None:
        return archive.find(apt, plain, suites(plain))
    return archive.find(apt / architecture.name, plain, suites(name), architecture.name, architecture.kernels_end)


def suites(name: str) -> tuple[str, ...]:
    """Return the suites to search for a kernel of that name; of another architecture, those that have it."""
    plain, architecture = architectures.parted(name)
    first = KNOWN.get(plain, archive.ALL)
    if architecture is None:
        return first
    return tuple(sorted(architecture.suites, key=lambda suite: suite not in first))


def _fill(offer: archive.Offer, name: str, folder: Path) -> None:
    """Make a kernel's folder from its packages, which are downloaded beside it."""
    packages = _unpacked(offer, folder)
    (folder / "vmlinux").write_bytes(vmlinux((folder / "vmlinuz").read_bytes()))
    (folder / "vmlinuz").unlink()
    (folder / "boot.cpio").write_bytes(initramfs.modules(folder / "lib/modules" / offer.release))
    _describe(folder, name, offer.release, offer.version, _with_hashes(packages))


def _unpacked(offer: archive.Offer, folder: Path) -> list[Path]:
    packages = archive.download(offer.packages, offer.options, folder.parent)
    for package in packages:
        archive.unpack(package, offer.release, folder)
    _tool("depmod", "-b", str(folder), offer.release)
    return packages


def _with_hashes(packages: Sequence[Path]) -> list[str]:
    return [f"{package.name} sha256:{_sha256(package)}" for package in packages]


def _fill_foreign(offer: archive.Offer, name: str, architecture: Architecture, folder: Path) -> None:
    """Make the folder of another architecture's kernel: beside the image, the modules and a shell of its own."""
    packages = _unpacked(offer, folder)
    if (packed := folder / "vmlinuz").exists():  # an Image by either name: QEMU boots both
        packed.rename(folder / "vmlinux")
    lists = folder.parent / "apt" / architecture.name
    options, version = archive.find_newest(lists, "busybox-static", architecture.shells, architecture.name)
    packages += (shell := archive.download([f"busybox-static={version}"], options, folder.parent))
    unpacked = folder / "shell"
    archive.extract(shell[0], unpacked)
    binary = next(path for path in (unpacked / "bin/busybox", unpacked / "usr/bin/busybox") if path.exists())
    binary.rename(folder / "busybox")
    shutil.rmtree(unpacked)
    _describe(folder, name, offer.release, offer.version, _with_hashes(packages))


def _describe(folder: Path, name: str, release: str, version: str, packages: Sequence[str]) -> None:
    checked = {file: _sha256(folder / file) for file in CHECKED if (folder / file).exists()}
    description = {
        "name": name,
        "release": release,
        "version": version,
        "packages": list(packages),
        "sha256": checked,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")


def rows() -> list[dict[str, object]]:
    """Return a row for each kernel that is known or in the cache: name, release, version, folder (null: to fetch)."""
    have = cached()
    names = {kernel.name for kernel in have}
    rows: list[dict[str, object]] = [asdict(kernel) | {"folder": str(kernel.folder)} for kernel in have]
    rows += [{"name": name, "release": None, "version": None, "folder": None} for name in KNOWN if name not in names]
    return sorted(rows, key=lambda row: natural(str(row["release"] or row["name"])))


def _read(folder: Path) -> Kernel:
    description = json.loads((folder / _DESCRIPTION).read_text())
    return Kernel(
        description["name"],
        description["release"],
        description["version"],
        tuple(description["packages"]),
        description["sha256"],
        folder,
    )


def require_name(name: str) -> None:
    """Raise LabError for an invalid name of a lab's kernel, and for one with an architecture (``6.1@arm64``).

    A lab's root is this machine's file tree, whose programs run on no other architecture.
    """
    plain, asks, _ = name.partition(ARCHITECTURE_MARK)
    if asks and _NAME.fullmatch(plain):
        raise LabError(
            f"kernel {name}: labs are {archive.ARCHITECTURE} only; "
            "studies jit, execution and loading, and cost, measure other architectures",
            remedy=f"write {plain}",
        )
    _require_form(name)


def _require_form(name: str) -> None:
    plain, _ = architectures.parted(name)
    if not _NAME.fullmatch(plain) or (plain != name and plain.startswith(OWN_KERNEL)):
        raise LabError(f"{name!r} is not a kernel's name", remedy=f"such as {', '.join(KNOWN)}")


def _tool(*argv: str) -> None:
    tools = require_tools("a kernel of a guest", {argv[0]: "kmod"})
    done = subprocess.run([tools[argv[0]], *argv[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{' '.join(argv)}`: {done.stderr.strip()[-300:]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
