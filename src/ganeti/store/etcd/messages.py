"""What etcd's v3 JSON gateway says and is asked, as far as it is used here.

The gateway writes 64-bit numbers as strings and leaves zeros out; bytes are base64 (msgspec does both).
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ganeti.base.errors import ProtocolError


class Header(msgspec.Struct, frozen=True):
    """Who answered, and at which revision."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class KeyValue(msgspec.Struct, frozen=True):
    """One key with its history's numbers."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    """The keys of a range; `more` says that the limit cut it."""

    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False
    count: int = 0


class OperationAnswer(msgspec.Struct, frozen=True):
    """What one operation of a transaction gave; only ranges are of interest."""

    response_range: RangeAnswer = RangeAnswer()


class TxnAnswer(msgspec.Struct, frozen=True):
    """Which branch of a transaction ran, and its answers."""

    header: Header = Header()
    succeeded: bool = False
    responses: tuple[OperationAnswer, ...] = ()


class LeaseAnswer(msgspec.Struct, frozen=True):
    """A lease; `TTL` 0 or less means that there is none (any more)."""

    header: Header = Header()
    ID: int = 0
    TTL: int = 0


class KeepAliveAnswer(msgspec.Struct, frozen=True):
    """One message of the stream of renewals."""

    result: LeaseAnswer = LeaseAnswer()


class Event(msgspec.Struct, frozen=True):
    """One change of a watched key; `type` is "DELETE" or, left out, a put."""

    kv: KeyValue = KeyValue()
    type: str = "PUT"
    prev_kv: KeyValue = KeyValue()
    """As it was before, where that was asked for and is still known."""


class WatchAnswer(msgspec.Struct, frozen=True):
    """One message of a watch."""

    header: Header = Header()
    events: tuple[Event, ...] = ()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    fragment: bool = False
    """Whether the rest of this answer follows in another message."""


class StreamError(msgspec.Struct, frozen=True):
    """Why a stream ends."""

    grpc_code: int = 0
    message: str = ""


class WatchMessage(msgspec.Struct, frozen=True):
    """One line of a watch's stream."""

    result: WatchAnswer = WatchAnswer()
    error: StreamError | None = None


class EtcdMember(msgspec.Struct, frozen=True):
    """One server of the etcd cluster; without a name it has not started yet."""

    ID: int = 0
    name: str = ""
    peerURLs: tuple[str, ...] = ()  # noqa: N815 - etcd's name
    clientURLs: tuple[str, ...] = ()  # noqa: N815 - etcd's name
    isLearner: bool = False  # noqa: N815 - etcd's name


class MembersAnswer(msgspec.Struct, frozen=True):
    """The members after a request about them; `member` is the one that was added."""

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
    """The alarms that are raised."""

    header: Header = Header()
    alarms: tuple[Alarm, ...] = ()


class TokenAnswer(msgspec.Struct, frozen=True):
    """What a user shows from now on."""

    token: str = ""


class Failure(msgspec.Struct, frozen=True):
    """An answer that is none; `code` is gRPC's."""

    error: str = ""
    message: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: what is wrong here keeps all of it from happening."""

    key: bytes
    create_revision: int | None = None
    value: bytes | None = None

    def fields(self) -> dict[str, Any]:
        """As the gateway reads it; create revision 0 means that the key does not exist."""
        if self.value is not None:
            return {"key": self.key, "target": "VALUE", "result": "EQUAL", "value": self.value}
        number = str(self.create_revision or 0)
        return {"key": self.key, "target": "CREATE", "result": "EQUAL", "create_revision": number}


Request = dict[str, Any]
"""One operation of a transaction."""


def put(key: bytes, value: bytes, lease: int = 0) -> Request:
    """Write a key; with a lease it goes away with that."""
    return {"request_put": {"key": key, "value": value, "lease": str(lease)}}


def delete(key: bytes) -> Request:
    """Remove a key; harmless where there is none."""
    return {"request_delete_range": {"key": key}}


def get(key: bytes) -> Request:
    """Read a key."""
    return {"request_range": {"key": key}}


def range_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin so."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def decode(data: bytes, form: type[Any]) -> Any:
    """An answer; ProtocolError for anything else."""
    try:
        return msgspec.json.decode(data, type=form, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise ProtocolError(f"the response of etcd is not valid: {err}") from None
