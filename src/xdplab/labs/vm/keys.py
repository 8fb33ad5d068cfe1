"""The keys of a guest, made outside, because making one under emulation takes a tenth of the guest's start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdplab.lazy import lazy

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    ed25519 = lazy("cryptography.hazmat.primitives.asymmetric.ed25519")


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats, on no disk: ``private`` as a file's text, ``public`` as one line."""

    private: str
    public: str


def key_pair() -> KeyPair:
    """Return a new key pair."""
    key, encoding = ed25519.Ed25519PrivateKey.generate(), serialization.Encoding
    private = key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
