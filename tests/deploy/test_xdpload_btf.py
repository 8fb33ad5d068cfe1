"""An object's BTF may lie: xdpload (with sanitizers) writes only into the section that the object has."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once

SOURCE = """
#include <linux/bpf.h>
#define SEC(name) __attribute__((section(name), used))
const volatile unsigned int chosen = 1;
SEC("xdp") int main_program(struct xdp_md *context) { return chosen ? 2 : 1; }
char words[] SEC("license") = "GPL";
"""
OBJCOPY = next(
    (found for n in ("", "-14", "-15", "-16") if (found := shutil.which(f"llvm-objcopy{n}"))), "llvm-objcopy"
)
KIND_DATASEC, KIND_BITS = 15, 24
# Bytes that follow a btf_type, per element of its vlen, by kind; kinds without any are not listed.
FIXED, EACH = {1: 4, 3: 12, 14: 4, 17: 4}, {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}


@pytest.fixture(scope="module")
def xdpload() -> str:
    return build_once("xdpload", sanitize=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bpf_object(tmp_path_factory.mktemp("object"), SOURCE)


def crafted(compiled: Path, target: Path, *, offset: int, size: int) -> Path:
    """Return a copy whose BTF says that the constant lies at ``offset`` of its section, with ``size`` bytes."""
    section = target.with_suffix(".btf")
    shutil.copy(compiled, target)
    subprocess.run([OBJCOPY, f"--dump-section=.BTF={section}", str(target)], check=True)
    btf = bytearray(section.read_bytes())
    head, types, _ = struct.unpack_from("<III", btf, 4)
    strings = head + struct.unpack_from("<I", btf, 16)[0]
    at = head + types
    while at < strings:
        name, info, _ = struct.unpack_from("<III", btf, at)
        kind, elements = info >> KIND_BITS & 0x1F, info & 0xFFFF
        words = btf[strings + name : btf.index(0, strings + name)]
        if kind == KIND_DATASEC and words == b".rodata":
            struct.pack_into("<I", btf, at + 8, 4)  # with a size in the BTF, libbpf does not correct the offsets
            struct.pack_into("<II", btf, at + 16, offset, size)
        at += 12 + FIXED.get(kind, 0) + EACH.get(kind, 0) * elements
    section.write_bytes(btf)
    subprocess.run([OBJCOPY, f"--update-section=.BTF={section}", str(target)], check=True)
    return target


@pytest.mark.parametrize(("offset", "size"), [(0x1000, 8), (4, 4), (1, 4), (0, 8), (0xFFFFFFFC, 8), (0xFFFFFFFF, 1)])
def test_a_constant_outside_of_its_section_is_refused(
    xdpload: str, compiled: Path, tmp_path: Path, offset: int, size: int
) -> None:
    target = crafted(compiled, tmp_path / "crafted.o", offset=offset, size=size)
    argv = [xdpload, "--object", str(target), "--rodata", "chosen=3", "--mode", "none"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert "Sanitizer" not in done.stderr, done.stderr[-2000:]
    assert done.returncode == 1
    assert "it is damaged" in done.stdout, done.stdout
