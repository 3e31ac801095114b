"""Several transactions combined into one etcd transaction, within etcd's limits. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ganeti.store.encoding import chain_digest, encode_transaction
from ganeti.store.etcd.keys import Head, Keys, sealed
from ganeti.store.etcd.messages import Request, delete, put
from ganeti.store.interface import Position, Put, Transaction

MAX_REQUESTS = 128
"""Maximum number of operations in a transaction of etcd with the default --max-txn-ops."""
MAX_BYTES = 1_400_000
"""Below the default --max-request-bytes (1.5 MiB) with room for the rest of the request."""
_BYTES_EACH = 32


@dataclass
class Batch:
    """Transactions that go to etcd together: all of them are written, or none."""

    keys: Keys
    before: Head
    after: Head
    positions: list[Position] = field(default_factory=list)
    _rows: dict[bytes, Request] = field(default_factory=dict)
    _bytes: int = 0

    @classmethod
    def begin(cls, keys: Keys, head: Head) -> "Batch":
        """Return an empty batch that continues from `head`."""
        return cls(keys, head, head)

    def add(self, epoch: int, txn: Transaction) -> bool:
        """Add a transaction; return False where etcd would not accept it together with the earlier ones.

        A single transaction always fits. Refused where serials run out, or a kind is not valid.
        """
        rows: dict[bytes, Request] = {}
        size = 0
        for operation in txn.operations:
            key = self.keys.row(operation.kind, operation.key)
            if isinstance(operation, Put):
                value = sealed(operation.kind, operation.key, operation.value)
                rows[key] = put(key, value)
                size += len(value)
            else:
                rows[key] = delete(key)
            size += len(key) + _BYTES_EACH
        requests = len(self._rows.keys() | rows.keys()) + 1  # the head is one more operation
        if self.positions and (requests > MAX_REQUESTS or self._bytes + size > MAX_BYTES):
            return False
        position = self.after.position.following(epoch)
        digest = chain_digest(self.after.digest, position, encode_transaction(txn))
        self.after = Head(position, digest)
        self.positions.append(position)
        self._rows.update(rows)
        self._bytes += size
        return True

    def requests(self) -> Sequence[Request]:
        """Return the operations for etcd."""
        return [put(self.keys.head, self.after.encode()), *self._rows.values()]
