"""Sessions of browsers: a cookie instead of a password, until their user is idle, signs out, or loses the account.

The cluster's state has all sessions without their secrets, so they survive a restart of this server and a change of
the master. A session of the users file ends when the user's line gets another password. A session of a user of an
OpenID provider keeps the groups that the provider reported, and has their present rights.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, InputError
from ganeti.model import wire
from ganeti.model.operation import ROLES
from ganeti.model.rest_rights import Rights
from ganeti.model.rest_users import User
from ganeti.web.openid import PREFIX
from ganeti.web.openid_provider import OpenId
from ganeti.web.refusals import Refusal
from ganeti.web.users import Users

COOKIE = "__Host-ganeti-session"
IDLE_S = 30 * 60.0
LONGEST_S = 12 * 3600.0
SESSIONS_LIMIT = 500
SESSIONS_OF_USER = 20
"""Limits of the number of sessions; the one that was unused for longest gives way."""
LINK_PREFIX = "link:"
"""Begins the name of a user who logged in by a link for a role; no name in the users file has a colon."""
_KEPT_PART = 6
"""The time of the last request is stored when it has changed by this part of the idle limit."""

log = logging.getLogger(__name__)


class Master(Protocol):
    """The calls of `MasterConnections` that sessions need."""

    async def ask(self, method: str, *args: Any) -> Any: ...

    async def submit(self, method: str, *args: Any) -> Any: ...


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A session in the cluster's state."""

    digest: str
    """SHA-256 of the secret in the cookie."""
    name: str
    role: str
    """The role of a link; '' for a user of the users file."""
    mark: str
    """Digest of the user's password, by the cookie's secret as key."""
    begun: float
    used: float
    groups: list[str] = []
    """Groups of a user of an OpenID provider."""


@dataclass(eq=False)
class Session:
    """One browser that has logged in."""

    kept: _Kept
    used: float
    """Time of the last request that a person caused."""
    is_ended: bool = False
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    """Requests in progress."""

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Cancel the current task if the session ends during the block."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a request is not a task")
        self.tasks.add(task)
        try:
            yield
        finally:
            self.tasks.discard(task)

    def end(self) -> None:
        """Cancel its requests, except the current one."""
        self.is_ended = True
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()


class Sessions:
    """All sessions; `contacts_lost` changes when another master may have changed them."""

    def __init__(
        self,
        master: Master,
        users: Users,
        openid: OpenId,
        clock: Clock,
        contacts_lost: Callable[[], int],
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self.idle_s = idle_s
        self._master = master
        self._users = users
        self._openid = openid
        self._clock = clock
        self._contacts_lost = contacts_lost
        self._sessions: dict[str, Session] = {}
        self._read_at: int | None = None
        """`contacts_lost` at the time of the last reading."""
        self._turn = asyncio.Lock()

    async def begin(
        self, user: User, role: str = "", groups: Sequence[str] = ()
    ) -> tuple[str, Session]:
        """Return a new session and its secret; GanetiError or Refusal if the master cannot store it."""
        await self._read()
        secret, now = secrets.token_urlsafe(32), self._clock.time()
        mark = self._mark(secret, user.name)
        kept = _Kept(_digest(secret), user.name, role, mark, now, now, list(groups))
        session = Session(kept, now)
        own = [one for one in self._sessions.values() if one.kept.name == user.name]
        for among, limit in ((own, SESSIONS_OF_USER), (self._sessions.values(), SESSIONS_LIMIT)):
            if len(among) >= limit:
                self._remove(min(among, key=lambda one: one.used))
        self._sessions[kept.digest] = session
        try:
            await self._store()
        except BaseException:
            self._remove(session)
            raise
        return secret, session

    async def find(self, secret: str) -> tuple[User, Session] | None:
        """Return the session of a cookie and its user with the present rights; None if it has ended."""
        await self._read()
        session = self._sessions.get(_digest(secret))
        if session is None or self._is_over(session):
            return None
        user = self._user(session)
        if user is None or not hmac.compare_digest(
            self._mark(secret, user.name), session.kept.mark
        ):
            self._remove(session)
            return None
        return user, session

    def use(self, session: Session) -> None:
        """Begin the idle time of a session again."""
        session.used = self._clock.time()

    async def end(self, session: Session, *, everywhere: bool) -> None:
        """End a session, or all of its user, at once; GanetiError or Refusal if that could not be stored."""
        for one in list(self._sessions.values()):
            if one is session or (everywhere and one.kept.name == session.kept.name):
                self._remove(one)
        await self._store()

    async def look(self) -> None:
        """End sessions that are over, and store what has changed for longer; called every second."""
        if self._read_at is None:
            return
        try:
            await self._read()
        except (GanetiError, Refusal) as err:
            log.debug("the sessions were not read: %s", err)
            return
        over = [one for one in self._sessions.values() if self._is_over(one) or not self._user(one)]
        for one in over:
            self._remove(one)
        late = self.idle_s / _KEPT_PART
        if over or any(one.used - one.kept.used > late for one in self._sessions.values()):
            try:
                await self._store()
            except (GanetiError, Refusal) as err:
                log.debug("the sessions were not stored: %s", err)

    def expires(self, session: Session) -> float:
        """Return the time at which a session ends at the latest."""
        return session.kept.begun + LONGEST_S

    async def by_name(self) -> dict[str, list[Session]]:
        """Return the sessions of each user."""
        await self._read()
        found: dict[str, list[Session]] = {}
        for one in self._sessions.values():
            if not self._is_over(one):
                found.setdefault(one.kept.name, []).append(one)
        return found

    def user_of(self, session: Session) -> User | None:
        """Return the user with the present rights; None if the account is gone."""
        return self._user(session)

    @property
    def count(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def _is_over(self, session: Session) -> bool:
        now = self._clock.time()
        return now > self.expires(session) or now > session.used + self.idle_s

    def _user(self, session: Session) -> User | None:
        kept = session.kept
        if kept.role:
            return User(kept.name, Rights(ROLES[kept.role])) if kept.role in ROLES else None
        if kept.name.startswith(PREFIX):
            return self._openid.user_of(kept.name, kept.groups)
        return self._users.of_name(kept.name, self._clock.time())

    def _mark(self, secret: str, name: str) -> str:
        content = self._users.password_of(name)
        return hmac.digest(secret.encode(), content, "sha256").hex()

    def _remove(self, session: Session) -> None:
        if self._sessions.get(session.kept.digest) is session:
            del self._sessions[session.kept.digest]
        session.end()

    async def _read(self) -> None:
        """Read the stored sessions, if another master may have changed them."""
        if self._read_at == self._contacts_lost():
            return
        async with self._turn:
            now = self._contacts_lost()
            if self._read_at == now:
                return
            self._take(str(await self._master.ask("QuerySessions")))
            self._read_at = now

    def _take(self, text: str) -> None:
        try:
            kept = wire.decode(text, list[_Kept], what="sessions") if text else []
        except InputError as err:
            log.error("the stored sessions cannot be read, so all have ended: %s", err.message)  # noqa: TRY400
            kept = []
        before, self._sessions = self._sessions, {}
        for one in kept:
            known = before.pop(one.digest, None)
            self._sessions[one.digest] = known or Session(one, one.used)
        for gone in before.values():
            gone.end()

    async def _store(self) -> None:
        async with self._turn:
            kept = {
                digest: msgspec.structs.replace(one.kept, used=one.used)
                for digest, one in self._sessions.items()
            }
            await self._master.submit("KeepSessions", wire.encode(list(kept.values())).decode())
            for digest, stored in kept.items():
                if digest in self._sessions:
                    self._sessions[digest].kept = stored


def csrf_token(secret: str) -> str:
    """Return the token that a request for a change must carry in a header: only a page of this server can read it."""
    return hmac.digest(secret.encode(), b"csrf", "sha256").hex()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
