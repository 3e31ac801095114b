"""The resources that a node needs to be a candidate: the cluster's keys and a server of the state."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from ganeti.base.paths import Paths
from ganeti.confd.keys import distributed_keys
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_READ, CandidateArgs, CandidateReport
from ganeti.store.backends import StateServers, back_end
from ganeti.store.settings import state_settings
from ganeti.units.calls import Rpc


class CandidateResources:
    """The servers of the back end together with the keys of the candidates."""

    def __init__(self, paths: Paths, servers: StateServers) -> None:
        self._paths, self.servers = paths, servers

    async def admit(self, node: Node) -> CandidateArgs:
        """Add a member for the node's server; GanetiError, also while the last change is too recent."""
        state = await self.servers.admit(node)
        key = await asyncio.to_thread(self._paths.authority_key.read_text)
        confd, former = await asyncio.to_thread(distributed_keys, self._paths)
        return CandidateArgs(
            authority_key=key,
            confd_key=confd,
            former_confd_key=former,
            state=msgspec.json.encode(state.settings).decode() if state.settings else "",
            server=state.server,
        )

    def confd_keys(self) -> tuple[bytes, bytes]:
        """Return the key of confd and the previous key; blocks."""
        return distributed_keys(self._paths)


def open_servers(paths: Paths, cluster_uuid: str, rpc: Rpc) -> StateServers:
    """Return the servers of the back end that holds this node's state; StoreError."""

    async def reports(nodes: Sequence[Node]) -> Mapping[NodeUuid, CandidateReport]:
        found = await rpc.call_all(nodes, CANDIDATE_READ, Nothing())
        return {uuid: one for uuid, one in found.items() if isinstance(one, CandidateReport)}

    settings = state_settings(paths)
    return back_end(settings.kind).servers(paths, cluster_uuid, settings, reports)
