"""A kernel that the user built: it goes into the cache under its own name, or is refused in one line."""

import struct
import tarfile
from pathlib import Path

import pytest

from xdplab.errors import LabError
from xdplab.labs.base import OWN_KERNEL
from xdplab.labs.vm import initramfs, kernels

VERSION = "6.18.0-rc3-mine (me@here) #7 SMP"


def bzimage(version: str = VERSION) -> bytes:
    """The part of the header that contains the version, by the kernel's boot.rst."""
    content = bytearray(0x2000)
    content[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", content, 0x20E, 0x800)
    content[0xA00 : 0xA00 + len(version)] = version.encode()
    return bytes(content)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def file_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "bzImage"
    path.write_bytes(content)
    return path


def test_a_bzimage_and_a_vmlinux_tell_their_version():
    assert kernels.image_version(bzimage()) == VERSION
    assert kernels.image_version(b"\x7fELF" + bytes(90) + b"Linux version 7.3.0-x (gcc) #1\n\0") == "7.3.0-x (gcc) #1"


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(100), bytes(0x202) + b"HdrS", bzimage("none")])
def test_what_is_no_kernel_is_refused_in_one_line(content, tmp_path):
    path = file_of(tmp_path, content)
    with pytest.raises(LabError, match="cannot be a guest's kernel") as refused:
        kernels.adopt(path)
    assert "\n" not in str(refused.value)
    with pytest.raises(LabError, match="cannot be a guest's kernel"):
        kernels.adopt(tmp_path / "nothing")


def test_it_is_found_by_its_name_alone_with_version_and_hash(tmp_path):
    path = file_of(tmp_path, bzimage())
    own = kernels.adopt(path)
    assert kernels.adopt(path) == own, "the same file is the same kernel"
    assert own.name.startswith(OWN_KERNEL)
    assert own.packages[0].startswith(f"{VERSION} sha256:")
    assert kernels.kernel(own.name) == own
    assert own.file("vmlinux").read_bytes() == bzimage()
    other = kernels.adopt(file_of(tmp_path, bzimage("6.18.0-rc3-mine (me@here) #8 SMP")))
    assert other.name != own.name, "the same release, built again, is another kernel"
    assert {kernel.name for kernel in kernels.cached()} == {own.name, other.name}


def test_it_is_never_taken_for_a_distributions_kernel(tmp_path, monkeypatch):
    kernels.adopt(file_of(tmp_path, bzimage()))
    fetched: list[str] = []

    def fetch(name: str) -> kernels.Kernel:
        fetched.append(name)
        raise LabError("not here")

    monkeypatch.setattr(kernels, "fetch", fetch)
    with pytest.raises(LabError, match="not here"):
        kernels.kernel("6.18")
    assert fetched == ["6.18"]


def test_one_that_is_gone_from_the_cache_says_so():
    with pytest.raises(LabError, match="a user's own and not in the cache"):
        kernels.kernel(f"{OWN_KERNEL}0123456789ab")


def test_a_module_tree_is_found_and_lacks_are_said(tmp_path):
    path, release = file_of(tmp_path, bzimage()), VERSION.split()[0]
    with pytest.raises(LabError, match=r"holds no modules\.dep"):
        kernels.adopt(path, tmp_path)
    tree = tmp_path / "lib/modules" / release
    (tree / "kernel").mkdir(parents=True)
    needed = ["virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p"]
    (tree / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in needed))
    (tree / "modules.dep").write_text("")
    with pytest.raises(LabError, match="has no module overlay"):
        kernels.adopt(path, tmp_path)
    (tree / "modules.dep").write_text("kernel/overlay.ko.zst:\n")
    (tree / "kernel/overlay.ko.zst").write_bytes(b"x")
    with pytest.raises(LabError, match=r"compressed as \.zst are not read"):
        kernels.adopt(path, tmp_path)
    (tree / "modules.dep").write_text("kernel/overlay.ko:\n")
    (tree / "kernel/overlay.ko").write_bytes(b"module")
    by_root, by_tree = kernels.adopt(path, tmp_path), kernels.adopt(path, tree)
    assert by_root == by_tree
    assert b"overlay.ko" in by_root.file("boot.cpio").read_bytes()
    assert (by_root.file("lib/modules") / release).resolve() == tree


def test_modules_come_in_a_tar_and_what_a_guest_needs_of_them_is_kept(tmp_path):
    path, tree = file_of(tmp_path, bzimage()), tmp_path / "packed/lib/modules" / VERSION.split()[0]
    tree.mkdir(parents=True)
    (tree / "modules.dep").write_text("veth.ko:\nother.ko:\n")
    for name in ("veth.ko", "other.ko"):
        (tree / name).write_bytes(name.encode())
    tar = tmp_path / "modules.tar.gz"
    with tarfile.open(tar, "w:gz") as packed:
        packed.add(tmp_path / "packed", ".")
    own = kernels.adopt(path, tar, ["veth"])
    kept = own.file("lib/modules") / own.release
    assert {file.name for file in kept.iterdir()} == {"modules.dep", "veth.ko"}
    tar.write_text("text")
    with pytest.raises(LabError, match="no tar"):
        kernels.adopt(path, tar, ["veth"])


def test_modules_come_as_files_alone_and_the_rest_counts_as_built_in(tmp_path):
    path, folder = file_of(tmp_path, bzimage()), tmp_path / "loose"
    folder.mkdir()
    (folder / "veth.ko").write_bytes(b"")
    own = kernels.adopt(path, folder, ["virtio_pci", "veth"])
    assert [file.name for file in initramfs.closure(own.file("lib/modules") / own.release, ["virtio_pci", "veth"])] == [
        "veth.ko"
    ]
