"""The first root of a guest: a shell, the modules on the way to the real root, and a script. Made in memory.

Source of the format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst ("newc", unpacked one
archive after another).
"""

from __future__ import annotations

import lzma
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from xdplab.errors import LabError

BOOT = ("virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay")
"""The modules that a guest needs for its root and for its connection to the outside."""

APPLETS = (
    "cat",
    "chmod",
    "cpio",
    "date",
    "grep",
    "hostname",
    "insmod",
    "ip",
    "ln",
    "mkdir",
    "mkfifo",
    "mount",
    "mv",
    "rm",
    "umount",
)
"""The applets of busybox that the first scripts use; the shell of most builds runs them in its own process."""

FOLDERS = ("bin", "proc", "sys", "dev", "host", "mnt", "root")
_FILE, _SECRET, _SCRIPT = (stat.S_IFREG | mode for mode in (0o644, 0o600, 0o755))
_FOLDER, _LINK = stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
_SIGNED = b"~Module signature appended~\n"
_SIGNATURE_BYTES = 12
"""The size of struct module_signature, which follows the signature itself."""
_DECOMPRESSORS: dict[str, Callable[[bytes], bytes]] = {".ko": bytes, ".xz": lzma.decompress}


def modules(tree: Path, names: Sequence[str] = BOOT) -> bytes:
    """Return an archive with modules of a module tree in ``/modules``, named in the order to load them.

    Raises LabError for a kernel that has one of them neither as a module nor built in.
    """
    files = closure(tree, names)
    entries = [("modules", _FOLDER, b"")]
    for number, path in enumerate(files):
        entries.append((f"modules/{number:02}-{_stem(path)}.ko", _FILE, plain(path)))
    return _cpio(entries)


def plain(path: Path) -> bytes:
    """Return a module neither compressed nor signed. Raises LabError for a compression that is not read."""
    if path.suffix not in _DECOMPRESSORS:
        raise LabError(f"{path}: modules compressed as {path.suffix} are not read", remedy="as .ko or .ko.xz")
    return unsigned(_DECOMPRESSORS[path.suffix](path.read_bytes()))


def unsigned(module: bytes) -> bytes:
    """Return a module without its signature: apt has checked the package, and the guest's kernel takes it unchecked.

    Under emulation the 15 signatures of 6.1 cost 0.26 G instructions, a fifth of what a guest took to start. Source of
    the format: the kernel's include/linux/module_signature.h; the signature's length comes last, before the mark.
    """
    if not module.endswith(_SIGNED):
        return module
    end = len(module) - len(_SIGNED)
    length = int.from_bytes(module[end - 4 : end], "big")
    return module[: end - _SIGNATURE_BYTES - length]


def shell(busybox: Path, init: bytes) -> bytes:
    """Return an archive with the first script, and the busybox that runs it."""
    entries = [(name, _FOLDER, b"") for name in FOLDERS]
    entries += [(f"bin/{name}", _LINK, b"busybox") for name in APPLETS]
    return _cpio([*entries, ("init", _SCRIPT, init), ("bin/busybox", _SCRIPT, busybox.read_bytes())])


def console(busybox: Path, init: bytes, files: Mapping[str, bytes], programs: Mapping[str, bytes] = {}) -> bytes:
    """Return an archive that is the whole root of a guest: a busybox, the script it runs first, files by path.

    ``programs`` are files too, which may be executed.
    """
    folders = sorted({str(folder) for name in (*files, *programs) for folder in PurePath(name).parents} - {"."})
    entries = [(name, _FOLDER, b"") for name in ("bin", "proc", "sys", "dev", "tmp", *folders) if name]
    entries += [(name, _FILE, content) for name, content in files.items()]
    entries += [(name, _SCRIPT, content) for name, content in programs.items()]
    return _cpio([*entries, ("init", _SCRIPT, init), ("bin/busybox", _SCRIPT, busybox.read_bytes())])


def secret(files: Mapping[str, bytes]) -> bytes:
    """Return an archive with files, by path, that only root may read."""
    folders = sorted({str(PurePath(name).parent) for name in files} - {"."})
    return _cpio([*((name, _FOLDER, b"") for name in folders), *((n, _SECRET, files[n]) for n in files)])


def closure(tree: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of ``names`` and of their dependencies, dependencies first.

    A tree that does not say what is built in has that which is no module. Raises LabError.
    """
    if not (tree / "modules.dep").exists():
        return []
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        needs[_stem(Path(file))] = (file, others.split())
    listed = tree / "modules.builtin"
    built_in = (
        {_stem(Path(line)) for line in listed.read_text().splitlines()} if listed.exists() else {*names} - {*needs}
    )
    ordered: dict[str, None] = {}
    for name in names:
        if name in built_in:
            continue
        if name not in needs:
            raise LabError(f"kernel {tree.name} has no module {name}: a guest cannot start with it")
        file, needed = needs[name]
        ordered |= dict.fromkeys([*reversed(needed), file])
    return [tree / file for file in ordered]


def copy_closure(tree: Path, names: Sequence[str], target: Path) -> None:
    """Copy the part of a module tree that has the files of ``names`` and of their dependencies."""
    lists = [tree / name for name in ("modules.dep", "modules.builtin") if (tree / name).exists()]
    for path in (*lists, *closure(tree, names)):
        copy = target / path.relative_to(tree)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    archive = bytearray()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        # inode mode uid gid links mtime size, device and its own number twice, length of the name, checksum (unused)
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        header = b"070701" + "".join(f"{field:08X}" for field in fields).encode()
        archive += _padded(header + name.encode() + b"\0") + _padded(content)
    return bytes(archive)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
