"""Distributes the ssconf files, which a node may read without asking the master (F8, S65)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec.structs import replace

from ganeti import __version__
from ganeti.base.errors import GanetiError
from ganeti.config.config import Config
from ganeti.config.fill import cluster_hvparams, filled_beparams, filled_ndparams
from ganeti.config.offline_notifier import OfflineNotifier
from ganeti.config.snapshot import Snapshot
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.data_collectors import collecting, format_lines
from ganeti.model.objects import Node, NodeUuid

INTERVAL_S = 1.0
"""Minimum interval between two sets, and between two attempts to send one to a node."""
RETRY_LONGEST_S = 60.0
MOST_AT_ONCE = 30

SsconfSet = tuple[int, Mapping[str, str]]
"""A position and its values."""
Push = Callable[[Node, int, Mapping[str, str], SsconfSet | None], Awaitable[None]]
"""Sends a set with its position to a node, which has confirmed the other set; raises GanetiError on failure."""

_log = logging.getLogger(__name__)


def ssconf_values(snapshot: Snapshot) -> dict[str, str]:
    """Return the files of the set, by Ganeti's names, without `ssconf_`."""
    cluster = snapshot.cluster
    nodes = snapshot.nodes_by_name()
    candidates = snapshot.master_candidates()
    master = snapshot.nodes.get(cluster.master_node)
    groups = sorted(snapshot.groups.values(), key=lambda group: group.name)
    values = {
        "cluster_name": cluster.name,
        "cluster_tags": _lines(sorted(cluster.tags)),
        "data_collectors": format_lines(
            collecting(cluster.enabled_data_collectors, cluster.data_collector_interval)
        ),
        "instance_list": _lines(sorted(one.name for one in snapshot.instances.values())),
        "master_candidates": _lines(node.name for node in candidates),
        "master_candidates_certs": _lines(
            f"{node.uuid}={one}" for node in candidates for one in node.certificates
        ),
        "master_candidates_ips": _lines(node.primary_ip for node in candidates),
        "master_ip": cluster.master_ip,
        "master_node": "" if master is None else master.name,
        "node_list": _lines(node.name for node in nodes),
        "node_primary_ips": _lines(f"{node.name} {node.primary_ip}" for node in nodes),
        "node_secondary_ips": _lines(f"{node.name} {node.secondary_ip}" for node in nodes),
        "node_vm_capable": _lines(f"{node.name}={node.vm_capable}" for node in nodes),
        **_memory_policy(snapshot),
        "nodegroups": _lines(f"{group.uuid} {group.name}" for group in groups),
        "offline_nodes": _lines(node.name for node in nodes if node.offline),
        "online_nodes": _lines(node.name for node in nodes if not node.offline),
        "primary_ip_family": "10" if master and ":" in master.primary_ip else "2",
        "release_version": __version__,
    }
    for name, param in CLUSTER_PARAMS.items():
        if param.ssconf:
            values[param.ssconf] = param.lines(getattr(cluster, name))
    for hypervisor in cluster.enabled_hypervisors:
        params = cluster_hvparams(cluster, hypervisor)
        lines = (f"{name}={value}" for name, value in sorted(params.items()))
        values[f"hvparams_{hypervisor}"] = _lines(lines)
    return values


def _memory_policy(snapshot: Snapshot) -> dict[str, str]:
    """Return the goals of nodes that take memory from guests, and the least memory of the instances there."""
    goals = _memory_goals(snapshot)
    names = {uuid: snapshot.nodes[uuid].name for uuid in goals}
    least = (
        (one.uuid, filled_beparams(snapshot, one)["minmem"])
        for one in snapshot.instances.values()
        if one.primary_node in goals
    )
    return {
        "memory_goals": _lines(sorted(f"{names[uuid]} {goal}" for uuid, goal in goals.items())),
        "memory_minimums": _lines(sorted(f"{uuid} {mib}" for uuid, mib in least)) if goals else "",
    }


def _memory_goals(snapshot: Snapshot) -> dict[NodeUuid, int]:
    goals = {
        node.uuid: filled_ndparams(snapshot, node)["memory_goal"]
        for node in snapshot.nodes.values()
    }
    return {uuid: goal for uuid, goal in goals.items() if goal}


def shows_the_same(former: Snapshot, values: Mapping[str, str], snapshot: Snapshot) -> bool:
    """Return whether `values`, those of `former`, are surely those of `snapshot`, too; most changes do not concern them."""
    changed = snapshot.changed_since(former)
    is_basis_same = (
        former.cluster is snapshot.cluster
        and former.groups is snapshot.groups
        and former.nodes is snapshot.nodes
    )
    if changed is None or not is_basis_same or values["memory_goals"]:
        return False
    before, now = former.instances, snapshot.instances
    return all(
        uuid in before and now[uuid].name == before[uuid].name
        if uuid in now
        else uuid not in before
        for uuid in changed
    )


def _lines(items: Iterable[str]) -> str:
    return "\n".join(items)


class SsconfDistributor:
    """Keeps the sets of all online nodes up to date; a slow node delays only itself.

    A node that is marked offline gets the set with its mark, if it can be reached, and no later set.
    """

    def __init__(self, config: Config, push: Push) -> None:
        self._config = config
        self._push = push
        self._values: dict[str, str] = {}
        self._shown_by: Snapshot | None = None
        """The configuration that the values show."""
        self._position = 0
        self._acknowledged: dict[str, dict[str, str]] = {}
        self._shown: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._gate = asyncio.Semaphore(MOST_AT_ONCE)
        self._offline_notifier = OfflineNotifier(
            self._offline, self._knows_offline, self._tell_offline
        )
        self._unsubscribe: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_refresh = 0.0
        self._progress = asyncio.Event()

    def start(self) -> None:
        """Follow the configuration from now on."""
        self._unsubscribe = self._config.subscribe(self._changed)
        self._changed(self._config.snapshot)

    async def close(self) -> None:
        """Stop; unfinished transfers are cancelled."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._offline_notifier.close()

    async def push_now(self, node: Node) -> None:
        """Send one node the present set; raises GanetiError on failure."""
        snapshot = self._config.snapshot
        values = ssconf_values(snapshot)
        await self._push(node, snapshot.position, values, None)
        self._took(node.uuid, snapshot.position, values)
        self._offline_notifier.answers(node.uuid)

    async def settle(self, limit_s: float) -> list[str]:
        """Wait until all online nodes have the present set.

        Return the names of those that do not have it in time.
        """
        wanted = self._config.snapshot.position
        try:
            async with asyncio.timeout(limit_s):
                while self._position < wanted or self.late_nodes():
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return self.late_nodes()
        return []

    @property
    def position(self) -> int:
        """Return the least position that all online nodes have confirmed; -1 if one has confirmed none."""
        nodes = self._config.snapshot.online_nodes()
        return min((self._shown.get(node.uuid, -1) for node in nodes), default=-1)

    def late_nodes(self) -> list[str]:
        """Return the names of online nodes that do not have the latest set."""
        nodes = self._config.snapshot.online_nodes()
        return [node.name for node in nodes if not self._is_current(node.uuid)]

    def _changed(self, _snapshot: Snapshot) -> None:
        """Make a new set soon: at most once a second, so that a change costs the same in any cluster."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next_refresh), self._refresh)

    def _refresh(self) -> None:
        self._timer = None
        self._next_refresh = asyncio.get_running_loop().time() + INTERVAL_S
        snapshot = self._config.snapshot
        former, self._shown_by, shown = self._shown_by, snapshot, self._values
        if former is None or not shows_the_same(former, self._values, snapshot):
            values = ssconf_values(snapshot)
            if values != self._values:
                self._values = values  # an equal one stays: nodes are known to have that object
        self._position = snapshot.position
        is_new = former is None or former.nodes is not snapshot.nodes or self._values is not shown
        if is_new or self._tasks:  # otherwise each node that is online has this set
            self._bring_all_up_to_date(snapshot)
        self._offline_notifier.follow(snapshot.nodes.values())
        self._progress.set()

    def _bring_all_up_to_date(self, snapshot: Snapshot) -> None:
        gone = self._acknowledged.keys() - snapshot.nodes.keys()
        for node_uuid in gone:  # it may return as an empty host
            del self._acknowledged[node_uuid], self._shown[node_uuid]
        late = (one for one in snapshot.nodes.values() if not self._is_current(one.uuid))
        for node in sorted(late, key=lambda one: one.name):
            if node.offline:
                continue
            if node.uuid not in self._tasks:
                self._wakes[node.uuid] = asyncio.Event()
                self._tasks[node.uuid] = asyncio.create_task(
                    self._bring_up_to_date(node.uuid), name=f"ssconf-{node.name}"
                )
            self._wakes[node.uuid].set()

    def _took(self, node_uuid: str, position: int, values: dict[str, str]) -> None:
        """Record that a node has confirmed a set; answers may arrive out of order."""
        if position >= self._shown.get(node_uuid, position):
            self._acknowledged[node_uuid], self._shown[node_uuid] = values, position
        self._progress.set()

    def _confirmed(self, node_uuid: str) -> SsconfSet | None:
        """Return the last set that a node has confirmed to this master."""
        values = self._acknowledged.get(node_uuid)
        return None if values is None else (self._shown[node_uuid], values)

    def _is_current(self, node_uuid: str) -> bool:
        known = self._acknowledged.get(node_uuid)
        return known is self._values or known == self._values

    async def _bring_up_to_date(self, node_uuid: str) -> None:
        """Send a node the latest set until it has it, or is no longer online."""
        delay_s = INTERVAL_S
        try:
            while (node := self._online(node_uuid)) and not self._is_current(node_uuid):
                self._wakes[node_uuid].clear()
                values, position = self._values, self._position
                try:
                    async with self._gate:
                        await self._push(node, position, values, self._confirmed(node_uuid))
                except GanetiError as err:
                    _log.warning("cannot send node %s its ssconf files: %s", node.name, err)
                    await self._sleep(node_uuid, delay_s)
                    delay_s = min(2 * delay_s, RETRY_LONGEST_S)
                else:
                    self._took(node_uuid, position, values)
                    self._offline_notifier.answers(node_uuid)
                    delay_s = INTERVAL_S
        finally:
            del self._tasks[node_uuid], self._wakes[node_uuid]

    async def _sleep(self, node_uuid: str, delay_s: float) -> None:
        """Wait for the next attempt: the shortest delay, and longer unless there is a new set."""
        await asyncio.sleep(INTERVAL_S)
        try:
            async with asyncio.timeout(max(0.0, delay_s - INTERVAL_S)):
                await self._wakes[node_uuid].wait()
        except TimeoutError:
            return

    def _online(self, node_uuid: str) -> Node | None:
        node = self._config.snapshot.nodes.get(node_uuid)
        return None if node is None or node.offline else node

    def _offline(self, node_uuid: str) -> Node | None:
        node = self._config.snapshot.nodes.get(node_uuid)
        return node if node is not None and node.offline else None

    def _knows_offline(self, node: Node) -> bool:
        shown = self._acknowledged.get(node.uuid, {})
        return node.name in shown.get("offline_nodes", "").splitlines()

    async def _tell_offline(self, node: Node) -> None:
        values, position = self._values, self._position
        async with self._gate:
            present = replace(node, offline=False)
            await self._push(present, position, values, self._confirmed(node.uuid))
        self._took(node.uuid, position, values)
