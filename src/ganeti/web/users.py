"""Logins by the users file (`ganeti.model.rest_users`), and the forms of credentials in requests (A4-A6)."""

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from ganeti.base.errors import InputError
from ganeti.model.rest_users import STRANGER, Entry, User, parse_users
from ganeti.web.watched_file import WatchedFile

HEADER_LIMIT = 8192
"""Maximum length of an `Authorization` header."""

log = logging.getLogger(__name__)


class Users:
    """The users file. It is read again after a change; an unreadable file keeps the old users."""

    def __init__(self, path: Path) -> None:
        self._file: WatchedFile[Mapping[bytes, Entry]] = WatchedFile(
            path, self._parsed, {}, "no user can log in"
        )
        self.refresh = self._file.refresh

    @property
    def _entries(self) -> Mapping[bytes, Entry]:
        return self._file.value

    def _parsed(self, text: str) -> Mapping[bytes, Entry]:
        entries, problems = parse_users(text)
        for problem in problems:
            log.error("%s: %s", self._file.path, problem)
        log.info("%d users can log in", len(entries))
        return entries

    def login(self, header: str, today: dt.date) -> User | None:
        """Return the user that the `Authorization` header proves; InputError for an invalid header."""
        if len(header) > HEADER_LIMIT:
            raise InputError("the Authorization header is too long")
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "bearer":
            return self._of_token(given.strip().encode("utf-8", "surrogateescape"), today)
        if scheme.lower() != "basic":
            raise InputError("the Authorization header must use Basic or Bearer")
        name, password = _basic(given.strip())
        entry = self._entries.get(name, STRANGER)
        is_right = entry.accepts(name, password)
        return _current(entry, today) if is_right and entry is not STRANGER else None

    def of_name(self, name: str, now: float) -> User | None:
        """Return the user of a session; None without a valid line."""
        entry = self._entries.get(name.encode())
        return _current(entry, day_of(now)) if entry is not None else None

    @property
    def entries(self) -> list[Entry]:
        """Return the users that can log in until their accounts expire, in the order of the file."""
        return list(self._entries.values())

    def password_of(self, name: str) -> bytes:
        """Return what proves that a line still has the password of a session; b'' without a line."""
        entry = self._entries.get(name.encode())
        return entry.password if entry is not None else b""

    def _of_token(self, token: bytes, today: dt.date) -> User | None:
        digest, found = hashlib.sha256(token).digest(), None
        for entry in self._entries.values():
            if entry.is_token & hmac.compare_digest(digest, entry.sha256):
                found = entry
        return _current(found, today) if found is not None and token else None


def basic_header(name: str, password: str) -> str:
    """Return the `Authorization` header for a name and a password; InputError for a name with a colon."""
    if ":" in name:
        raise InputError("a name must not contain ':'", "username")
    pair = f"{name}:{password}".encode("utf-8", "surrogateescape")
    return "Basic " + base64.b64encode(pair).decode()


def bearer_header(token: str) -> str:
    """Return the `Authorization` header for a token."""
    return f"Bearer {token}"


def name_in(header: str) -> str | None:
    """Return the name in the `Authorization` header, or None for a token; InputError like `Users.login`."""
    scheme, _, given = header.partition(" ")
    if scheme.lower() != "basic" or len(header) > HEADER_LIMIT:
        return None
    return _basic(given.strip())[0].decode("utf-8", "surrogateescape")


def token_in(header: str) -> str | None:
    """Return the token in an `Authorization` header, None for a name and a password."""
    scheme, _, given = header.partition(" ")
    return given.strip() if scheme.lower() == "bearer" and len(header) <= HEADER_LIMIT else None


def day_of(now: float) -> dt.date:
    """Return the day (UTC) of a time."""
    return dt.datetime.fromtimestamp(now, dt.UTC).date()


def _current(entry: Entry, today: dt.date) -> User | None:
    return None if entry.user.rights.has_ended(today) else entry.user


def _basic(given: str) -> tuple[bytes, bytes]:
    try:
        raw = base64.b64decode(given.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise InputError("the Authorization header is not base64") from None
    name, colon, password = raw.partition(b":")
    if not colon or b"\0" in raw:
        raise InputError("the Authorization header must contain a name and a password")
    return name, password
