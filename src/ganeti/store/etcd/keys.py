r"""The keys of the state in etcd and the format of their values. Pure.

Below `/ganeti/<cluster uuid>/`:

leader      node and epoch of the master, under its lease: its creator is the master
epoch       the greatest epoch that was ever taken
head        position and digest of the last transaction
hand-over   the node in whose favour the master is to end, under a lease
moved       the node whose embedded store has taken over the state; elections are disabled
incomplete  present while a whole state is being written; elections are disabled
row/KIND\0KEY   a row, with its checksum
"""

import json
from dataclasses import dataclass

from ganeti.base.errors import Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import NO_DIGEST, row_checksum
from ganeti.store.etcd.messages import range_end
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
    Position,
    Row,
)

ROOT = b"/ganeti/"
_FORMAT = 1
_CHECKSUM_BYTES = 4


class Keys:
    """The keys of one cluster."""

    def __init__(self, cluster_uuid: str) -> None:
        self.prefix = ROOT + cluster_uuid.encode() + b"/"
        self.leader = self.prefix + b"leader"
        self.epoch = self.prefix + b"epoch"
        self.head = self.prefix + b"head"
        self.hand_over = self.prefix + b"hand-over"
        self.moved = self.prefix + b"moved"
        self.incomplete = self.prefix + b"incomplete"
        self.rows = self.prefix + b"row/"
        self.members = self.row(META_KIND, MEMBERS_KEY)
        self.ceiling = self.row(META_KIND, JOB_ID_CEILING_KEY)

    @property
    def end(self) -> bytes:
        """Return the end of the range of all keys of the cluster."""
        return range_end(self.prefix)

    @property
    def end_of_rows(self) -> bytes:
        return range_end(self.rows)

    def row(self, kind: str, key: str) -> bytes:
        """Return a row's key.

        Etcd's order of rows is the order of `load`, because a zero byte ends the kind.
        """
        if "\0" in kind:
            raise Refused(f"the kind of a row must not have a zero byte: {kind!r}")
        return self.rows + kind.encode() + b"\0" + key.encode()

    def decode_row(self, key: bytes, data: bytes) -> Row:
        """Return a row; StoreError where a key has another form, or a value is damaged (G3)."""
        kind, name = self.name_of_row(key)
        return Row(kind, name, opened(kind, name, data))

    def name_of_row(self, key: bytes) -> tuple[str, str]:
        """Return the kind and key of a row; StoreError where the key has another form."""
        try:
            kind, separator, name = key.removeprefix(self.rows).decode().partition("\0")
        except UnicodeDecodeError as err:
            raise StoreError(f"etcd has a row with a damaged name: {key!r}") from err
        if not key.startswith(self.rows) or not separator:
            raise StoreError(f"etcd has a row with an unknown form: {key!r}")
        return kind, name


def sealed(kind: str, key: str, value: bytes) -> bytes:
    """Return a row's value with its checksum."""
    return row_checksum(kind, key, value).to_bytes(_CHECKSUM_BYTES, "big") + value


def opened(kind: str, key: str, data: bytes) -> bytes:
    """Return the value without its checksum; StoreError where the checksum is wrong (G3)."""
    value = data[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != row_checksum(kind, key, value).to_bytes(_CHECKSUM_BYTES, "big"):
        raise StoreError(f"row {kind}/{key} in etcd is damaged: its checksum is wrong")
    return value


@dataclass(frozen=True, slots=True)
class Head:
    """Position and digest at the end of a history."""

    position: Position = ZERO
    digest: bytes = NO_DIGEST

    def encode(self) -> bytes:
        """Return the bytes; equal heads are equal bytes, because transactions compare them."""
        fields = {
            "format": _FORMAT,
            "position": self.position.as_int(),
            "digest": self.digest.hex(),
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> "Head":
        """Return the head of a value, the beginning for None; StoreError for anything else."""
        if data is None:
            return cls()
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise StoreError(
                    f"etcd has a state of format {fields['format']}: it may come from a newer "
                    "release"
                )
            position = Position.from_int(int(fields["position"]))
            return cls(position, bytes.fromhex(fields["digest"]))
        except (ValueError, KeyError, TypeError) as err:
            raise StoreError(f"the head of the state in etcd is damaged: {err!r}") from None


@dataclass(frozen=True, slots=True)
class LeaderKey:
    """The value of the leader's key."""

    node: NodeUuid
    epoch: int

    def encode(self) -> bytes:
        return json.dumps({"node": self.node, "epoch": self.epoch}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "LeaderKey":
        """Return the leader of a value; StoreError for anything else."""
        try:
            fields = json.loads(data)
            return cls(NodeUuid(str(fields["node"])), int(fields["epoch"]))
        except (ValueError, KeyError, TypeError) as err:
            raise StoreError(f"the leader's key in etcd is damaged: {err!r}") from None


def encode_epoch(epoch: int) -> bytes:
    """Return the counter of epochs as bytes."""
    return str(epoch).encode()


def decode_epoch(data: bytes | None) -> int:
    """Return the epoch of a counter; 0 if no epoch was taken."""
    if data is None:
        return 0
    if not data.isdigit():
        raise StoreError("the counter of epochs in etcd is damaged: it is not a number")
    return int(data)
