"""From a distribution's ``vmlinuz`` to the ``vmlinux`` inside it.

Source of the layout: the kernel's Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
"""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Callable

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


def version(content: bytes) -> str:
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


def _xz(payload: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(payload)  # ends with the stream: the size after it does not belong to it


def _gzip(payload: bytes) -> bytes:
    return zlib.decompressobj(wbits=31).decompress(payload)


def _zstd(payload: bytes) -> bytes:
    import pyarrow as pa  # imported here, because labs are used far more often than kernels are fetched

    size: int = struct.unpack("<I", payload[-4:])[0]  # appended by the kernel's Makefile
    plain: bytes = pa.Codec("zstd").decompress(payload[:-4], decompressed_size=size, asbytes=True)
    return plain


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\xfd7zXZ\0": _xz,
    b"\x1f\x8b": _gzip,
    b"\x28\xb5\x2f\xfd": _zstd,
}
