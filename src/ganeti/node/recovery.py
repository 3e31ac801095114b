"""Answers heartbeats, and lets protected instances run under the node's lease only (D7)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, NotMaster, PrereqError
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.recovery import DiskRequest, GuestFault
from ganeti.node.lease_record import LeaseRecord
from ganeti.node.offline import STARTS
from ganeti.recovery.lease import NodeLease
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.recovery import HEARTBEAT, HeartbeatArgs, HeartbeatResult

Faults = Callable[[Sequence[str]], Mapping[str, GuestFault]]
"""Of these instances' guests, the ones that failed."""
DiskRequests = Callable[[Mapping[str, int]], Sequence[DiskRequest]]
"""What this node asks about these mirrored disks; their generations are those of the state."""
LOOK_S = 1.0
"""How often a start of an instance that is not protected looks whether it is now."""
LEAST_S = 0.001
"""A lease that lasts no longer counts as ended: a clock may not be able to tell so short a time."""
LEASE_WAIT_S = 15.0
"""How long a start waits for a lease: the first one takes two heartbeats."""

log = logging.getLogger(__name__)


class Guest(Protocol):
    """A guest that lives."""

    @property
    def name(self) -> str: ...

    def kill(self) -> None:
        """End it at once; OSError."""
        ...


class Machine(Protocol):
    """What this node keeps of its lease, and the guests on it (`ganeti.node.lease_files.LeaseFiles`)."""

    @property
    def boot_id(self) -> str:
        """A value that changes with each boot."""
        ...

    def read(self) -> LeaseRecord | None:
        """Return the record of this boot; None if there is none. OSError, ValueError if it cannot be read."""
        ...

    def write(self, record: LeaseRecord) -> None:
        """Replace the record; HostError."""
        ...

    def living_guests(self, uuids: Collection[str]) -> Sequence[Guest]:
        """Return the guests of these instances; OSError or ValueError if it is not known whether there are any."""
        ...


class Watchdog(Protocol):
    """The watchdog process (`ganeti.node.watchdog_process`)."""

    def why_unarmed(self) -> str:
        """Return why the machine is not reset if protected guests outlive the lease; '' if it is."""
        ...

    def want(self) -> None:
        """Start it in the background unless it runs."""
        ...

    async def ensure(self) -> None:
        """Return once it runs; HostError if it cannot be started."""
        ...

    async def close(self) -> None: ...


class NodeRecovery:
    """This node's lease and the instances that may run under it only; a new object continues the former one's."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        check_master: Callable[[int, str], Awaitable[str | None]],
        watchdog: Watchdog,
        faults: Faults,
        *,
        requests: DiskRequests,
    ) -> None:
        """`clock` must also count while the machine sleeps."""
        self._machine, self._clock = machine, clock
        self._check_master, self._watchdog, self._faults = check_master, watchdog, faults
        self._requests = requests
        self._lease = NodeLease(machine.boot_id)
        self._renewed = asyncio.Event()
        self._protected: dict[str, float] = {}
        self._as_of: dict[str, int] = {}
        """The newest position of the configuration that has said of each that it is protected."""
        if (former := _former(machine)) is not None:
            self._lease.ends_at = former.ends_at
            self._protected, self._as_of = dict(former.protected), dict(former.as_of)

    def begin(self) -> None:
        """Continue the former daemon's work: guests that outlived the lease are killed before anything else."""
        if not self._protected:
            return
        if not self._has_lease():
            try:
                for guest in self._machine.living_guests(self._protected):
                    log.warning("the lease of this node is over: killing %s", guest.name)
                    guest.kill()
            except (OSError, ValueError) as err:
                log.warning("the guests of this node: %s", err)
        self._watchdog.want()

    async def close(self) -> None:
        await self._watchdog.close()

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
        if self._protected or self._has_lease():
            self._watchdog.want()
        why_unarmed = self._watchdog.why_unarmed()
        faults = dict(self._faults(args.wanted))
        return HeartbeatResult(
            token=self._lease.issue(self._clock.monotonic()),
            is_armed=not why_unarmed,
            why_unarmed=why_unarmed,
            faults=faults,
            requests=tuple(one for one in self._requests(args.mirrored) if one.kind in args.kinds),
        )

    def under_lease(self, handlers: Handlers) -> Handlers:
        """Return the same handlers; the ones that start a guest do so for a protected one under a lease only."""
        return {
            name: self._under_lease(handler) if name in STARTS else handler
            for name, handler in handlers.items()
        }

    def _under_lease(self, handler: Handler) -> Handler:
        async def answer(args: Any, call: Call) -> Any:
            instance: InstanceSpec = args.instance
            if instance.is_protected or self._is_older(instance):
                await self._admit(instance)
            else:
                self._leave_alone(instance)
            return await self._while_valid(instance, handler(args, call))

        return answer

    async def _admit(self, instance: InstanceSpec) -> None:
        """Protect an instance, before it is started; PrereqError without a lease, HostError without a guard."""
        try:
            async with asyncio.timeout(LEASE_WAIT_S):
                while not self._has_lease():
                    await self._renewed.wait()
        except TimeoutError:
            raise _no_lease(instance) from None
        await self._watchdog.ensure()
        self._protected[instance.uuid] = self._clock.monotonic()
        self._as_of[instance.uuid] = max(self._as_of.get(instance.uuid, 0), instance.as_of)
        self._save()

    def _is_older(self, instance: InstanceSpec) -> bool:
        """Return whether a heartbeat with a newer configuration has said that the instance is protected.

        The start may have waited in a queue since before that; the master relies on the lease by now.
        """
        is_listed = instance.uuid in self._protected
        return is_listed and instance.as_of < self._as_of.get(instance.uuid, 0)

    def _leave_alone(self, instance: InstanceSpec) -> None:
        """Protect an instance no longer, as the newest configuration says; the last heartbeat may be older."""
        if self._protected.pop(instance.uuid, None) is not None:
            self._as_of.pop(instance.uuid, None)
            self._save()

    async def _while_valid(self, instance: InstanceSpec, work: Awaitable[Any]) -> Any:
        """Return the result of a start, which is cancelled when the lease ends; its own clean-up follows.

        An instance that was not protected may become so while it starts.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                wait_s = LOOK_S
                if instance.is_protected or instance.uuid in self._protected:
                    wait_s = self._lease.ends_at - self._clock.monotonic()
                    if wait_s <= LEAST_S:
                        raise _no_lease(instance)
                await asyncio.wait((task,), timeout=wait_s)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        return await task

    def _has_lease(self) -> bool:
        return self._lease.is_valid(self._clock.monotonic())

    def _take(self, args: HeartbeatArgs, now: float) -> None:
        """Take in the lease and the list. The list is as old as the token, because heartbeats may arrive late."""
        token = args.token
        is_renewed = self._lease.renew(token)
        protected = dict.fromkeys(args.protected, now)
        if max(self._as_of.values(), default=0) <= args.as_of:
            as_of = dict.fromkeys(args.protected, args.as_of)
        else:
            as_of = {uuid: max(self._as_of.get(uuid, 0), args.as_of) for uuid in args.protected}
        if not self._protected.keys() <= protected.keys():
            known_until = token.sent_at if token and token.boot_id == self._lease.boot_id else None
            for uuid, at in self._protected.items():
                if uuid not in protected and (known_until is None or at > known_until):
                    protected[uuid] = at
                    if uuid in self._as_of:
                        as_of[uuid] = self._as_of[uuid]
        if is_renewed or protected != self._protected or as_of != self._as_of:
            self._protected, self._as_of = protected, as_of
            self._save()
        if is_renewed:
            self._renewed.set()
            self._renewed = asyncio.Event()

    def _save(self) -> None:
        self._machine.write(
            LeaseRecord(self._lease.boot_id, self._lease.ends_at, self._protected, self._as_of)
        )


def _no_lease(instance: InstanceSpec) -> PrereqError:
    return PrereqError(
        (
            f"{instance.name} is protected (backend parameter recovery=failover), and this node has no lease from the"
            " master, without which it runs no protected instance: 'gnt-cluster ha-status' says why; try again then,"
            f" or run it without protection: gnt-instance modify -B recovery=none {instance.name}"
        ),
        ErrorCode.WRONG_STATE,
    )


def _former(machine: Machine) -> LeaseRecord | None:
    """Return the record of the daemon before; without one no lease is valid."""
    try:
        return machine.read()
    except (OSError, ValueError) as err:
        log.warning("the lease of this node is lost: %s", err)
        return None
