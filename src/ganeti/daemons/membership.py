"""Adapts the store's members to the configuration: voters and candidates (R3).

The voters are the candidates, plus a third node where there are only two. One node changes at a
time. A new candidate first gets the authority's key and a master daemon; a former candidate loses
both last. The store keeps the state on a new candidate only after every node that answers knows it
as a candidate. Otherwise a new candidate that alone holds the last state could become the master
while the nodes refuse its calls.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from hashlib import sha256

import msgspec

from ganeti.base.errors import GanetiError, RpcError, StoreError
from ganeti.confd.keys import KEY_NAME, new_key
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.daemons.candidate_resources import CandidateResources
from ganeti.daemons.candidates import NodeDirectory
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_START, CANDIDATE_STOP, CandidateArgs
from ganeti.store.backend import StateBackend
from ganeti.store.election import TWO
from ganeti.store.interface import Lease, MemberChange, Membership
from ganeti.units.calls import Rpc

AGAIN_S = 5.0
LOOK_S = 20.0
"""Interval at which the master asks whether a candidate's server has lost its data."""
NAMED_S = 600.0
"""Time that a prepared node may be without the role: its job has yet to write the configuration."""
SETTLE_S = 3.0
"""Time that a new candidate waits for nodes that do not answer."""

_log = logging.getLogger(__name__)


def wanted_members(snapshot: Snapshot) -> tuple[frozenset[NodeUuid], frozenset[NodeUuid]]:
    """Return the voters and the candidates that the configuration requires.

    The candidates vote because they hold the state; a slow or hostile node of another role must not
    end a master. With two candidates a third node votes, so that either candidate may fail; a node
    without instances is preferred.
    """
    online = [node for node in snapshot.nodes.values() if not node.offline]
    marked = {node.uuid for node in online if node.master_candidate}
    candidates = frozenset(marked | {snapshot.cluster.master_node})
    if len(candidates) != TWO:
        return candidates, candidates
    rest = [node for node in online if node.uuid not in candidates]
    witness = sorted(rest, key=lambda node: (node.drained, node.vm_capable, node.uuid))[:1]
    return candidates.union(node.uuid for node in witness), candidates


def next_change(snapshot: Snapshot, members: Membership) -> MemberChange | None:
    """Return the next single step towards the desired members; additions come before removals."""
    voters, candidates = wanted_members(snapshot)
    for node in [*sorted(voters), *sorted(members.voters | members.candidates)]:
        change = MemberChange(node, node in voters, node in candidates)
        if (change.is_voter, change.is_candidate) != (
            node in members.voters,
            node in members.candidates,
        ):
            return change
    return None


class MembershipKeeper:
    """Acts on each change of the configuration, one step after the other."""

    def __init__(
        self,
        store: StateBackend,
        lease: Lease,
        config: Config,
        rpc: Rpc,
        *,
        resources: CandidateResources,
        directory: NodeDirectory,
        settle: Callable[[float], Awaitable[list[str]]],
        candidates_are: Callable[[frozenset[NodeUuid]], None] = lambda _candidates: None,
    ) -> None:
        """`settle` waits until all nodes know the candidates or the time is over.

        It returns the nodes that do not. `candidates_are` is called at each step with the
        candidates at which the state is kept.
        """
        self._candidates_are = candidates_are
        self._resources, self._servers = resources, resources.servers
        self._store, self._lease = store, lease
        self._settle = settle
        self._config, self._rpc = config, rpc
        self._directory = directory
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._end_subscription: Callable[[], None] | None = None
        self._started: set[NodeUuid] = set()
        self._leaving: set[NodeUuid] = set()
        self._coming: dict[NodeUuid, float] = {}
        """Expiry time by node, up to which the server of a node that is not yet a candidate is kept."""
        self._changing_servers = asyncio.Lock()
        self._calls = itertools.count()
        self._stepping = asyncio.Lock()
        self._look_again = 0.0

    def start(self) -> None:
        self._end_subscription = self._config.subscribe(self._changed)
        self._news.set()
        self._task = asyncio.create_task(self._run(), name="membership")

    async def close(self) -> None:
        if self._end_subscription is not None:
            self._end_subscription()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _changed(self, snapshot: Snapshot) -> None:
        self._directory.take(snapshot.nodes.values())
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                is_done = await self._step()
            except GanetiError as err:
                _log.warning("the members cannot be changed now: %s", err)
                is_done = False
                await asyncio.sleep(AGAIN_S)
            if not is_done:
                continue
            try:
                async with asyncio.timeout(AGAIN_S if self._leaving or self._missing() else LOOK_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _missing(self) -> frozenset[NodeUuid]:
        """Return the candidates whose master daemon this master has not yet checked."""
        _, candidates = wanted_members(self._config.snapshot)
        return candidates - self._started - {self._config.snapshot.cluster.master_node}

    async def promote(self, node: Node) -> None:
        """Give a node the key and a daemon before the configuration makes it a candidate; RpcError."""
        self._started.discard(node.uuid)  # a failed step is retried
        self._leaving.discard(node.uuid)
        self._coming[node.uuid] = math.inf
        try:
            async with self._changing_servers:
                args = await self._resources.admit(node)
            await self._begin(node, self._without_earlier_key(args))
            await self._servers.settle(node)
        except BaseException:
            self._coming.pop(node.uuid, None)
            raise
        self._coming[node.uuid] = asyncio.get_running_loop().time() + NAMED_S
        self._started.add(node.uuid)

    def _without_earlier_key(self, args: CandidateArgs) -> CandidateArgs:
        """Return the keys without an outdated key of confd: other candidates may have a newer one."""
        wanted = self._config.snapshot.cluster.renewed_files.get(KEY_NAME)
        if wanted in (None, sha256(args.confd_key).hexdigest()):
            return args
        _log.warning("not sending %s to candidates: a newer one exists", KEY_NAME)
        return msgspec.structs.replace(args, confd_key=b"", former_confd_key=b"")

    async def _begin(self, node: Node, args: CandidateArgs) -> None:
        await self._rpc.call(
            node,
            CANDIDATE_START,
            args,
            key=f"candidate/{self._lease.epoch}/{node.uuid}/{next(self._calls)}",
        )

    async def renew_confd_key(self) -> dict[str, str]:
        """Give all candidates a new key of confd; return name -> reason for those that do not have it yet.

        The new key is first sent next to the old one, then alone. This node is always the first, so
        its files hold what the others get, also from the next master.
        """
        late: dict[str, str] = {}
        master = self._config.snapshot.cluster.master_node
        before, _former = await asyncio.to_thread(self._resources.confd_keys)
        new = new_key()
        for former in (before, b""):
            for node in self._config.snapshot.master_candidates():
                if node.uuid == master:
                    args = await self._resources.admit(node)
                    renewed = msgspec.structs.replace(args, confd_key=new, former_confd_key=former)
                    await self._begin(node, renewed)
            await self._let_count(new)
            for node in self._config.snapshot.master_candidates():
                try:
                    if node.uuid != master:
                        await self.promote(node)
                except GanetiError as err:
                    late[node.name] = err.message
        self._news.set()
        return late

    async def _let_count(self, key: bytes) -> None:
        """Record the current key of confd in the configuration, because the next master may not have it."""
        digest = sha256(key).hexdigest()

        def change(draft: Draft) -> None:
            renewed = {**draft.cluster.renewed_files, KEY_NAME: digest}
            draft.put(msgspec.structs.replace(draft.cluster, renewed_files=renewed))

        if self._config.snapshot.cluster.renewed_files.get(KEY_NAME) != digest:
            await self._config.change(change)

    async def demote(self, node: Node) -> None:
        """Remove the key and the daemon once the store no longer counts on the node.

        Raises like `StateBackend.commit`.
        """
        self._coming.pop(node.uuid, None)
        async with self._stepping:
            while not await self._next_step():
                continue
        await self._dismiss_others()
        if not node.offline:
            await self._stop(node)

    async def enforce(self, node: Node) -> None:
        """Give a candidate its keys and daemon, or remove from another node what only candidates have."""
        if node.uuid == self._config.snapshot.cluster.master_node:
            return
        if node.master_candidate:
            await self.promote(node)
        elif self._coming.get(NodeUuid(node.uuid), 0.0) < asyncio.get_running_loop().time():
            await self._stop(node)

    async def _stop(self, node: Node) -> None:
        key = f"no candidate/{self._lease.epoch}/{node.uuid}/{next(self._calls)}"
        await self._rpc.call(node, CANDIDATE_STOP, Nothing(), key=key)
        self._leaving.discard(node.uuid)

    async def _step(self) -> bool:
        """Take one step; return True if no step is possible now."""
        for uuid in sorted(self._missing() | await self._lost()):
            node = self._config.snapshot.nodes[uuid]
            try:
                await self.promote(node)
            except (RpcError, StoreError) as err:
                _log.warning("%s is not a candidate yet: %s", node.name, err)
        await self._dismiss_others()
        for uuid in sorted(self._leaving):
            await self._stop_candidate(uuid)
        async with self._stepping:
            return await self._next_step()

    async def _lost(self) -> frozenset[NodeUuid]:
        """Return the candidates whose servers lost their data, if a check is due."""
        now = asyncio.get_running_loop().time()
        if now < self._look_again:
            return frozenset()
        self._look_again = now + LOOK_S
        snapshot = self._config.snapshot
        _, candidates = wanted_members(snapshot)
        return await self._servers.lost(snapshot.nodes[uuid] for uuid in sorted(candidates))

    async def _dismiss_others(self) -> None:
        """Remove servers of nodes that are no longer candidates in the store and the configuration."""
        async with self._changing_servers:
            _, wanted = wanted_members(self._config.snapshot)
            now = asyncio.get_running_loop().time()
            late = [uuid for uuid, until in self._coming.items() if until < now]
            for uuid in wanted.union(late):
                if self._coming.get(uuid) != math.inf:
                    self._coming.pop(uuid, None)
            self._started -= (
                set(late) - wanted
            )  # it is prepared again if it becomes a candidate later
            candidates = (await self._store.members()).candidates | wanted | self._coming.keys()
            nodes = list(self._config.snapshot.nodes.values())
            await self._servers.dismiss_others(candidates, nodes)

    async def _next_step(self) -> bool:
        members = await self._store.members()
        self._candidates_are(members.candidates)
        change = next_change(self._config.snapshot, members)
        if change is None:
            return True
        if change.is_candidate and change.node_uuid not in members.candidates:
            late = await self._settle(SETTLE_S)
            if change != next_change(self._config.snapshot, members):
                return False
            if late:
                name = self._config.snapshot.nodes[change.node_uuid].name
                _log.warning(
                    "%s becomes a candidate; these nodes do not know it yet: %s",
                    name,
                    ", ".join(late),
                )
        await self._store.change_members(self._lease, change)
        _log.info("changed the members: %s", change)
        if change.node_uuid in members.candidates and not change.is_candidate:
            self._leaving.add(change.node_uuid)
            self._coming.pop(change.node_uuid, None)
            self._started.discard(change.node_uuid)
        return False

    async def _stop_candidate(self, uuid: NodeUuid) -> None:
        node = self._config.snapshot.nodes.get(uuid)
        if node is None or node.offline:
            self._leaving.discard(uuid)
            return
        try:
            await self._stop(node)
        except RpcError as err:
            _log.warning("%s may still hold the state: %s", node.name, err)
