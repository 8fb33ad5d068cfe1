"""The source of a guest's kernel: only one folder of Debian's package is unpacked."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from xdplab.labs.vm import headers, kernels
from xdplab.labs.vm.headers import _write


def archive_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            archive.addfile(entry := tarfile.TarInfo(name), io.BytesIO(b""))
            assert entry.isfile()
    return buffer.getvalue()


def test_a_folder_of_the_source_is_whole_though_its_own_folders_lie_among_its_files(tmp_path):
    names = ("s/lib/842/x.c", "s/lib/a.c", "s/lib/crypto/y.c", "s/lib/test_bpf.c", "s/mm/z.c", "s/lib-like/b.c")
    with tarfile.open(fileobj=io.BytesIO(archive_of(*names)), mode="r|") as members:
        _write(members, "s/lib", tmp_path)
        assert members.next().name == "s/lib-like/b.c"  # files after the folder are not unpacked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.c", "test_bpf.c"]


@pytest.mark.parametrize("order", [("drivers/net/netdevsim", "drivers/net"), ("lib", "lib/crypto", "lib")])
def test_a_folder_is_whole_though_one_of_its_own_folders_was_asked_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    """The cached inner folder was mistaken for the outer one, which then had one folder and no files."""

    def fill(_kernel: object, wanted: str, folder: Path) -> None:
        (folder / "of").write_text(wanted)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "kernel", lambda _: SimpleNamespace(release="6.1.0", version="6.1.1-1"))
    monkeypatch.setattr(headers, "_fill_source", fill)
    monkeypatch.setattr(headers, "_SOURCE_MB", 0)
    for folder in order:
        assert headers.folder_of("6.1", folder) == {"of": folder.encode()}
