"""Links that log in to the web console once: made for an administrator on the master, and kept only in its memory."""

import hashlib
import secrets
from dataclasses import dataclass

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, PrereqError

LINKS_LIMIT = 100
"""Maximum number of valid links; the oldest gives way."""
LONGEST_S = 3600.0


@dataclass(frozen=True)
class _Link:
    user: str
    role: str
    end: float


class LoginLinks:
    """The valid links, by the digests of their secrets."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, _Link] = {}

    def make(self, user: str, role: str, life_s: float) -> str:
        """Return the secret of a new link for a user of the users file, or else for a role."""
        while len(self._links) >= LINKS_LIMIT:
            del self._links[next(iter(self._links))]
        secret = secrets.token_urlsafe(32)
        end = self._clock.monotonic() + min(life_s, LONGEST_S)
        self._links[_digest(secret)] = _Link(user, role, end)
        return secret

    def redeem(self, secret: str) -> dict[str, str]:
        """Return the user or the role of a link, and make the link invalid; PrereqError."""
        link = self._links.pop(_digest(secret), None)
        if link is None or link.end < self._clock.monotonic():
            raise PrereqError(
                "this login link was used already, or is too old; gnt-cluster console-link makes a new one",
                ErrorCode.FORBIDDEN,
            )
        return {"user": link.user, "role": link.role}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
