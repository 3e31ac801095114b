"""Encryption of backups: keys, images in pieces, sealed manifests. The ciphers are in `base/backup_ciphers.py`.

    backup key      of the cluster, 32 random bytes; its id is a digest of it
    instance key    HMAC of the backup key and the name of the directory; nodes get only this one
    data key        of one image, random; wrapped by the instance key, in the manifest
    seal            HMAC of the manifest by the instance key

AES-256-GCM encrypts each 4 MiB of an image to the same length; the tags are in the manifest. The nonce is the number of
the piece: a data key encrypts one image, which is written once. The associated data has the name of the image, the
number of the piece, and whether it is the last one.
"""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ganeti.base.backup_ciphers import (
    KEY_BYTES,
    ImageCipher,
    decrypted,
    derived,
    encrypted,
    new_key,
)
from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.protocols.backup_manifest import ENCRYPTED_FORMAT, Image, Manifest


@dataclass(frozen=True)
class BackupKeyring:
    """The instance keys for one directory of backups, by the ids of their backup keys."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    current: str = ""
    """The id of the key for new backups; '': they are not encrypted."""
    is_required: bool = False
    """Whether unencrypted backups must not be read."""

    def new_cipher(self, image: str) -> tuple[ImageCipher, str] | None:
        """Return a cipher with a new data key for an image, and this key, wrapped; None without a current key."""
        if not self.current:
            return None
        key = new_key()
        wrapped = encrypted(self._key(self.current), "data key", key, image)
        return ImageCipher(key, image), wrapped

    def cipher(self, key_id_: str, image: Image) -> ImageCipher:
        """Return the cipher of an image in a backup that uses this key."""
        key = decrypted(self._key(key_id_), "data key", image.key, image.file)
        if key is None or len(key) != KEY_BYTES:
            raise HostError(f"{image.file}: its data key is not of backup key {key_id_}")
        return ImageCipher(key, image.file)

    def sealed(self, manifest: Manifest) -> Manifest:
        """Return a manifest of the current key with encrypted description and seal; unchanged without a current key."""
        if not self.current:
            return manifest
        key = self._key(self.current)
        hidden = encrypted(key, "description", manifest.description.encode(), manifest.point)
        return self.resealed(
            replace(manifest, format=ENCRYPTED_FORMAT, key_id=self.current, description=hidden)
        )

    def resealed(self, manifest: Manifest) -> Manifest:
        """Return an encrypted manifest with the seals of its present content; a plain one unchanged."""
        if not manifest.key_id:
            return manifest
        key = self._key(manifest.key_id)
        if manifest.merging is not None:
            later = merged(manifest)
            merging = replace(manifest.merging, seal=_seal(key, later))
            manifest = replace(manifest, merging=merging)
        return replace(manifest, seal=_seal(key, manifest))

    def check(self, manifest: Manifest, directory: str = "") -> None:
        """Raise HostError unless the manifest is what was sealed for this directory."""
        if not manifest.key_id:
            if self.is_required:
                raise HostError(
                    f"{manifest.file} is not encrypted, and this cluster encrypts its backups: the backup is older than"
                    " that, or was replaced by another one; --allow-unencrypted reads it nevertheless"
                )
            return
        key = self._key(manifest.key_id)
        if directory and manifest.instance != directory:
            raise HostError(f"{manifest.file} is of {manifest.instance}, not of {directory}")
        if not hmac.compare_digest(_seal(key, manifest).encode(), manifest.seal.encode()):
            raise HostError(
                f"{manifest.file} is not what was sealed with backup key {manifest.key_id}: it was changed, or belongs"
                " to another instance"
            )

    def description(self, manifest: Manifest) -> str:
        """Return the description of the instance; HostError."""
        if not manifest.key_id:
            return manifest.description
        key = self._key(manifest.key_id)
        found = decrypted(key, "description", manifest.description, manifest.point)
        if found is None:
            raise HostError(f"the description in {manifest.file} is damaged")
        return found.decode()

    def _key(self, key_id_: str) -> bytes:
        found = self.keys.get(key_id_)
        if found is None:
            raise HostError(missing_key(key_id_))
        return found


NO_KEYS = BackupKeyring()


def missing_key(key_id_: str) -> str:
    """Return the error for a backup whose key is not there."""
    return (
        f"it is encrypted with backup key {key_id_}, which is not here; import the key from its paper or its file: gnt-backup"
        " key import"
    )


def merged(manifest: Manifest) -> Manifest:
    """Return a manifest after the merge that it has decided."""
    assert manifest.merging is not None  # noqa: S101 - the caller looked
    done = manifest.merging
    return replace(manifest, disks=done.disks, parent=done.parent, merging=None, seal=done.seal)


def _seal(key: bytes, manifest: Manifest) -> str:
    """Return the HMAC of all fields but the seal; empty ones do not count, so that a later version can add some."""
    content = _filled(wire.plain(replace(manifest, seal="")))
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(derived(key, "seal"), text.encode(), "sha256").hexdigest()


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: _filled(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one not in ("", None, [], {})}
    if isinstance(value, list):
        return [_filled(one) for one in value]
    return value
