"""Random identifiers, as a port."""

import secrets
import uuid
from typing import Protocol


class IdSource(Protocol):
    """Where new identifiers come from."""

    def uuid(self) -> str:
        """A new UUID (RFC 4122), lower case."""
        ...

    def token(self, size: int = 16) -> str:
        """`size` unpredictable bytes, as hexadecimal digits."""
        ...

    def number(self, below: int) -> int:
        """A number from 0 up to, and not including, `below`."""
        ...


class RandomIds:
    """Identifiers from the operating system's random source."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def token(self, size: int = 16) -> str:
        return secrets.token_hex(size)

    def number(self, below: int) -> int:
        return secrets.randbelow(below)
