"""The keys of a guest, made outside: under emulation each takes as long to make as a tenth of the guest's start."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats, on no disk: ``private`` as a file's text, ``public`` as one line."""

    private: str
    public: str


def key_pair() -> KeyPair:
    """Return a new key pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
