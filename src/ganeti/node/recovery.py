"""Answers heartbeats: the node's lease, its watchdog, the guests that failed (D7)."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ganeti.base.clock import Clock
from ganeti.base.errors import HostError, NotMaster
from ganeti.base.paths import Paths
from ganeti.model.recovery import GuestFault
from ganeti.node.lease_record import LeaseRecord, boot_id, read_lease, write_lease
from ganeti.recovery.lease import NodeLease
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.recovery import HEARTBEAT, HeartbeatArgs, HeartbeatResult

Faults = Callable[[Sequence[str]], Mapping[str, GuestFault]]
"""Of these instances' guests, the ones that failed."""
NO_WATCHDOG = "this node has no watchdog process"

log = logging.getLogger(__name__)


class NodeRecovery:
    """This node's lease and the instances that may run under it only; a new object continues the former one's."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        check_master: Callable[[int, str], Awaitable[str | None]],
        faults: Faults,
    ) -> None:
        """`clock` must also count while the machine sleeps."""
        self._paths, self._clock = paths, clock
        self._check_master, self._faults = check_master, faults
        self._lease = NodeLease(boot_id(paths))
        self._protected: dict[str, float] = {}
        if (former := _former(paths)) is not None:
            self._lease.ends_at = former.ends_at
            self._protected = dict(former.protected)

    def handlers(self) -> Handlers:
        return {HEARTBEAT.name: self.heartbeat}

    @property
    def protected(self) -> frozenset[str]:
        """UUIDs of the instances whose guests may run here under the lease only."""
        return frozenset(self._protected)

    async def heartbeat(self, args: HeartbeatArgs, call: Call) -> HeartbeatResult:
        """Renew the lease; NotMaster unless the caller is the master, as far as this node knows."""
        if why := await self._check_master(call.epoch, call.master_uuid):
            raise NotMaster(why)
        self._take(args, self._clock.monotonic())
        faults = dict(self._faults(args.wanted))
        return HeartbeatResult(
            token=self._lease.issue(self._clock.monotonic()),
            is_armed=False,
            why_unarmed=NO_WATCHDOG,
            faults=faults,
        )

    def _take(self, args: HeartbeatArgs, now: float) -> None:
        """Take in the lease and the list. The list is as old as the token, because heartbeats may arrive late."""
        token = args.token
        is_renewed = self._lease.renew(token)
        listed = dict.fromkeys(args.protected, now)
        known_until = token.sent_at if token and token.boot_id == self._lease.boot_id else None
        kept = {
            uuid: at
            for uuid, at in self._protected.items()
            if known_until is None or at > known_until
        }
        if is_renewed or kept | listed != self._protected:
            self._protected = kept | listed
            self._save()

    def _save(self) -> None:
        record = LeaseRecord(self._lease.boot_id, self._lease.ends_at, self._protected)
        try:
            write_lease(self._paths, record)
        except OSError as err:
            raise HostError(f"cannot write {self._paths.lease}: {err.strerror}") from err


def _former(paths: Paths) -> LeaseRecord | None:
    """Return the record of the daemon before; without one no lease is valid."""
    try:
        return read_lease(paths)
    except (OSError, ValueError) as err:
        log.warning("the lease of this node is lost: %s", err)
        return None
