"""Moving the state of one candidate between back ends, without daemons and without other processes."""

from typing import Any

from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.switch_state import Switch
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import AcceptArgs, PromiseArgs
from ganeti.store.election import NoVote, Vote
from ganeti.store.interface import CampaignKind
from ganeti.store.ports import LocalVoter
from ganeti.store.register import AcceptRequest, PromiseRequest, RegisterFile, check_epoch


class Registers:
    """The voters, as the node daemons of three nodes would answer `master`."""

    def __init__(self, master: NodeUuid, files: dict[NodeUuid, RegisterFile]) -> None:
        self.files = files
        self._master = master

    def _of(self, node: NodeUuid) -> LocalVoter:
        return LocalVoter(node, self.files[node])

    async def read(self, node: NodeUuid) -> Vote | NoVote:
        return await self._of(node).read(node)

    async def promise(
        self, node: NodeUuid, request: PromiseRequest, kind: CampaignKind
    ) -> Vote | NoVote:
        return await self._of(node).promise(node, request, kind)

    async def accept(self, node: NodeUuid, request: AcceptRequest) -> Vote | NoVote:
        return await self._of(node).accept(node, request)

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        del cluster_uuid
        answer = self.files[node].decide(lambda old: check_epoch(old, epoch, self._master))
        assert answer.register
        return Vote(answer.granted, answer.register, answer.reason)

    async def asked(
        self, _rpc: object, nodes: list[Node], _procedure: object, args: object
    ) -> dict[NodeUuid, Vote]:
        """In the place of the calls to the nodes."""
        found: dict[NodeUuid, Vote] = {}
        for node in nodes:
            if isinstance(args, PromiseArgs):
                vote = await self.promise(node.uuid, args.request, args.kind)
            elif isinstance(args, AcceptArgs):
                vote = await self.accept(node.uuid, args.request)
            else:
                assert isinstance(args, Nothing)
                vote = await self.read(node.uuid)
            if isinstance(vote, Vote):
                found[node.uuid] = vote
        return found


class NoDaemons(Daemons):
    """The test is the daemons."""

    async def start(self, name: str, arguments: object = ()) -> Any:
        del name, arguments

    async def stop(self, name: str) -> None:
        del name


class SteppedSwitch(Switch):
    """The command without a master daemon beside it."""

    async def _started(self) -> None:
        return

    async def _own_address(self) -> str:
        return "192.0.2.1"

    async def _call(self, method: str, *args: object) -> list[Any]:
        del args
        return [False] if method == "QueryConfigValues" else []
