"""The binary encoding of transactions and of the member list, for the log, followers and backups. Pure."""

import hashlib
import json
import struct
import zlib

import msgspec

from ganeti.base.errors import Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import (
    Delete,
    LogEntry,
    MemberChange,
    Operation,
    Position,
    Put,
    Transaction,
)

FORMAT = 1
DIGEST_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)

_PUT, _DELETE = 1, 0


class EncodedEntry(msgspec.Struct, frozen=True):
    """A transaction with its position in the order, as it is stored and sent to followers."""

    position: Position
    previous: Position
    digest: bytes
    content: bytes

    def decoded(self) -> LogEntry:
        """Return the log entry; StoreError if it is damaged."""
        transaction = decode_transaction(self.content)
        return LogEntry(self.position, self.previous, self.digest, transaction)


_HEAD = struct.Struct(">BHI")  # tag, bytes of kind, bytes of key
_LENGTH = struct.Struct(">I")
_POSITION = struct.Struct(">QQ")


def encode_transaction(txn: Transaction) -> bytes:
    """Return a format byte followed by each operation with the lengths of its parts."""
    parts = [bytes((FORMAT,))]
    for operation in txn.operations:
        kind, key = operation.kind.encode(), operation.key.encode()
        is_put = isinstance(operation, Put)
        parts += (_HEAD.pack(_PUT if is_put else _DELETE, len(kind), len(key)), kind, key)
        if isinstance(operation, Put):
            parts += (_LENGTH.pack(len(operation.value)), operation.value)
    return b"".join(parts)


def decode_transaction(data: bytes) -> Transaction:
    """The inverse of `encode_transaction`; StoreError for anything else."""
    if not data or data[0] != FORMAT:
        raise StoreError(
            "the log has a transaction of an unknown format: it may come from a newer release"
        )
    operations: list[Operation] = []
    offset = 1
    try:
        while offset < len(data):
            operation, offset = _decode_operation(data, offset)
            operations.append(operation)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise StoreError(f"the log has a damaged transaction: {error}") from None
    return Transaction(tuple(operations))


def _decode_operation(data: bytes, offset: int) -> tuple[Operation, int]:
    tag, kind_bytes, key_bytes = _HEAD.unpack_from(data, offset)
    offset += _HEAD.size
    kind, offset = _cut(data, offset, kind_bytes)
    key, offset = _cut(data, offset, key_bytes)
    if tag == _DELETE:
        return Delete(kind.decode(), key.decode()), offset
    if tag != _PUT:
        raise IndexError(f"unknown operation {tag}")
    (value_bytes,) = _LENGTH.unpack_from(data, offset)
    value, offset = _cut(data, offset + _LENGTH.size, value_bytes)
    return Put(kind.decode(), key.decode(), value), offset


def _cut(data: bytes, offset: int, size: int) -> tuple[bytes, int]:
    end = offset + size
    if end > len(data):
        raise IndexError("cut short")
    return data[offset:end], end


def chain_digest(before: bytes, position: Position, encoded: bytes) -> bytes:
    """Return the digest of a history with this transaction added; equal digests mean equal histories."""
    state = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    state.update(_POSITION.pack(position.epoch, position.serial))
    state.update(encoded)
    return state.digest()


def row_checksum(kind: str, key: str, value: bytes) -> int:
    """Return the checksum of a whole row, so that a damaged row is refused and never used (G3)."""
    return zlib.crc32(value, zlib.crc32(f"{kind}\0{key}".encode()))


class MemberList:
    """Voters and candidates, as stored in the row `meta/members`."""

    def __init__(self, voters: frozenset[NodeUuid], candidates: frozenset[NodeUuid]) -> None:
        self.voters = voters
        self.candidates = candidates

    @classmethod
    def decode(cls, data: bytes | None, this_node: NodeUuid) -> "MemberList":
        """Return the members of the row, or this node alone if the row does not exist yet."""
        if data is None:
            return cls(frozenset((this_node,)), frozenset((this_node,)))
        try:
            fields = json.loads(data)
            voters, candidates = frozenset(fields["voters"]), frozenset(fields["candidates"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"the list of members is damaged: {error!r}") from None
        return cls(voters, candidates)

    def encode(self) -> bytes:
        fields = {
            "format": FORMAT,
            "voters": sorted(self.voters),
            "candidates": sorted(self.candidates),
        }
        return json.dumps(fields).encode()

    def changed(self, change: MemberChange, this_node: NodeUuid) -> "MemberList":
        """Return the list with one node changed; Refused if the master would remove itself."""
        node = frozenset((change.node_uuid,))
        if change.node_uuid == this_node and not (change.is_voter and change.is_candidate):
            raise Refused(
                "the master must stay voter and candidate; hand the mastership over first"
            )
        return MemberList(
            self.voters | node if change.is_voter else self.voters - node,
            self.candidates | node if change.is_candidate else self.candidates - node,
        )


def encode_ceiling(ceiling: int) -> bytes:
    """Return the row `meta/job_id_ceiling` (R12)."""
    return str(ceiling).encode()


def decode_ceiling(data: bytes | None) -> int:
    """Return the ceiling of a row; 0 if the row does not exist yet."""
    if data is None:
        return 0
    if not data.isdigit():
        raise StoreError("the ceiling of job ids is damaged: it is not a number")
    return int(data)
