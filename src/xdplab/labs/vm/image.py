"""From a distribution's ``vmlinuz`` to the ``vmlinux`` inside it.

Source of the layout: the kernel's Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable

_MAGIC = (0x202, b"HdrS")
_SETUP_SECTORS, _PAYLOAD = 0x1F1, 0x248
_ELF = b"\x7fELF"


def vmlinux(vmlinuz: bytes) -> bytes:
    """Return the ELF image. Raises ValueError for a file that is no kernel, or of a compression that is not known."""
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


def _decompressed(payload: bytes) -> bytes:
    for magic, decompress in _DECOMPRESSORS.items():
        if payload.startswith(magic):
            return decompress(payload)
    raise ValueError(f"its vmlinuz is compressed in a way that is not known here: {payload[:6].hex()}")


def _xz(payload: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(payload)  # ends with the stream: the size behind it is no part of it


def _gzip(payload: bytes) -> bytes:
    return zlib.decompressobj(wbits=31).decompress(payload)


def _zstd(payload: bytes) -> bytes:
    import pyarrow as pa  # only here: a lab is asked about far more often than a kernel is fetched

    size: int = struct.unpack("<I", payload[-4:])[0]  # appended by the kernel's Makefile
    plain: bytes = pa.Codec("zstd").decompress(payload[:-4], decompressed_size=size, asbytes=True)
    return plain


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\xfd7zXZ\0": _xz,
    b"\x1f\x8b": _gzip,
    b"\x28\xb5\x2f\xfd": _zstd,
}
