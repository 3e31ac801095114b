"""Random identifiers, as an interface."""

import secrets
import uuid
from typing import Protocol


class IdSource(Protocol):
    """The source of new identifiers."""

    def uuid(self) -> str:
        """Return a new UUID (RFC 4122), lower case."""
        ...

    def token(self, size: int = 16) -> str:
        """Return `size` unpredictable bytes, as hexadecimal digits."""
        ...

    def number(self, below: int) -> int:
        """Return a number from 0 up to, and not including, `below`."""
        ...


class RandomIds:
    """Identifiers from the operating system's random source."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def token(self, size: int = 16) -> str:
        return secrets.token_hex(size)

    def number(self, below: int) -> int:
        return secrets.randbelow(below)
