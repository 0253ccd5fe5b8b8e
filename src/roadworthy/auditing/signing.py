"""Signatures with ed25519: keys in PEM files, as OpenSSL writes them.

The bytes that are signed are those of index.json, so that OpenSSL alone can check them:

    openssl pkeyutl -verify -pubin -inkey PUBLIC.pem -rawin -in index.json -sigfile index.sig
"""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, MissingExtra, UnreadableFile

PASSPHRASE = "ROADWORTHY_KEY_PASSPHRASE"
"""The environment variable with the passphrase of a private key that has one."""
PUBLIC_ENDING = ".pub.pem"
MOST_KEY_BYTES = 1 << 16


def new_key(path: Path) -> Path:
    """Write a new private key, which only its owner may read, and its public key beside it; the path of the latter.

    Neither may be there already.
    """
    serialization, ed25519 = _cryptography()
    public = path.with_name((path.name.removesuffix(".pem") or path.name) + PUBLIC_ENDING)
    for target in (path, public):
        if target.exists() or target.is_symlink():
            raise InputError(f"{target} is there already: a key is never overwritten, name another file")
    key = ed25519.Ed25519PrivateKey.generate()
    private_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public_bytes = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    for target, content, mode in ((path, private_bytes, 0o600), (public, public_bytes, 0o644)):
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return public


def sign(content: bytes, key: Path) -> bytes:
    """The signature of some bytes by a private key (PEM); a warning where others may read that."""
    serialization, ed25519 = _cryptography()
    loaded = _loaded(key, "private", serialization)
    if not isinstance(loaded, ed25519.Ed25519PrivateKey):
        raise InputError(f"{key} is not an ed25519 key: make one with `new_key='KEY.pem'`")
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        warnings.warn(f"the private key {key} can be read by others: chmod 600 {key}", stacklevel=2)
    return bytes(loaded.sign(content))


def is_signed_by(content: bytes, signature: bytes, key: Path) -> bool:
    """Whether a signature of some bytes was made with the private key that belongs to a public one (PEM)."""
    serialization, ed25519 = _cryptography()
    from cryptography.exceptions import InvalidSignature

    loaded = _loaded(key, "public", serialization)
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise InputError(f"{key} is not an ed25519 key: ask who signed the bundle for their public key")
    try:
        loaded.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("signatures", "signing") from None
    return serialization, ed25519


def _loaded(path: Path, kind: str, serialization: Any) -> Any:
    """A key from a PEM file; an `InputError` where it is none of that kind."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with path.open("rb") as file:
            content = file.read(MOST_KEY_BYTES)
    except OSError as error:
        raise UnreadableFile(path, error) from None
    if kind == "public" and b"PRIVATE KEY" in content:
        raise InputError(f"{path} is a private key, which stays with who signs: name the public key")
    if kind == "private" and b"PUBLIC KEY" in content:
        raise InputError(f"{path} is a public key, which cannot sign: name the private key")
    try:
        if kind == "public":
            return serialization.load_pem_public_key(content)
        passphrase = os.environ.get(PASSPHRASE)
        encrypted = b"ENCRYPTED" in content
        if encrypted and not passphrase:
            raise InputError(f"the private key {path} has a passphrase: give it in the variable {PASSPHRASE}")
        return serialization.load_pem_private_key(content, passphrase.encode() if encrypted and passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(
            f"{path} cannot be read as a {kind} key: name a PEM file, such as `new_key='KEY.pem'` makes"
        ) from None
