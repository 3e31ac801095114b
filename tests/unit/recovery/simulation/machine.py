"""A machine with a node daemon, a watchdog, guests that write numbered entries, and its copies of their disks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ganeti.model.objects import Grant, NodeUuid
from ganeti.model.recovery import Token
from ganeti.recovery.grants import CopyRecord, GrantRefused, Returned
from ganeti.recovery.lease import DEVICE_S, Guard, GuardAction, NodeLease
from tests.unit.recovery.simulation.rules import Rules
from tests.unit.store.simulation.engine import Gate, Process, World

WRITE_S, TICK_S, ACK_S = 1.0, 1.0, 1.5


@dataclass
class Copy:
    """What one node has of a disk: all that survives a crash."""

    record: CopyRecord | None
    log: list[int] = field(default_factory=list)
    is_split: bool = False


@dataclass
class Guest:
    """A running guest, which writes while its machine runs."""

    instance: str
    grant: Grant
    is_alive: bool = True
    is_stuck: bool = False
    """SIGKILL does not end it (a process in state D)."""
    asks_to_drop: bool = False
    dropped: Gate[None] = field(default_factory=Gate)


@dataclass(frozen=True)
class Answer:
    """To a heartbeat."""

    token: Token
    is_armed: bool
    running: frozenset[str]
    drop_requests: dict[str, int]
    """Instances whose writer asks to continue alone, with the generation of its copy."""
    synchronised: dict[str, tuple[NodeUuid, CopyRecord]]
    """Instances whose peer is synchronised, with the record of the writer's copy."""


class Observer:
    """Is told what an outsider would see."""

    def acknowledged(self, instance: str, entry: int) -> None: ...
    def opened(self, machine: "Machine", instance: str, grant: Grant) -> None: ...
    def attempted(self, instance: str, since: float, most: int) -> None: ...
    def reset(self, instance: str) -> None: ...


class Machine:
    """One node; `process` is its node daemon, `power` all of it."""

    def __init__(self, world: World, name: str, rules: Rules, observer: Observer) -> None:
        self.world, self.uuid, self.rules, self.observer = world, NodeUuid(name), rules, observer
        self.process = Process(name)
        self.power = Process(name)
        self.others: dict[NodeUuid, Machine] = {}
        self.copies: dict[str, Copy] = {}
        self.guests: dict[str, Guest] = {}
        self.has_watchdog = True
        self.is_frozen = False
        self.boots = 0
        self.stuck_guests = False
        self.sync_s = 0.02
        """How long its disks need to sync a record."""
        self.synced: dict[str, tuple[NodeUuid, CopyRecord]] = {}
        self.boot()

    # The machine

    def boot(self) -> None:
        """Start with nothing but what is on the disks."""
        self.boots += 1
        self.power.is_up = self.process.is_up = True
        self.power.life += 1
        self.process.life += 1
        self.is_frozen = False
        self.thaw: Gate[None] = Gate()
        self.guests, self.synced = {}, {}
        self.protected: dict[str, float] = {}
        """Instances whose guests end with the lease, and when this node learned that."""
        self._resumed: Gate[None] | None = None
        self.lease = NodeLease(f"{self.uuid}-{self.boots}")
        self.guard = Guard(self.world.now)
        self.petted_at = self.world.now
        self._every(TICK_S, self._guard)

    def die(self) -> None:
        """Lose power."""
        for guest in self.guests.values():
            guest.is_alive = False
        self.guests = {}
        self.power.is_up = self.process.is_up = False
        self.power.life += 1
        self.process.life += 1

    def kill_daemon(self) -> None:
        """The node daemon alone ends; guests and watchdog go on."""
        self.process.is_up = False
        self.process.life += 1

    def start_daemon(self) -> None:
        if self.power.is_up and not self.process.is_up:
            self.process.is_up = True
            self.process.life += 1

    def pause_daemon(self, seconds: float) -> None:
        """The node daemon alone is stopped (SIGSTOP): it answers late, guests and watchdog go on."""
        if self._resumed is None:
            gate = self._resumed = Gate()

            def resume() -> None:
                self._resumed = None
                gate.open()

            self.world.at(seconds, resume)

    def freeze(self, seconds: float) -> None:
        """Nothing runs; the watchdog device counts on."""
        if not self.power.is_up or self.is_frozen:
            return
        self.is_frozen = True
        self.thaw = Gate()
        life = self.power.life

        def thaw() -> None:
            if self.power.life != life:
                return
            self.is_frozen = False
            if self.has_watchdog and self.world.now - self.petted_at >= DEVICE_S:
                self.reset()
            else:
                self.thaw.open()

        def device() -> None:
            if self.power.life == life and self.is_frozen and self.has_watchdog:
                self.reset()

        self.world.at(seconds, thaw)
        self.world.at(max(self.petted_at + DEVICE_S - self.world.now, 0.0), device)

    def reset(self) -> None:
        """The watchdog resets the machine, which boots again."""
        self.die()
        life = self.power.life
        self.world.at(8.0, lambda: self.boot() if self.power.life == life else None)

    def _every(self, seconds: float, act: Callable[[], None]) -> None:
        life = self.power.life

        def again() -> None:
            if self.power.life == life:
                if not self.is_frozen:
                    act()
                self.world.at(seconds, again)

        self.world.at(seconds, again)

    def _guard(self) -> None:
        """What the watchdog process does; it survives the node daemon."""
        alive = any(guest.is_alive for name, guest in self.guests.items() if name in self.protected)
        actions = self.guard.tick(self.world.now, has_guests=alive)
        for action in actions:
            match action:
                case GuardAction.PET:
                    self.petted_at = self.world.now
                case GuardAction.KILL:
                    self._kill_guests(self.protected)
                case GuardAction.RESET if self.has_watchdog:
                    self.reset()
                    return
        if self.has_watchdog and self.world.now - self.petted_at >= DEVICE_S:
            self.reset()

    def _kill_guests(self, those: Collection[str]) -> None:
        for instance, guest in list(self.guests.items()):
            if instance in those and not guest.is_stuck:
                guest.is_alive = False
                del self.guests[instance]

    # The node daemon

    async def beat(self, token: Token | None, listed: frozenset[str]) -> Answer | None:
        """Answer a heartbeat of the master."""
        await self._thawed()
        if self._resumed is not None:
            await self._resumed
        known_until = token.sent_at if token and token.boot_id == self.lease.boot_id else None
        self.protected = {
            name: at
            for name, at in self.protected.items()
            if known_until is None or at > known_until
        } | dict.fromkeys(listed, self.world.now)
        if token is not None:
            self.lease.renew(self.rules.counted(token, self.world.now))
            self.guard.ends_at = self.lease.ends_at
        asking = {
            name: record.generation
            for name, guest in self.guests.items()
            if guest.asks_to_drop and (record := self.copies[name].record)
        }
        return Answer(
            token=self.lease.issue(self.world.now),
            is_armed=self.has_watchdog,
            running=frozenset(self.guests),
            drop_requests=asking,
            synchronised=dict(self.synced),
        )

    async def _thawed(self) -> None:
        if self.is_frozen:
            await self.thaw

    async def open_and_start(
        self, instance: str, grant: Grant, *, is_protected: bool = True
    ) -> bool:
        """Start a guest under a grant; False if that is refused."""
        await self._thawed()
        if is_protected:
            self.protected[instance] = self.world.now
        if instance in self.guests:
            return self.guests[instance].grant.generation <= grant.generation
        if not self.lease.is_valid(self.world.now):
            return False
        copy = self.copies[instance]
        try:
            record = self.rules.opened(copy.record, grant, self.uuid)
        except GrantRefused:
            return False
        if not self.rules.syncs_before_opening:
            self._run_guest(instance, grant)
        before = copy.record
        await self._synced()
        if copy.record is not before:
            return False  # something else was granted meanwhile
        copy.record = record
        if self.rules.syncs_before_opening:
            if not self.lease.is_valid(self.world.now) or instance in self.guests:
                return False
            self._run_guest(instance, grant)
        return True

    def _run_guest(self, instance: str, grant: Grant) -> None:
        guest = Guest(instance, grant, is_stuck=self.stuck_guests)
        self.guests[instance] = guest
        self.observer.opened(self, instance, grant)
        self.world.spawn(self.power, self._write(guest))

    async def _synced(self) -> None:
        await self.world.sleep(self.world.random.random() * self.sync_s)
        await self._thawed()

    async def stop(self, instance: str, grant: Grant) -> bool:
        """Stop a guest in order, and record that its generation is over; True once that is done."""
        await self._thawed()
        guest = self.guests.get(instance)
        if guest is not None and guest.is_stuck:
            return False
        if guest is not None:
            guest.is_alive = False
            del self.guests[instance]
        await self._synced()
        if instance in self.guests:
            return False
        self.synced.pop(instance, None)
        self.copies[instance].record = self.rules.closed(
            self.copies[instance].record, grant, self.uuid
        )
        return True

    async def granted(self, instance: str, grant: Grant) -> bool:
        """The writer's grant has changed: sync it, and let waiting writes continue."""
        await self._thawed()
        await self._synced()
        copy, guest = self.copies[instance], self.guests.get(instance)
        if copy.record is None or copy.record.generation > grant.generation:
            return False
        if grant.generation > copy.record.generation:
            # Only a later generation makes the master refuse what was reported: until then it may join (D3).
            self.synced.pop(instance, None)
        copy.record = CopyRecord(grant.generation, grant.current, copy.record.is_written)
        if guest is not None and grant.writer == self.uuid:
            guest.grant = grant
            guest.asks_to_drop = False
            guest.dropped.open()
            guest.dropped = Gate()
        return True

    async def rejoin(self, grants: dict[str, Grant]) -> bool:
        """Kill every guest, and refuse what was granted before; True once that is done (D9)."""
        await self._thawed()
        self.synced = {}
        self._kill_guests(self.guests.keys())
        for instance, copy in self.copies.items():
            copy.record = self.rules.barred(copy.record, grants[instance])
        return not self.guests

    async def take_entries(self, instance: str, generation: int, entries: list[int]) -> bool:
        """As a secondary: append what the primary has written; refused after a promotion (D8)."""
        await self._thawed()
        copy = self.copies[instance]
        if instance in self.guests or copy.is_split:
            return False
        if copy.record is not None and copy.record.generation > generation:
            return False
        if copy.log != entries:
            have = set(copy.log)
            copy.log += [entry for entry in entries if entry not in have]
        return True

    async def overwrite(self, instance: str, log: list[int], grant: Grant) -> bool:
        """As a stale secondary: become a copy of the primary."""
        await self._thawed()
        copy = self.copies[instance]
        if instance in self.guests or copy.is_split:
            return False
        match self.rules.judge_return(grant, self.uuid, copy.record):
            case Returned.SPLIT if self.rules.keeps_split_copies:
                copy.is_split = True
                return False
            case Returned.CURRENT if copy.log != log[: len(copy.log)]:
                return False
        copy.log = list(log)
        copy.record = CopyRecord(grant.generation, grant.current)
        return True

    # Guests

    async def _write(self, guest: Guest) -> None:
        """Write numbered entries; one is complete when all current copies have it (D4)."""
        copy = self.copies[guest.instance]
        while True:
            await self.world.sleep(WRITE_S * (0.5 + self.world.random.random()))
            await self._thawed()
            if not guest.is_alive:
                return
            entry = max(copy.log, default=0) + 1
            copy.log.append(entry)
            if await self._mirror(guest, copy) and guest.is_alive and not self.is_frozen:
                self.observer.acknowledged(guest.instance, entry)

    async def _mirror(self, guest: Guest, copy: Copy) -> bool:
        """Return whether all current copies have what was written; ask to drop a silent peer (D5)."""
        while guest.is_alive:
            peers = [one for one in self._holders(guest.instance) if one is not self]
            missing = []
            for peer in peers:
                # One that was reported as synchronised may be in `current` any moment (D3).
                is_needed = peer.uuid in guest.grant.current or guest.instance in self.synced
                if not is_needed:
                    await self._synchronise(guest, copy, peer)
                elif not await self._replicate(guest, copy, peer):
                    missing.append(peer)
            if not missing or not self.rules.writes_wait_for_all_copies:
                return True
            guest.asks_to_drop = True
            if not self.rules.commits_before_writing_alone:
                return True
            await self._dropped_or_later(guest)
        return False

    async def _dropped_or_later(self, guest: Guest) -> None:
        """Wait until the grant changes, or look at the peer again."""
        gate: Gate[None] = Gate()
        guest.dropped.when_open(gate.open)
        self.world.at(2.0, gate.open)
        await gate

    async def _replicate(self, guest: Guest, copy: Copy, peer: "Machine") -> bool:
        generation = guest.grant.generation
        if copy.record is not None:
            generation = copy.record.generation
        entries = list(copy.log)
        done = await self.world.call(
            self.power,
            peer.power,
            lambda: peer.take_entries(guest.instance, generation, entries),
            ACK_S,
        )
        return bool(done)

    async def _synchronise(self, guest: Guest, copy: Copy, peer: "Machine") -> None:
        """Bring a copy that is not current up to date, and tell the master (D3)."""
        log, grant = list(copy.log), guest.grant
        done = await self.world.call(
            self.power, peer.power, lambda: peer.overwrite(guest.instance, log, grant), ACK_S
        )
        if done and guest.is_alive and guest.grant == grant and copy.record is not None:
            self.synced[guest.instance] = peer.uuid, copy.record

    def _holders(self, instance: str) -> "list[Machine]":
        return [one for one in self.others.values() if instance in one.copies]
