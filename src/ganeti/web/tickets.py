"""Tickets for consoles: valid once, for half a minute, for one user, session, instance and kind of console."""

import hashlib
import secrets
from dataclasses import dataclass

from ganeti.web.refusals import forbidden

LIFE_S = 30.0
TICKETS_LIMIT = 1000
"""Maximum number of valid tickets; the oldest gives way."""


@dataclass(frozen=True)
class Ticket:
    """What a ticket admits to."""

    user: str
    session: object
    """The session that asked for it, or None for a user without a session."""
    instance: str
    kind: str
    end: float


class Tickets:
    """The valid tickets, by their digests."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}

    def issue(self, ticket: Ticket) -> str:
        """Return the text of a new ticket."""
        while len(self._tickets) >= TICKETS_LIMIT:
            del self._tickets[next(iter(self._tickets))]
        text = secrets.token_urlsafe(32)
        self._tickets[_digest(text)] = ticket
        return text

    def redeem(self, text: str, user: str, session: object, now: float) -> Ticket:
        """Return the ticket and make it invalid, whoever presents it; Refusal (403)."""
        ticket = self._tickets.pop(_digest(text), None)
        if (
            ticket is None
            or now > ticket.end
            or ticket.user != user
            or ticket.session is not session
        ):
            raise forbidden("this ticket is not valid (any more); ask for a new one")
        return ticket


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
