"""The messages of etcd's v3 JSON gateway, as far as this package uses them.

The gateway writes 64-bit numbers as strings and omits zeros; bytes are base64 (msgspec does both).
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ganeti.base.errors import ProtocolError


class Header(msgspec.Struct, frozen=True):
    """The server that answered, and its revision."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class KeyValue(msgspec.Struct, frozen=True):
    """One key with its version numbers."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    """The keys of a range; `more` means that the limit truncated it."""

    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False
    count: int = 0


class OperationAnswer(msgspec.Struct, frozen=True):
    """The result of one operation of a transaction; only ranges are used."""

    response_range: RangeAnswer = RangeAnswer()


class TxnAnswer(msgspec.Struct, frozen=True):
    """The branch of a transaction that ran, and its results."""

    header: Header = Header()
    succeeded: bool = False
    responses: tuple[OperationAnswer, ...] = ()


class LeaseAnswer(msgspec.Struct, frozen=True):
    """A lease; `TTL` 0 or less means that it does not exist."""

    header: Header = Header()
    ID: int = 0
    TTL: int = 0


class KeepAliveAnswer(msgspec.Struct, frozen=True):
    """One message of the stream of renewals."""

    result: LeaseAnswer = LeaseAnswer()


class Event(msgspec.Struct, frozen=True):
    """One change of a watched key; `type` is "DELETE" or, if absent, a put."""

    kv: KeyValue = KeyValue()
    type: str = "PUT"
    prev_kv: KeyValue = KeyValue()
    """The previous value, if it was requested and is still available."""


class WatchAnswer(msgspec.Struct, frozen=True):
    """One message of a watch."""

    header: Header = Header()
    events: tuple[Event, ...] = ()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    fragment: bool = False
    """True if the rest of this answer follows in another message."""


class StreamError(msgspec.Struct, frozen=True):
    """The reason why a stream ends."""

    grpc_code: int = 0
    message: str = ""


class WatchMessage(msgspec.Struct, frozen=True):
    """One line of a watch's stream."""

    result: WatchAnswer = WatchAnswer()
    error: StreamError | None = None


class EtcdMember(msgspec.Struct, frozen=True):
    """One server of the etcd cluster; its name is empty before its first start."""

    ID: int = 0
    name: str = ""
    peerURLs: tuple[str, ...] = ()  # noqa: N815 - etcd's name
    clientURLs: tuple[str, ...] = ()  # noqa: N815 - etcd's name
    isLearner: bool = False  # noqa: N815 - etcd's name


class MembersAnswer(msgspec.Struct, frozen=True):
    """The members after a request about them; `member` is the added one."""

    header: Header = Header()
    members: tuple[EtcdMember, ...] = ()
    member: EtcdMember = EtcdMember()


class StatusAnswer(msgspec.Struct, frozen=True):
    """One server's own view."""

    header: Header = Header()
    version: str = ""
    dbSize: int = 0  # noqa: N815 - etcd's name
    dbSizeInUse: int = 0  # noqa: N815 - etcd's name
    leader: int = 0
    raftIndex: int = 0  # noqa: N815 - etcd's name
    raftTerm: int = 0  # noqa: N815 - etcd's name
    errors: tuple[str, ...] = ()
    isLearner: bool = False  # noqa: N815 - etcd's name


class Alarm(msgspec.Struct, frozen=True):
    """An alarm of one member: NOSPACE or CORRUPT."""

    memberID: int = 0  # noqa: N815 - etcd's name
    alarm: str = ""


class AlarmAnswer(msgspec.Struct, frozen=True):
    """The active alarms."""

    header: Header = Header()
    alarms: tuple[Alarm, ...] = ()


class TokenAnswer(msgspec.Struct, frozen=True):
    """The token that authenticates a user from now on."""

    token: str = ""


class Failure(msgspec.Struct, frozen=True):
    """An error response; `code` is gRPC's."""

    error: str = ""
    message: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: if it fails, the transaction changes nothing."""

    key: bytes
    create_revision: int | None = None
    value: bytes | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields for the gateway; create revision 0 means that the key does not exist."""
        if self.value is not None:
            return {"key": self.key, "target": "VALUE", "result": "EQUAL", "value": self.value}
        number = str(self.create_revision or 0)
        return {"key": self.key, "target": "CREATE", "result": "EQUAL", "create_revision": number}


Request = dict[str, Any]
"""One operation of a transaction."""


def put(key: bytes, value: bytes, lease: int = 0) -> Request:
    """Return a write of a key; with a lease the key ends with the lease."""
    return {"request_put": {"key": key, "value": value, "lease": str(lease)}}


def delete(key: bytes) -> Request:
    """Return the removal of a key; idempotent."""
    return {"request_delete_range": {"key": key}}


def get(key: bytes) -> Request:
    """Return a read of a key."""
    return {"request_range": {"key": key}}


def range_end(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with this prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def decode(data: bytes, form: type[Any]) -> Any:
    """Return a decoded answer; ProtocolError for anything else."""
    try:
        return msgspec.json.decode(data, type=form, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise ProtocolError(f"the response of etcd is not valid: {err}") from None
