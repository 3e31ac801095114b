"""The sources of images, and the digests that they must have."""

import re
import string
from typing import NamedTuple
from urllib.parse import urlsplit

from ganeti.base.errors import InputError

RAW, QCOW2, OVA = "raw", "qcow2", "ova"
EXPORT_FORMATS = (QCOW2, RAW, OVA)
SOURCE_FORMATS = ("auto", RAW, QCOW2, "vmdk", OVA, "ovf")
OS_NAME, STORED_IMAGE = "image", "stored_image"
"""The OS definition that installs images, and its parameter for an image of the cluster."""
IMAGE_DIRECTORY = "/srv/ganeti/images"
"""Nodes read images below it if they have no list of directories."""
UPLOAD = "upload:"
"""The beginning of a source that a client has uploaded; the name of the upload follows."""
_URL = "https://"
_UPLOAD_FORM = re.compile(r"upload:([0-9a-f]{32})", re.ASCII)
_ALGORITHMS = {64: "sha256", 128: "sha512"}
"""By the number of hexadecimal digits."""


def is_url(source: str) -> bool:
    """Return whether a source is an address on the web, not a path."""
    return source.startswith(_URL)


def upload_of(source: str) -> str | None:
    """Return the name of the upload that a source names, or None."""
    found = _UPLOAD_FORM.fullmatch(source)
    return found[1] if found else None


def check_url(address: str, field: str = "image") -> None:
    """Refuse an address that is not plain https, or contains a password."""
    try:
        parts = urlsplit(address)
        is_plain = (
            parts.scheme == "https" and parts.hostname and not (parts.username or parts.password)
        )
    except ValueError:
        is_plain = None
    if not is_plain or not address.isprintable():
        raise InputError("must be https://HOST/..., without a user in it", field)


class Digest(NamedTuple):
    """The digest that a file must have."""

    algorithm: str
    digits: str

    @classmethod
    def parse(cls, text: str) -> "Digest | None":
        """Return the digest of this many hexadecimal digits; None for ''; InputError for anything else."""
        if not text:
            return None
        digits = text.lower()
        if len(digits) not in _ALGORITHMS or set(digits) - set(string.hexdigits):
            raise InputError("must have 64 (SHA-256) or 128 (SHA-512) hexadecimal digits", "digest")
        return cls(_ALGORITHMS[len(digits)], digits)
