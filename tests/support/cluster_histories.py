"""Random histories of a whole simulated cluster: the real master, its jobs, locks and recovery, under everything that fails.

An administrator starts, stops, moves and protects instances, and takes nodes into maintenance. Meanwhile nodes lose
their power, links are cut in one direction or both, power devices fail, guests crash or resist being killed, node
daemons and masters end. The seed decides all. `Judge` looks on from outside while it goes on, and `ClusterHistory`
checks at the end that everything that should run does so once, and that nothing is held.
"""

import asyncio
import random
import re
from collections.abc import Callable, Sequence

import msgspec

from ganeti.base.errors import GanetiError
from ganeti.config.fill import recovery_of
from ganeti.model.names import AdminState, RebootType
from ganeti.model.objects import Cluster
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import (
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.opcodes.maintenance import OpNodeMaintenanceBegin, OpNodeMaintenanceEnd
from ganeti.model.opcodes.moving import OpInstanceFailover, OpNodeEvacuate
from ganeti.model.recovery import NodeState, Recovery
from ganeti.model.stored import Stored
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.durations import Durations
from ganeti.simulation.example import configuration, instance_name, node_name
from ganeti.simulation.nodes.simulated import Work
from ganeti.simulation.trace import Event, Kind

NODES, INSTANCES = 5, 6
BEGIN_S, FAULTS_S, HEALED_S = 30.0, 300.0, 1500.0
LOOK_S = 30.0
STEADY_S = 60.0
"""A node that was left alone for so long is not fenced."""
TIMES = Durations(boot_s=2.0, node_boot_s=20.0, stop_s=2.0, migration_s=3.0, power_cut_s=2.0)
_JOB = re.compile(r"(\d+)/")
THEMES = ("any", "links", "masters", "jobs", "power", "hung", "returns")


class Violation(AssertionError):
    """A promise was broken."""


class Judge:
    """Looks at each event."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._disturbed_at: dict[str, float] = {}
        self.broken: list[str] = []
        cluster.trace.listen(self._happened)
        for node in cluster.nodes.values():
            node.begins = self._check_alone

    def disturbed(self, *names: str) -> None:
        """Something has happened to nodes."""
        self._disturbed_at |= dict.fromkeys(names, self._cluster.now)

    def _happened(self, event: Event) -> None:
        match event.kind:
            case Kind.GUEST_STARTS | Kind.GUEST_MOVED:
                self._check_runs_once(event)
            case Kind.MASTER:
                self.disturbed(*self._cluster.nodes)
            case Kind.NODE_BACK | Kind.NODE_LOST:
                self.disturbed(event.name)
            case Kind.NODE_STATE if event.detail.startswith(NodeState.FENCING.value):
                self._check_was_lost(event)

    def _check_runs_once(self, event: Event) -> None:
        places = [
            node.name
            for node in self._cluster.nodes.values()
            if any(
                one.spec.name == event.name and one.state in ("running", "paused")
                for one in node.guests.values()
            )
        ]
        if len(places) > 1:
            self._broken(event.at, f"{event.name} runs on {' and '.join(places)}")

    def _check_alone(self, work: Work) -> None:
        """A changing call begins: no other job of this master changes the same instance anywhere."""
        job = _JOB.match(work.call.key)
        for node in self._cluster.nodes.values():
            for other in node.running.values():
                their = _JOB.match(other.call.key)
                is_same = work.instance and other.instance == work.instance
                if not (is_same and job and their and other.call.epoch == work.call.epoch):
                    continue
                if job[1] != their[1]:
                    what = f"{work.what} begins while {other.what} lasts on {node.name}"
                    self._broken(self._cluster.now, f"{work.instance}: {what}")

    def _check_was_lost(self, event: Event) -> None:
        cluster, since = self._cluster, self._disturbed_at.get(event.name, 0.0)
        is_lost = cluster.nodes[event.name].is_off or cluster.network.is_disturbed
        if event.at - since > STEADY_S and not is_lost:
            self._broken(event.at, f"{event.name} is fenced although nothing has happened to it")

    def _broken(self, at: float, what: str) -> None:
        self.broken.append(f"at {at:.1f} s: {what}")


class ClusterHistory:
    """One history; `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._dice = dice = random.Random(f"cluster history {seed}")
        self._theme = dice.choice(THEMES)
        self._cluster = SimulatedCluster(_objects(), durations=TIMES, seed=seed)
        self._broken_power: set[str] = set()
        self._in_maintenance: set[str] = set()
        self._jobs: list[int] = []

    def run(self) -> int:
        """Return how many guests were started."""
        self._cluster.run(self._whole)
        return len(self._cluster.trace.of(Kind.GUEST_STARTS, Kind.GUEST_MOVED))

    async def _whole(self, cluster: SimulatedCluster) -> None:
        self._judge = Judge(cluster)
        await cluster.run_for(BEGIN_S)
        work = [asyncio.create_task(one) for one in (self._faults(), self._administer())]
        await cluster.run_for(FAULTS_S)
        for task in work:
            task.cancel()
        done = await asyncio.gather(*work, return_exceptions=True)
        wrong = [one for one in done if isinstance(one, Exception)]
        if wrong:
            raise wrong[0]
        await self._heal()
        if self._judge.broken:
            raise Violation(self._judge.broken[0])

    # Faults

    async def _faults(self) -> None:
        themed: dict[str, Sequence[Callable[[], None]]] = {
            "links": (self._isolate, self._isolate, self._mend),
            "masters": (self._lose_master, self._isolate_master, self._mend),
            "jobs": (self._crash_guest, self._restart_daemon, self._crash_guest),
            "power": (self._lose, self._break_power, self._repair_power),
            "hung": 2 * (self._hang_and_isolate, self._mend),
            "returns": (self._lose, *4 * (self._lose_while_it_returns,)),
        }
        faults: list[Callable[[], None]] = [
            self._lose, self._isolate, self._mend, self._crash_guest, self._restart_daemon,
            self._lose_master, self._break_power, self._repair_power, self._hang,
            *2 * [*themed.get(self._theme, ())],
        ]  # fmt: skip
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / 15))
            self._dice.choice(faults)()

    def _any(self) -> str:
        return node_name(self._dice.randint(1, NODES))

    def _lose(self) -> None:
        self._lose_one(self._any())

    def _lose_one(self, name: str) -> None:
        self._judge.disturbed(name)
        self._cluster.fail_node(name)
        loop = asyncio.get_running_loop()
        loop.call_later(self._dice.choice((1.0, 15.0, 60.0)), self._return_one, name)

    def _return_one(self, name: str) -> None:
        if self._cluster.nodes[name].is_off:
            self._cluster.return_node(name)

    def _lose_master(self) -> None:
        if self._cluster.master is not None:
            self._lose_one(self._cluster.master.name)

    def _isolate(self) -> None:
        self._isolate_one(self._any())

    def _isolate_master(self) -> None:
        if self._cluster.master is not None:
            self._isolate_one(self._cluster.master.name)

    def _isolate_one(self, name: str) -> None:
        others = [one for one in self._cluster.nodes if one != name]
        some = self._dice.sample(others, self._dice.randint(1, len(others)))
        both = self._dice.random() < 0.6
        pair = ([name], some) if self._dice.random() < 0.5 else (some, [name])
        self._judge.disturbed(name, *some)
        self._cluster.cut(*pair, both_ways=both)

    def _mend(self) -> None:
        self._judge.disturbed(*self._cluster.nodes)
        self._cluster.heal(self._cluster.nodes, self._cluster.nodes)

    def _crash_guest(self) -> None:
        node = self._cluster.nodes[self._any()]
        if node.guests:
            node.crash_guest(self._dice.choice(sorted(node.guests)))

    def _restart_daemon(self) -> None:
        node = self._cluster.nodes[self._any()]
        if not node.is_off:
            self._judge.disturbed(node.name)
            node.restart_daemon()

    def _break_power(self) -> None:
        name = self._any()
        self._broken_power.add(name)
        self._cluster.break_power_device(name)

    def _repair_power(self) -> None:
        for name in self._broken_power:
            self._cluster.break_power_device(name, broken=False)
        self._broken_power.clear()

    def _hang(self) -> None:
        self._hang_one(self._any())

    def _hang_and_isolate(self) -> None:
        """A node without a lease cannot kill its guests."""
        name = self._any()
        others = [one for one in self._cluster.nodes if one != name]
        self._hang_one(name)
        self._judge.disturbed(*self._cluster.nodes)
        self._cluster.cut([name], others)

    def _lose_while_it_returns(self) -> None:
        """A node that recovery has fenced is back, and is cut off for some seconds."""
        master = self._cluster.master
        if master is None:
            return
        for one in master.recovery.node_statuses():
            if one.state is NodeState.RETURNING:
                self._judge.disturbed(*self._cluster.nodes)
                others = [name for name in self._cluster.nodes if name != one.name]
                self._cluster.cut([one.name], others)
                after_s = self._dice.uniform(10.0, 16.0)
                asyncio.get_running_loop().call_later(after_s, self._mend)

    def _hang_one(self, name: str) -> None:
        """Guests of a node resist being killed for a while: only its watchdog ends them."""
        node = self._cluster.nodes[name]
        node.hangs_guests = True
        asyncio.get_running_loop().call_later(60.0, setattr, node, "hangs_guests", False)

    # The administrator

    async def _administer(self) -> None:
        pause_s = 4.0 if self._theme == "jobs" else 12.0
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / pause_s))
            await self._submit(self._operation())

    async def _submit(self, op: OpCode) -> None:
        try:
            self._jobs.append(await self._cluster.submit(op))
        except GanetiError:
            return  # it has no master, or refuses the job

    def _operation(self) -> OpCode:
        name = instance_name(self._dice.randint(1, INSTANCES))
        policy = self._dice.choice(("failover", "failover", "restart"))
        choices: list[Callable[[], OpCode]] = [
            lambda: OpInstanceStartup(instance_name=name),
            lambda: OpInstanceShutdown(instance_name=name),
            lambda: OpInstanceReboot(instance_name=name, reboot_type=RebootType.HARD),
            lambda: OpInstanceMigrate(instance_name=name, iallocator="hail", allow_failover=True),
            lambda: OpInstanceFailover(instance_name=name, iallocator="hail"),
            lambda: OpInstanceSetParams(instance_name=name, beparams={"recovery": policy}),
            lambda: OpNodeEvacuate(node_name=self._any(), mode="all", iallocator="hail"),
            self._maintenance,
        ]
        return self._dice.choice(choices)()

    def _maintenance(self) -> OpCode:
        if self._in_maintenance:
            return OpNodeMaintenanceEnd(node_name=self._in_maintenance.pop(), failback=True)
        name = self._any()
        self._in_maintenance.add(name)
        return OpNodeMaintenanceBegin(
            node_name=name, allow_failover=True, shutdown=False, iallocator="hail"
        )

    # The end

    async def _heal(self) -> None:
        """All is well again: in the end everything runs that should, and nothing is left over."""
        cluster = self._cluster
        self._repair_power()
        self._mend()
        for name, node in cluster.nodes.items():
            node.hangs_guests = False
            self._return_one(name)
        await cluster.run_for(2 * LOOK_S)
        await self._end_maintenance()
        end = cluster.now + HEALED_S
        while (lacking := self._lacking()) and cluster.now < end and not self._judge.broken:
            await cluster.run_for(LOOK_S)
            for name in cluster.nodes:  # a power cut that was under way may have come late
                self._return_one(name)
            await self._end_maintenance()
        if lacking and not self._judge.broken:
            raise Violation(f"although all is well: {lacking[0]}")

    async def _end_maintenance(self) -> None:
        """Where a node can leave maintenance: one that is offline does later."""
        if self._cluster.master is None:
            return
        for one in self._cluster.snapshot.nodes_by_name():
            if one.maintenance is not None and not one.offline:
                await self._submit(OpNodeMaintenanceEnd(node_name=one.name, failback=False))

    def _lacking(self) -> list[str]:
        """Return what is not yet as it should be."""
        cluster, master = self._cluster, self._cluster.master
        if master is None:
            return ["the cluster has no master"]
        snapshot = cluster.snapshot
        found = [
            f"node {one.name} is {one.state.value}: {one.why}"
            for one in master.recovery.node_statuses()
            if one.state is not NodeState.HEALTHY
        ]
        found += [f"node {one.name} is offline" for one in snapshot.nodes.values() if one.offline]
        for instance in snapshot.instances.values():
            home = snapshot.nodes[instance.primary_node].name
            places = [node.name for node in cluster.nodes.values() if instance.uuid in node.guests]
            is_wanted = instance.admin_state is AdminState.UP
            if is_wanted and recovery_of(snapshot, instance) is Recovery.NONE:
                continue
            if places != ([home] if is_wanted else []):
                state, where = instance.admin_state.value, " and ".join(places) or "nowhere"
                found.append(f"{instance.name} of {home} is {state} and runs {where}")
        ended = [job for job in self._jobs if (view := cluster.job(job)) and view.status.is_final]
        if len(ended) < len(self._jobs):
            found.append(f"jobs {sorted(set(self._jobs) - set(ended))} do not end")
        if owners := master.locks.owners():
            found.append(f"jobs {sorted(map(str, owners))} hold locks")
        if master.config.reservations.count():
            found.append("a name or an address is still reserved")
        master.locks.validate()
        return found


def _objects() -> list[Stored]:
    """Return a cluster that never gives instances up."""
    objects = configuration(NODES, INSTANCES)
    cluster = next(one for one in objects if isinstance(one, Cluster))
    params = {**cluster.beparams["default"], "recovery_attempts": 1000}
    changed = msgspec.structs.replace(cluster, beparams={"default": params})
    return [changed if one is cluster else one for one in objects]


def run_history(seed: int) -> int:
    """Return how many guests were started; Violation, or whatever broke."""
    return ClusterHistory(seed).run()
