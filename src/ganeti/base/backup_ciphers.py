"""The ciphers of encrypted backups: keys that are derived from a backup key, and the pieces of an image.

`ganeti.protocols.backup_encryption` explains which key encrypts what.
"""

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti.base.deferred import Deferred

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import ciphers
    from cryptography.hazmat.primitives.ciphers import aead, algorithms, modes
else:
    exceptions = Deferred("cryptography.exceptions")
    ciphers = Deferred("cryptography.hazmat.primitives.ciphers")
    aead = Deferred("cryptography.hazmat.primitives.ciphers.aead")
    algorithms = Deferred("cryptography.hazmat.primitives.ciphers.algorithms")
    modes = Deferred("cryptography.hazmat.primitives.ciphers.modes")

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
ID_CHARACTERS = 16
_LABEL = b"ganeti-backup-1 "
_SPARE = 16
"""Bytes beyond the data that the cipher's output buffer must have in some versions of the library."""
_scratch = threading.local()


def new_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(KEY_BYTES)


def key_id(key: bytes) -> str:
    """Return the name of a backup key, which tells nothing about it."""
    return hashlib.sha256(_LABEL + b"id " + key).hexdigest()[:ID_CHARACTERS]


def instance_key(key: bytes, instance: str) -> bytes:
    """Return the key for one instance's directory of backups, from a backup key."""
    return derived(key, f"instance {instance}")


def derived(key: bytes, purpose: str) -> bytes:
    """Return the key for one purpose."""
    return hmac.digest(key, _LABEL + purpose.encode(), "sha256")


class WrongTagError(Exception):
    """Data that was not encrypted by this key, or not for this position."""


@dataclass(frozen=True)
class ImageCipher:
    """Encrypts and decrypts the pieces of one image, in any thread."""

    key: bytes = field(repr=False)
    image: str
    """Name of the file."""

    def encrypt(self, number: int, data: memoryview, *, is_last: bool) -> bytes:
        """Encrypt a piece in its buffer; return its tag."""
        cipher = ciphers.Cipher(algorithms.AES(self.key), modes.GCM(self._nonce(number)))
        work = cipher.encryptor()
        work.authenticate_additional_data(self._bound(number, is_last=is_last))
        _through(work, data)
        work.finalize()
        return work.tag

    def decrypt(self, number: int, data: memoryview, tag: bytes, *, is_last: bool) -> None:
        """Decrypt a piece in its buffer; WrongTagError, and then the buffer must not be used."""
        cipher = ciphers.Cipher(algorithms.AES(self.key), modes.GCM(self._nonce(number), tag))
        work = cipher.decryptor()
        work.authenticate_additional_data(self._bound(number, is_last=is_last))
        _through(work, data)
        try:
            work.finalize()
        except exceptions.InvalidTag as err:
            raise WrongTagError from err

    @staticmethod
    def _nonce(number: int) -> bytes:
        return number.to_bytes(NONCE_BYTES, "big")

    def _bound(self, number: int, *, is_last: bool) -> bytes:
        return _LABEL + f"{self.image} {number} {int(is_last)}".encode()


def _through(work: Any, data: memoryview) -> None:
    """Replace data by the cipher's output, by way of a buffer of this thread."""
    room = getattr(_scratch, "room", None)
    if room is None or len(room) < len(data) + _SPARE:
        room = _scratch.room = memoryview(bytearray(len(data) + _SPARE))
    count = work.update_into(data, room[: len(data) + _SPARE])
    data[:] = room[:count]


def encrypted(key: bytes, purpose: str, data: bytes, bound: str) -> str:
    """Return data that can only be decrypted for this purpose and place, in hexadecimal."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    cipher = aead.AESGCM(derived(key, purpose))
    return (nonce + cipher.encrypt(nonce, data, _LABEL + bound.encode())).hex()


def decrypted(key: bytes, purpose: str, text: str, bound: str) -> bytes | None:
    """Return the data; None if it was not encrypted for this purpose and place."""
    try:
        data = bytes.fromhex(text)
        cipher = aead.AESGCM(derived(key, purpose))
        return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _LABEL + bound.encode())
    except (ValueError, exceptions.InvalidTag):
        return None
