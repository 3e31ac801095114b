"""Certificates of a cluster's nodes, where a test needs real ones."""

import time
from pathlib import Path

from ganeti.base import certificates, tls
from ganeti.base.paths import Paths


class Authority:
    """A cluster's authority, which gives nodes their certificates."""

    def __init__(self) -> None:
        self._key = certificates.new_key()
        self.certificate = certificates.new_authority(self._key, "cluster", "uuid", time.time())

    def equip(self, paths: Paths, name: str, uuid: str = "") -> str:
        """Give the node at `paths` its key and certificate; the fingerprint."""
        paths.data.mkdir(parents=True, exist_ok=True)
        key = certificates.new_key()
        made = certificates.sign_node(
            self.certificate,
            self._key,
            certificates.signing_request(key, name),
            node_uuid=uuid or f"uuid-of-{name}",
            node_name=name,
            now=time.time(),
        )
        for path, content in (
            (paths.node_key, key),
            (paths.node_certificate, made),
            (paths.authority_certificate, self.certificate),
        ):
            _write(path, content)
        return tls.fingerprint(made)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
