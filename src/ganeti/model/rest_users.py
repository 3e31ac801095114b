"""The users file of the REST interface: its lines, and changes of them (A4-A6).

A line is `USER PASSWORD [OPTION,OPTION…]`. The password is plain, or begins with a scheme:
`{cleartext}secret`, `{HA1}` with the MD5 of `USER:Ganeti Remote API:PASSWORD`, or `{sha256}` with the
SHA-256 of a token. A token is also accepted without a name (`Authorization: Bearer TOKEN`).
Invalid lines and names that occur twice cannot log in; all other lines are valid.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model.rest_rights import Rights, parse_options

REALM = "Ganeti Remote API"
_SCHEME = re.compile(r"\{([^}]*)\}")
_MD5_DIGITS, _SHA256_DIGITS = 32, 64


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
    options: str = ""
    """The third word of the line."""
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


STRANGER = Entry(User("", Rights()))
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
    word, given = secret.encode(), ",".join(options)
    if scheme == "cleartext" and rest:
        return Entry(
            user, sha256=hashlib.sha256(rest.encode()).digest(), password=word, options=given
        )
    if scheme == "ha1":
        return Entry(user, ha1=_digest(rest, _MD5_DIGITS), password=word, options=given)
    if scheme == "sha256":
        digest = _digest(rest, _SHA256_DIGITS)
        return Entry(user, sha256=digest, password=word, options=given, is_token=True)
    raise InputError("the password has an unknown scheme or is empty")


def _digest(text: str, digits: int) -> bytes:
    if len(text) != digits:
        raise InputError(f"the password's digest must have {digits} digits")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InputError("the password's digest is not hexadecimal") from None


def password_word(name: str, password: str) -> str:
    """Return the second word of a line for a password: its digest, which does not reveal a good password."""
    text = f"{name}:{REALM}:{password}".encode()
    return f"{{HA1}}{hashlib.md5(text, usedforsecurity=False).hexdigest()}"


def token_word(token: str) -> str:
    """Return the second word of a line for a token."""
    return f"{{sha256}}{hashlib.sha256(token.encode()).hexdigest()}"


def with_user(text: str, name: str, word: str, options: str) -> str:
    """Return the file with one more user; InputError for invalid parts, PrereqError for a known name."""
    line = _line(name, word, options)
    if _lines_of(text, name):
        raise PrereqError(f"user {name} is already in the users file", ErrorCode.EXISTS)
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def with_changes(text: str, name: str, word: str | None, options: str | None) -> str:
    """Return the file with another password or other options of a user, None: unchanged; InputError, PrereqError."""
    lines = text.splitlines()
    number = _only_line(text, name)
    words = [*lines[number].split(), ""]
    lines[number] = _line(
        name, words[1] if word is None else word, words[2] if options is None else options
    )
    return "\n".join([*lines, ""])


def without_user(text: str, name: str) -> str:
    """Return the file without a user, and without any line of this name; PrereqError for an unknown name."""
    gone = set(_lines_of(text, name))
    if not gone:
        raise _unknown(name)
    kept = [line for number, line in enumerate(text.splitlines()) if number not in gone]
    return "\n".join([*kept, ""]) if kept else ""


def _line(name: str, word: str, options: str) -> str:
    """Return a line that logs the user in; InputError names the invalid part."""
    words = [name, word, *([options] if options else [])]
    if any(len(one.split()) != 1 for one in words) or name.startswith("#"):
        why = "a name, a password's digest and options must not be empty or contain spaces"
        raise InputError(f"{why}; a name must not begin with '#'", f"user {name!r:.40}")
    try:
        _entry(words)
    except InputError as err:
        raise InputError(err.message, f"user {name!r:.40}") from err
    return " ".join(words)


def _lines_of(text: str, name: str) -> list[int]:
    """Return the numbers of the lines of a name, valid or not."""
    return [number for number, line in enumerate(text.splitlines()) if line.split()[:1] == [name]]


def _only_line(text: str, name: str) -> int:
    found = _lines_of(text, name)
    if not found:
        raise _unknown(name)
    if len(found) > 1:
        why = f"user {name} has {len(found)} lines in the users file; remove the user and add it again"
        raise PrereqError(why, ErrorCode.WRONG_STATE)
    return found[0]


def _unknown(name: str) -> PrereqError:
    why = f"user {name} is not in the users file; gnt-cluster list-users lists its users"
    return PrereqError(why, ErrorCode.UNKNOWN_ENTITY)
