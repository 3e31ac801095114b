"""One random history of a small cluster with protected instances, and what must be true of all of them."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ganeti.model.objects import Grant, NodeUuid
from ganeti.model.recovery import FenceMethod, NodeState, Recovery
from ganeti.recovery.facts import InstanceFacts, NodeFacts
from ganeti.recovery.grants import CopyRecord
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.times import LOST_S
from tests.unit.recovery.simulation.cluster import VOTERS, Master, State, reaches_majority
from tests.unit.recovery.simulation.machine import Copy, Machine, Observer
from tests.unit.recovery.simulation.rules import Rules
from tests.unit.store.simulation.engine import Gate, World

WINDOW_S = 600.0
QUIET_S, FAULTS_S, HEALING_S, STEP_S = 6.0, 70.0, 240.0, 10.0
THEMES = (
    "any",
    "any",
    "partitions",
    "masters",
    "freezes",
    "long",
    "late",
    "slow",
    "clocks",
    "pairs",
    "stuck",
    "policies",
)
"""What a history has most of."""
BOTH = (FenceMethod.POWER, FenceMethod.WATCHDOG)
METHODS = (BOTH, BOTH, (FenceMethod.WATCHDOG,), (FenceMethod.POWER,))


class Violation(Exception):
    """A disk had two writers, a write was lost, or a recovery did not happen."""


class Checker(Observer):
    """Sees everything from outside."""

    def __init__(self, world: World, state: State) -> None:
        self.world, self.state = world, state
        self.attempts: dict[str, list[float]] = {}
        self.reset_at: dict[str, float] = {}
        self.clock_was_set = False
        self.machines: dict[NodeUuid, Machine] = {}
        self.kept: dict[str, list[int]] = {}
        self.last: dict[str, float] = {}
        self.recoveries = 0
        self.problem: str | None = None

    def violated(self, what: str) -> None:
        self.problem = self.problem or f"at {self.world.now:.2f} s: {what}"
        self.world.is_over = True

    def acknowledged(self, instance: str, entry: int) -> None:
        writers = [
            one.uuid
            for one in self.machines.values()
            if instance in one.guests and one.guests[instance].is_alive and not one.is_frozen
        ]
        if len(writers) > 1:
            self.violated(f"{instance} is written on {' and '.join(writers)}")
        if self.kept[instance] and entry <= self.kept[instance][-1]:
            self.violated(f"{instance}: entry {entry} was acknowledged by another writer before")
        for node in self.state.grants[instance].current:
            if entry not in self.machines[node].copies[instance].log[-3:]:
                self.violated(f"{instance}: the current copy on {node} has no entry {entry}")
        self.kept[instance].append(entry)
        self.last[instance] = self.world.now

    def attempted(self, instance: str, since: float, most: int) -> None:
        if since < self.reset_at.get(instance, 0.0):
            return  # a deposed master's job that ends now began before the instance ran again
        at = [one for one in self.attempts.get(instance, ()) if one > self.world.now - WINDOW_S]
        self.attempts[instance] = [*at, self.world.now]
        if len(at) >= most and not self.clock_was_set:
            self.violated(f"{instance}: {len(at) + 1} attempts within {WINDOW_S:.0f} s")

    def reset(self, instance: str) -> None:
        """It runs although it was given up: attempts count from now on."""
        self.attempts.pop(instance, None)
        self.reset_at[instance] = self.world.now

    def opened(self, machine: Machine, instance: str, grant: Grant) -> None:
        self.recoveries += 1
        record = machine.copies[instance].record
        if record is None or record.generation != grant.generation:
            self.violated(f"{instance} is opened on {machine.uuid} before its record is synced")
        if grant.generation > self.state.grants[instance].generation:
            self.violated(f"{instance} is opened on {machine.uuid} under no committed grant")
        for other in self.machines.values():
            if other is not machine and instance in other.guests and not other.is_frozen:
                self.violated(f"{instance} is started on {machine.uuid} and runs on {other.uuid}")
        lost = set(self.kept[instance]) - set(machine.copies[instance].log)
        if lost:
            self.violated(f"{instance} on {machine.uuid} has lost {sorted(lost)[:3]}")


class History:
    """What happens is decided by the seed."""

    def __init__(self, seed: int, rules: Rules, theme: str = "") -> None:
        self.world = World(seed)
        self.random, self.rules = self.world.random, rules
        self.world.slowness_s = 0.02
        dice = random.Random(seed)
        self.theme = theme or dice.choice(THEMES)
        count = dice.choice((3, 4, 5, 7))
        is_late = self.theme == "late"
        self.state = State(*((0.4, 0.2, 400.0) if is_late else ()))
        self.checker = Checker(self.world, self.state)
        self.machines = [
            Machine(self.world, f"n{number}", rules, self.checker) for number in range(count)
        ]
        by_uuid = {one.uuid: one for one in self.machines}
        self.checker.machines = by_uuid
        self.world.loss = dice.choice((0.0, 0.0, 0.02, 0.1))
        for machine in self.machines:
            machine.others = by_uuid
            methods = dice.choice(METHODS)
            machine.has_watchdog = FenceMethod.WATCHDOG in methods
            self.state.nodes[machine.uuid] = NodeFacts(machine.uuid, methods)
        for number in range(3):
            name = f"i{number}"
            one, two = dice.sample(self.machines, 2)
            both = frozenset((one.uuid, two.uuid))
            self.state.instances[name] = InstanceFacts(
                name,
                one.uuid,
                attempts=dice.choice((3, 100, 100)),
                window_s=WINDOW_S,
                priority=dice.choice((50, 90)),
            )
            self.state.grants[name] = Grant(1, both)
            for machine in (one, two):
                machine.copies[name] = Copy(CopyRecord(1, both))
            self.checker.kept[name] = []
        is_long = self.theme in ("long", "late")
        self.faults_end = QUIET_S + FAULTS_S * (3 if is_long else 1)
        self.pause_s = {"long": 80.0, "late": 40.0}.get(self.theme, 12.0)
        self.master: Master | None = None
        self.power_works = 1.0

    def run(self) -> int:
        """Return how many guests were started; Violation."""
        self._elect(self.machines[0])
        self.world.at(1.0, self._follow_mastership)
        self.world.at(QUIET_S, self._fault)
        self._advance(self.faults_end)
        self._heal()
        end = self.world.now + HEALING_S
        while self.world.now < end and not self.world.is_over and self._lacking():
            self._advance(STEP_S)
            self._start_by_hand()
        for what in self._lacking():
            self.checker.violated(f"although all is well: {what}")
        if self.checker.problem:
            raise Violation(self.checker.problem)
        return self.checker.recoveries

    def run_outage(self) -> None:
        """A node has lost its power for good, and its management controller is out of reach for minutes."""
        self.world.loss = 0.0
        for machine in self.machines:
            machine.has_watchdog = False
            methods = (FenceMethod.POWER,)
            self.state.nodes[machine.uuid] = NodeFacts(machine.uuid, methods)
        self._elect(self.machines[0])
        self.world.at(1.0, self._follow_mastership)
        self._advance(QUIET_S)
        self.power_works = 0.0
        self.random.choice(self.machines[1:]).die()
        self._advance(self.random.uniform(60.0, 300.0))
        self.power_works = 1.0
        self._advance(2 * HEALING_S)
        for what in self._lacking():
            self.checker.violated(what)
        if self.checker.problem:
            raise Violation(self.checker.problem)

    def _advance(self, seconds: float) -> None:
        if not self.world.is_over:
            self.world.run(self.world.now + seconds)

    # Mastership, as the store gives it

    def _elect(self, machine: Machine) -> None:
        """A new epoch; the old master does not know yet."""
        self.master = Master(self.world, machine, self.state, self.rules, self._power, self.checker)

    def _follow_mastership(self) -> None:
        master = self.master
        is_fencing = any(row.state is NodeState.FENCING for row in self.state.node_rows.values())
        if is_fencing and self.random.random() < 0.15:
            self._hand_over()
        if master is not None and (
            not master.process.is_up or not master.reaches_majority() or master.machine.is_frozen
        ):
            able = self._able()
            if able:
                self._elect(self.random.choice(able))
        self.world.at(1.0 + self.random.random() * 6, self._follow_mastership)

    def _able(self) -> list[Machine]:
        return [one for one in self.machines[:VOTERS] if reaches_majority(self.world, one)]

    # Faults

    def _power(self, master: Master, node: NodeUuid) -> Gate[bool]:
        """The management controller: slow, broken, or its answer is lost."""
        gate: Gate[bool] = Gate()
        heard = sum(at > self.world.now - 2 * LOST_S + 3 for at in master.heard.values())
        fenced = sum(one.state is NodeState.FENCED for one in master.core.nodes.values())
        if 2 * heard <= len(self.machines) - fenced:
            self.checker.violated(f"{node} is fenced although only {heard} nodes answer")
        machine = self.checker.machines[node]
        works = self.random.random() < self.power_works
        answers = self.random.random() < self.power_works
        is_heard = FenceMethod.POWER in self.state.nodes[node].methods and works and answers

        def cut() -> None:
            if works and FenceMethod.POWER in self.state.nodes[node].methods:
                machine.die()
                life = machine.power.life
                on_again = 10 + self.random.random() * 60
                self.world.at(
                    on_again, lambda: machine.boot() if machine.power.life == life else None
                )
            self.world.at(0.5, lambda: gate.open(is_heard))

        self.world.at(0.5 + self.random.random() * 6, cut)
        return gate

    def _fault(self) -> None:
        if self.world.now > self.faults_end:
            return
        faults: tuple[Callable[[], None], ...] = (
            self._lose,
            self._lose,
            self._freeze,
            self._isolate,
            self._cut_some,
            self._mend,
            self._kill_daemon,
            self._stuck,
            self._bad_power,
            self._hand_over,
            self._spoil_watchdog,
            self._flap,
            self._slow_disk,
            self._pause,
        )
        themed = {
            "partitions": (self._isolate, self._cut_some, self._split, self._mend) * 4,
            "masters": (self._hand_over, self._lose_master, self._lose, self._isolate) * 3,
            "freezes": (self._freeze, self._freeze, self._pause) * 3,
            "stuck": (self._stuck, self._isolate, self._hand_over) * 6,
            "slow": (self._slow_disk, self._lose, self._isolate, self._slow_disk) * 4,
            "clocks": (self._set_clocks, self._set_clocks, self._lose, self._hand_over) * 4,
            "pairs": (self._two, self._two, self._flap, self._bad_power) * 4,
            "late": (self._isolate, self._hand_over, self._lose, self._mend) * 5,
            "long": (self._isolate, self._split, self._lose) * 4,
            "stops": (self._stop, self._stop, self._stop, self._lose, self._hand_over) * 8,
            "policies": (self._change_policy, self._protect_and_isolate) * 6,
        }
        self.random.choice((*faults, *themed.get(self.theme, ())))()
        self.world.at(self.random.random() * self.pause_s, self._fault)

    def _any(self) -> Machine:
        return self.random.choice(self.machines)

    def _lose(self) -> None:
        self._cut_power(self._any())

    def _lose_master(self) -> None:
        if self.master is not None:
            self._cut_power(self.master.machine)

    def _cut_power(self, machine: Machine) -> None:
        if not machine.power.is_up:
            return
        machine.die()
        life = machine.power.life
        off_s = self.random.choice((3.0, 20.0, 60.0)) * (0.5 + self.random.random())
        self.world.at(off_s, lambda: machine.boot() if machine.power.life == life else None)

    def _two(self) -> None:
        """Two failures at the same moment."""
        for fault in self.random.sample(
            (self._lose, self._lose_master, self._freeze, self._isolate, self._stuck, self._flap), 2
        ):
            fault()

    def _flap(self) -> None:
        """A node's links break and heal every few seconds."""
        lonely = self._any()
        links = {(lonely.uuid, one.uuid) for one in self.machines if one is not lonely}
        links |= {(two, one) for one, two in links}
        until = self.world.now + self.random.random() * 60

        def turn() -> None:
            is_cut = not links & self.world.cut and self.world.now < until
            self.world.cut = self.world.cut | links if is_cut else self.world.cut - links
            if self.world.now < until:
                self.world.at(self.random.choice((1.0, 4.0, 9.0)) * self.random.random(), turn)

        turn()

    def _slow_disk(self) -> None:
        machine = self._any()
        machine.sync_s = self.random.choice((2.0, 12.0, 30.0))

        def recover() -> None:
            machine.sync_s = 0.02

        self.world.at(self.random.random() * 60, recover)

    def _pause(self) -> None:
        """The master's process is stopped for a while, or a node daemon."""
        if self.master is not None and self.random.random() < 0.5:
            self.master.pause(self.random.random() * 40)
        else:
            self._any().pause_daemon(self.random.random() * 40)

    def _set_clocks(self) -> None:
        """Wall clocks jump; those that count leases do not."""
        self.checker.clock_was_set = True
        self.state.clock_off_s += self.random.choice((-1e6, -700.0, -30.0, 30.0, 700.0, 1e6))

    def _freeze(self) -> None:
        self._any().freeze(5 + self.random.random() * 60)

    def _stop(self) -> None:
        """An administrator stops a guest; recovery starts it again as it would a crashed one."""
        if self.master is not None:
            name = self.random.choice(list(self.state.instances))
            self.world.spawn(self.master.process, self.master.stop_by_hand(name))

    def _isolate(self) -> None:
        lonely = self._any()
        links = [(lonely.uuid, one.uuid) for one in self.machines if one is not lonely]
        self.world.cut_links(links, both_ways=self.random.random() < 0.4)

    def _split(self) -> None:
        """Two sides that do not reach each other; or the voters from all others."""
        if self.random.random() < 0.3:
            some = self.machines[:VOTERS]
        else:
            some = self.random.sample(self.machines, self.random.randrange(1, len(self.machines)))
        others = [one for one in self.machines if one not in some]
        self.world.cut_links([(a.uuid, b.uuid) for a in some for b in others])

    def _cut_some(self) -> None:
        pairs = [(a.uuid, b.uuid) for a in self.machines for b in self.machines if a is not b]
        links = [one for one in pairs if self.random.random() < 0.3]
        self.world.cut_links(links, both_ways=self.random.random() < 0.5)

    def _mend(self) -> None:
        self.world.cut_links(())

    def _kill_daemon(self) -> None:
        machine = self._any()
        machine.kill_daemon()
        self.world.at(self.random.random() * 30, machine.start_daemon)

    def _stuck(self) -> None:
        """SIGKILL ends no guest of this machine for a while."""
        machine = self._any()
        machine.stuck_guests = True
        for guest in machine.guests.values():
            guest.is_stuck = True

        def free() -> None:
            machine.stuck_guests = False
            for guest in machine.guests.values():
                guest.is_stuck = False

        self.world.at(self.random.random() * 60, free)

    def _change_policy(self) -> None:
        """An administrator protects an instance, or no longer."""
        name = self.random.choice(tuple(self.state.instances))
        is_protected = self.state.instances[name].recovery is Recovery.FAILOVER
        self._set_policy(name, Recovery.RESTART if is_protected else Recovery.FAILOVER)

    def _set_policy(self, name: str, policy: Recovery) -> None:
        facts = self.state.instances[name]
        self.state.instances[name] = replace(facts, recovery=policy)

    def _protect_and_isolate(self) -> None:
        """The node of an instance is cut off just before or after the instance is protected, or no longer."""
        name = self.random.choice(tuple(self.state.instances))
        node = self.state.instances[name].node
        for policy in self.random.sample((Recovery.RESTART, Recovery.FAILOVER), 2):
            self.world.at(self.random.random() * 3, partial(self._set_policy, name, policy))
        links = [(node, one.uuid) for one in self.machines if one.uuid != node]

        def isolate() -> None:
            if self.world.now < self.faults_end:
                self.world.cut_links(links, both_ways=True)

        self.world.at(self.random.random() * 3, isolate)

    def _bad_power(self) -> None:
        self.power_works = self.random.choice((0.0, 0.5, 1.0))

    def _hand_over(self) -> None:
        able = self._able()
        if able:
            self._elect(self.random.choice(able))

    def _spoil_watchdog(self) -> None:
        """A watchdog that was armed is not any more, while the node is well."""
        machine = self._any()
        if machine.power.is_up and not machine.is_frozen and not machine.guests:
            machine.has_watchdog = False

    # The end

    def _heal(self) -> None:
        self._mend()
        self.world.loss, self.power_works = 0.0, 1.0
        self.state.late_starts = self.state.late_beats = 0.0
        for machine in self.machines:
            machine.sync_s = 0.02
            machine.stuck_guests = False
            for guest in machine.guests.values():
                guest.is_stuck = False
            if not machine.power.is_up:
                machine.boot()
            machine.start_daemon()

    def _start_by_hand(self) -> None:
        """Administrators start what was given up, once its node is well."""
        master = self.master
        for name, watch in master.core.instances.items() if master is not None else ():
            node = self.state.instances[name].node
            row = self.state.node_rows.get(node)
            is_well = row is None or row.state is NodeState.HEALTHY
            if master is not None and watch.state is InstanceState.GIVEN_UP and is_well:
                self.checker.reset(name)
                self.world.spawn(master.process, master.start_by_hand(name))

    def _lacking(self) -> list[str]:
        """What is not yet as it should be."""
        since = self.world.now - STEP_S
        lacking = [
            f"{name} does not run: {self._why(name)}"
            for name in self.state.instances
            if self.checker.last.get(name, -STEP_S) < since
        ]
        rows = self.state.node_rows.values()
        return lacking + [
            f"{row.node} is {row.state}" for row in rows if row.state is not NodeState.HEALTHY
        ]

    def _why(self, name: str) -> str:
        master = self.master
        watch = master.core.instances[name] if master else None
        told = f"{watch.state} {watch.why} {watch.due}" if watch else ""
        return f"{self.state.instances[name].node} {self.state.grants[name]} {told}"
