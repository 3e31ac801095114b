"""A client of etcd's v3 JSON gateway: several endpoints, deadlines, and the outcome of each request.

NotSent     certainly not carried out: no endpoint accepted it
Rejected    certainly not carried out: etcd gave a reason (`Compacted`: too old a revision)
Unanswered  perhaps carried out: no answer in time, or the connection was lost after sending
Full        perhaps carried out, but no longer in flight: etcd is over its quota
"""

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ganeti.base.errors import StoreError
from ganeti.base.http import aiohttp
from ganeti.store.etcd.messages import (
    AlarmAnswer,
    Compare,
    Failure,
    KeepAliveAnswer,
    LeaseAnswer,
    MembersAnswer,
    RangeAnswer,
    Request,
    StatusAnswer,
    TokenAnswer,
    TxnAnswer,
    WatchAnswer,
    WatchMessage,
    decode,
    get,
)
from ganeti.store.etcd.settings import Access

REQUEST_S = 3.0
CONNECT_S = 1.0
ADMINISTRATION_S = 15.0
"""Time limit of requests that change members or rewrite a member's file."""
_LINE_LIMIT = 16 << 20
_DIRECT_BYTES = 512 << 10
"""Maximum number of bytes that the client writes at once."""
_NOT_CARRIED_OUT = frozenset((3, 5, 6, 7, 9, 11, 12, 16))
"""gRPC's codes: invalid argument, not found, exists, permission, precondition, out of range, unimplemented,
unauthenticated."""
_EXHAUSTED, _OUT_OF_RANGE, _UNAUTHENTICATED = 8, 11, 16
_OUT_OF_DATE = "revision of auth store is old"
"""etcd returns this as an invalid argument for a signed token older than the last change of its users."""
_NO_SPACE = "database space exceeded"
_LEARNER = "not supported for learner"
_UNHEALTHY = "unhealthy cluster"
"""etcd returns this as unavailable if a change of members would risk the quorum; the change is not begun."""

A = TypeVar("A")


class Nothing(msgspec.Struct, frozen=True):
    """An answer whose content is ignored."""


class GatewayError(StoreError):
    """A request to etcd failed."""


class NotSent(GatewayError):
    """Certainly not carried out: no endpoint accepted it."""


class Unanswered(GatewayError):
    """Perhaps carried out."""


class Full(GatewayError):
    """The database is over its quota; etcd writes nothing more before there is room.

    etcd carries out the request that exceeds the quota and nevertheless returns this error. It
    checks the quota when a request arrives and again when it applies the request; the second check
    refuses nothing.
    """


class Rejected(GatewayError):
    """Certainly not carried out: etcd refused it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Compacted(Rejected):
    """The requested revision is compacted."""


class Gateway:
    """One client; many tasks may send requests at the same time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._endpoints = list(access.endpoints)
        self._current = 0
        self._token = ""
        self._session: aiohttp.ClientSession | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self._endpoints)

    def use_endpoints(self, endpoints: Sequence[str]) -> None:
        """Replace the endpoints; the one that answers now stays the first choice."""
        current = self._endpoints[self._current]
        self._endpoints = list(endpoints)
        self._current = self._endpoints.index(current) if current in self._endpoints else 0

    async def close(self) -> None:
        """End all connections; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # Keys

    async def range(
        self,
        key: bytes,
        end: bytes | None = None,
        *,
        revision: int = 0,
        limit: int = 0,
        timeout_s: float = REQUEST_S,
    ) -> RangeAnswer:
        """Return one key, or the keys from `key` to before `end`, in order, at one revision (0: the last)."""
        fields: dict[str, Any] = {"key": key, "revision": str(revision), "limit": str(limit)}
        if end is not None:
            fields["range_end"] = end
        return await self._read("/v3/kv/range", fields, RangeAnswer, timeout_s)

    async def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Request],
        failure: Sequence[Request] = (),
        *,
        timeout_s: float = REQUEST_S,
    ) -> TxnAnswer:
        """Run all of `success` if every comparison holds, else all of `failure`."""
        fields = {
            "compare": [one.fields() for one in compare],
            "success": list(success),
            "failure": list(failure),
        }
        return await self._write("/v3/kv/txn", fields, TxnAnswer, timeout_s)

    async def look(self, keys: Sequence[bytes]) -> TxnAnswer:
        """Read some keys at one revision."""
        fields = {"success": [get(key) for key in keys]}
        return await self._read("/v3/kv/txn", fields, TxnAnswer, REQUEST_S)

    async def delete(self, key: bytes, end: bytes | None = None) -> None:
        """Remove a key, or a range of them."""
        fields = {"key": key} if end is None else {"key": key, "range_end": end}
        await self._write("/v3/kv/deleterange", fields, Nothing, ADMINISTRATION_S)

    async def compact(self, revision: int) -> None:
        """Discard everything before a revision; idempotent."""
        with contextlib.suppress(Compacted):
            fields = {"revision": str(revision)}
            await self._write("/v3/kv/compaction", fields, Nothing, ADMINISTRATION_S)

    # Leases

    async def grant_lease(self, ttl_s: int) -> int:
        """Return the id of a new lease."""
        answer = await self._write("/v3/lease/grant", {"TTL": str(ttl_s)}, LeaseAnswer, REQUEST_S)
        return answer.ID

    async def keep_alive(self, lease: int, *, timeout_s: float = REQUEST_S) -> bool:
        """Renew a lease; return False if it no longer exists."""
        fields = {"ID": str(lease)}
        answer = await self._read("/v3/lease/keepalive", fields, KeepAliveAnswer, timeout_s)
        return answer.result.TTL > 0

    async def revoke_lease(self, lease: int) -> None:
        """End a lease and delete its keys; idempotent."""
        with contextlib.suppress(Rejected):
            await self._write("/v3/lease/revoke", {"ID": str(lease)}, Nothing, REQUEST_S)

    # Watching

    async def watch(
        self,
        *ranges: tuple[bytes, bytes],
        revision: int,
        silence_s: float,
        is_history: bool = False,
    ) -> AsyncGenerator[WatchAnswer, None]:
        """Yield all changes of some ranges from a revision on; ends after `silence_s` without a message.

        `is_history` adds the previous values, and splits large answers (`fragment`). Raises
        Compacted if the revision is no longer available, Unanswered if the stream breaks.
        """
        more = {"start_revision": str(revision), "prev_kv": is_history, "fragment": is_history}
        body = b"".join(
            msgspec.json.encode({"create_request": {"key": key, "range_end": end, **more}})
            for key, end in ranges
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        url = self._endpoints[self._current] + "/v3/watch"
        try:
            async with self._open().post(
                url, data=body, headers=self._headers(), timeout=timeout, ssl=self._tls()
            ) as answer:
                async for line in _lines(answer.content):
                    message = decode(line, WatchMessage)
                    if message.error is not None:
                        raise Unanswered(f"etcd ended the watch: {message.error.message}")
                    if message.result.compact_revision:
                        raise Compacted("the revision is compacted", _OUT_OF_RANGE)
                    if message.result.canceled:
                        raise Unanswered(f"etcd ended the watch: {message.result.cancel_reason}")
                    yield message.result
        except TimeoutError:
            return
        except (aiohttp.ClientError, OSError) as err:
            self._turn()
            raise Unanswered(f"the watch at {url} broke: {_said(err)}") from err

    # Members and maintenance

    async def members(self) -> MembersAnswer:
        """Return the members of the etcd cluster."""
        return await self._read("/v3/cluster/member/list", {}, MembersAnswer, REQUEST_S)

    async def add_member(self, peer_url: str, *, as_learner: bool) -> MembersAnswer:
        """Add a member, to be started afterwards; a learner has no vote before `promote_member`."""
        fields = {"peerURLs": [peer_url], "isLearner": as_learner}
        return await self._write("/v3/cluster/member/add", fields, MembersAnswer, ADMINISTRATION_S)

    async def promote_member(self, member: int) -> None:
        """Give a learner a vote; Rejected while it lags too much."""
        fields = {"ID": str(member)}
        await self._write("/v3/cluster/member/promote", fields, Nothing, ADMINISTRATION_S)

    async def remove_member(self, member: int) -> None:
        """Remove a member permanently."""
        fields = {"ID": str(member)}
        await self._write("/v3/cluster/member/remove", fields, Nothing, ADMINISTRATION_S)

    async def status(self, endpoint: str, *, timeout_s: float = REQUEST_S) -> StatusAnswer:
        """Return the status of one server; it needs no quorum."""
        return await self._post(endpoint, "/v3/maintenance/status", {}, StatusAnswer, timeout_s)

    async def defragment(self, endpoint: str) -> None:
        """Return the space freed by compaction to the disk; that server answers nothing meanwhile."""
        await self._post(endpoint, "/v3/maintenance/defragment", {}, Nothing, ADMINISTRATION_S)

    async def move_leader(self, endpoint: str, member: int) -> None:
        """Let another member lead etcd; `endpoint` is the server that leads now."""
        fields = {"targetID": str(member)}
        await self._post(
            endpoint, "/v3/maintenance/transfer-leadership", fields, Nothing, ADMINISTRATION_S
        )

    async def alarms(self) -> AlarmAnswer:
        """Return the members that report an alarm: full or damaged."""
        return await self._write("/v3/maintenance/alarm", {"action": "GET"}, AlarmAnswer, REQUEST_S)

    async def disarm(self) -> None:
        """Clear the alarm of a full database, so that it accepts writes again."""
        fields = {"action": "DEACTIVATE", "memberID": "0", "alarm": "NOSPACE"}
        for alarm in (await self.alarms()).alarms:
            if alarm.alarm == "NOSPACE":
                fields["memberID"] = str(alarm.memberID)
                await self._write("/v3/maintenance/alarm", fields, AlarmAnswer, REQUEST_S)

    # Requests

    async def _read(self, path: str, fields: Mapping[str, Any], form: type[A], limit_s: float) -> A:
        """Ask one endpoint after the other: repeating a read is harmless."""
        failure: GatewayError | None = None
        async with _deadline(limit_s):
            for _ in range(len(self._endpoints)):
                share = limit_s / min(2, len(self._endpoints))
                try:
                    return await self._post_current(path, fields, form, share)
                except (NotSent, Unanswered) as err:
                    failure = err
        raise failure or NotSent("no endpoint of etcd is configured")

    async def _write(
        self, path: str, fields: Mapping[str, Any], form: type[A], limit_s: float
    ) -> A:
        """Ask the next endpoint only if the previous one certainly did not receive the request."""
        failure: GatewayError | None = None
        async with _deadline(limit_s):
            for _ in range(len(self._endpoints)):
                try:
                    return await self._post_current(path, fields, form, limit_s)
                except NotSent as err:
                    failure = err
        raise failure or NotSent("no endpoint of etcd is configured")

    async def _post_current(
        self, path: str, fields: Mapping[str, Any], form: type[A], limit_s: float
    ) -> A:
        endpoint = self._endpoints[self._current]
        try:
            return await self._post(endpoint, path, fields, form, limit_s)
        except (NotSent, Unanswered):
            if self._endpoints[self._current] == endpoint:
                self._turn()
            raise

    def _turn(self) -> None:
        """Ask the next endpoint first from now on."""
        self._current = (self._current + 1) % len(self._endpoints)

    async def _post(
        self, endpoint: str, path: str, fields: Mapping[str, Any], form: type[A], limit_s: float
    ) -> A:
        body = msgspec.json.encode(fields)
        try:
            if self._access.user and not self._token:
                await self._authenticate(endpoint, limit_s)
            return await self._exchange(endpoint, path, body, form, limit_s)
        except Rejected as err:
            if err.code != _UNAUTHENTICATED or not self._access.user:
                raise
            # The token is too old: the request was certainly not carried out, so it may be sent
            # again.
            await self._authenticate(endpoint, limit_s)
            return await self._exchange(endpoint, path, body, form, limit_s)

    async def _authenticate(self, endpoint: str, limit_s: float) -> None:
        self._token = ""
        fields = {"name": self._access.user, "password": self._access.password}
        body = msgspec.json.encode(fields)
        try:
            answer = await self._exchange(
                endpoint, "/v3/auth/authenticate", body, TokenAnswer, limit_s
            )
        except Unanswered as err:
            raise NotSent(err.message) from err
        self._token = answer.token

    async def _exchange(
        self, endpoint: str, path: str, body: bytes, form: type[A], limit_s: float
    ) -> A:
        timeout = aiohttp.ClientTimeout(total=limit_s, sock_connect=CONNECT_S)
        url = endpoint + path
        content = io.BytesIO(body) if len(body) > _DIRECT_BYTES else body
        try:
            async with self._open().post(
                url, data=content, headers=self._headers(), timeout=timeout, ssl=self._tls()
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as err:
            raise NotSent(f"etcd at {endpoint} cannot be reached: {_said(err)}") from err
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise Unanswered(f"etcd at {endpoint} did not answer {path}: {_said(err)}") from err
        if answer.status == 200:  # noqa: PLR2004 - HTTP
            found: A = decode(data, form)
            return found
        raise _failure(endpoint, path, answer.status, data)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    def _tls(self) -> ssl.SSLContext | bool:
        return self._access.tls or True

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=16)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session


@contextlib.asynccontextmanager
async def _deadline(limit_s: float) -> AsyncGenerator[None, None]:
    """Limit a request over all its endpoints."""
    try:
        async with asyncio.timeout(limit_s + CONNECT_S):
            yield
    except TimeoutError:
        raise Unanswered(f"etcd did not answer within {limit_s:g} s") from None


def _failure(endpoint: str, path: str, status: int, data: bytes) -> GatewayError:
    """Return the error for a failed response: whether the request may have been carried out."""
    try:
        failure = msgspec.json.decode(data, type=Failure, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Unanswered(f"etcd at {endpoint} answered {path} with HTTP status {status}")
    reason = failure.message or failure.error
    text = f"etcd at {endpoint} refused {path}: {reason}"
    if _LEARNER in reason:
        return NotSent(text)
    if _OUT_OF_DATE in reason:
        return Rejected(text, _UNAUTHENTICATED)
    if failure.code == _EXHAUSTED:
        return Full(text) if _NO_SPACE in reason else Rejected(text, failure.code)
    if failure.code == _OUT_OF_RANGE and "compacted" in reason:
        return Compacted(text, failure.code)
    if failure.code in _NOT_CARRIED_OUT or _UNHEALTHY in reason:
        return Rejected(text, failure.code)
    return Unanswered(f"the outcome of {path} at etcd {endpoint} is unknown: {reason}")


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream, of any length; the reader's own limit is shorter than a row."""
    rest = bytearray()
    async for data in content.iter_any():
        rest += data
        if len(rest) > _LINE_LIMIT:
            raise Unanswered("etcd sent a message that exceeds the size limit")
        *lines, last = rest.split(b"\n")
        rest = bytearray(last)
        for line in lines:
            if line:
                yield bytes(line)


def _said(err: BaseException) -> str:
    return str(err) or type(err).__name__
