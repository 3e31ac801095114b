"""Users of the REST interface: the users file, passwords and tokens (A4-A6).

A line is `USER PASSWORD [OPTION,OPTION…]`. The password is plain, or begins with a scheme:
`{cleartext}secret`, `{HA1}` with the MD5 of `USER:Ganeti Remote API:PASSWORD`, or `{sha256}` with the
SHA-256 of a token. A token is also accepted without a name (`Authorization: Bearer TOKEN`).
Invalid lines and names that occur twice cannot log in; all other lines are valid.
"""

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.errors import InputError
from ganeti.web.rights import Rights, parse_options
from ganeti.web.watched_file import WatchedFile

REALM = "Ganeti Remote API"
HEADER_LIMIT = 8192
"""Maximum length of an `Authorization` header."""
_SCHEME = re.compile(r"\{([^}]*)\}")
_MD5_DIGITS, _SHA256_DIGITS = 32, 64

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class User:
    """A user who has logged in."""

    name: str
    rights: Rights


def _unmatched_digest() -> bytes:
    return secrets.token_bytes(32)


@dataclass(frozen=True)
class Entry:
    """A user of the file; a digest that the file does not contain matches no password."""

    user: User
    ha1: bytes = field(default_factory=_unmatched_digest, repr=False)
    sha256: bytes = field(default_factory=_unmatched_digest, repr=False)

    password: bytes = field(default=b"", repr=False)
    """The second word of the line: another one ends the user's sessions."""
    is_token: bool = False
    """Return True if the entry is also valid without a name: only a token is, since a password can be guessed."""

    def accepts(self, name: bytes, password: bytes) -> bool:
        """Return True if this is the password; the time does not depend on the scheme or the result."""
        # The users files of existing clusters have MD5 digests; the mode of the file protects them.
        ha1 = hashlib.md5(b":".join((name, REALM.encode(), password)), usedforsecurity=False)
        sha256 = hashlib.sha256(password)
        return hmac.compare_digest(ha1.digest(), self.ha1) | hmac.compare_digest(
            sha256.digest(), self.sha256
        )


_STRANGER = Entry(User("", Rights()))
"""Entry for unknown names, so that their check takes as long as that of known names (A6)."""


def parse_users(text: str) -> tuple[dict[bytes, Entry], list[str]]:
    """Return the entries by name, and a sentence without secrets for each error in the file."""
    entries: dict[bytes, Entry] = {}
    problems, twice = [], set[bytes]()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.lstrip().startswith("#"):
            continue
        try:
            entry = _entry(words)
        except InputError as err:
            problems.append(f"line {number}: {err.message}")
            continue
        name = entry.user.name.encode()
        if name in entries or name in twice:
            problems.append(f"line {number}: this name occurs twice, so it cannot log in")
            twice.add(name)
            entries.pop(name, None)
        else:
            entries[name] = entry
    return entries, problems


def _entry(words: list[str]) -> Entry:
    if len(words) not in (2, 3):
        raise InputError("is not 'USER PASSWORD OPTION,OPTION'")
    name, secret = words[0], words[1]
    if ":" in name or not name.isprintable():
        raise InputError("the name must not contain ':' or control characters")
    options = words[2].split(",") if len(words) == 3 else []  # noqa: PLR2004 - the third is there
    user = User(name, parse_options([word for word in options if word]))
    found = _SCHEME.match(secret)
    scheme = found[1].lower() if found else "cleartext"
    rest = secret[found.end() :] if found else secret
    word = secret.encode()
    if scheme == "cleartext" and rest:
        return Entry(user, sha256=hashlib.sha256(rest.encode()).digest(), password=word)
    if scheme == "ha1":
        return Entry(user, ha1=_digest(rest, _MD5_DIGITS), password=word)
    if scheme == "sha256":
        digest = _digest(rest, _SHA256_DIGITS)
        return Entry(user, sha256=digest, password=word, is_token=True)
    raise InputError("the password has an unknown scheme or is empty")


def _digest(text: str, digits: int) -> bytes:
    if len(text) != digits:
        raise InputError(f"the password's digest must have {digits} digits")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError("the password's digest is not hexadecimal") from None


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
        entry = self._entries.get(name, _STRANGER)
        is_right = entry.accepts(name, password)
        return _current(entry, today) if is_right and entry is not _STRANGER else None

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
