"""Moves the cluster's own address from the previous master to this node when a master begins (F5)."""

import asyncio
import logging

from ganeti.base.errors import RpcError
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node
from ganeti.rpc.procedures.mastership import (
    MASTER_IP_DOWN,
    MASTER_IP_UP,
    MasterIpArgs,
    master_ip_args,
)
from ganeti.units.calls import Rpc
from ganeti.units.cluster.master_ip import master_of

RETRY_S = 5.0
RETRY_LONGEST_S = 60.0
TAKE_AWAY_S = 10.0

_log = logging.getLogger(__name__)


class MasterAddress:
    """Retries until this node has the address; logs if a host outside of the cluster keeps it."""

    def __init__(self, config: Config, rpc: Rpc, epoch: int) -> None:
        self._config = config
        self._rpc = rpc
        self._key = f"master-ip/{epoch}"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; does nothing in a cluster whose address has no interface."""
        if self._config.snapshot.cluster.master_netdev:
            self._task = asyncio.create_task(self._bring_up(), name="master-address")

    async def close(self) -> None:
        """Cancel unfinished work; an address that is up stays up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _bring_up(self) -> None:
        delay_s, tries = RETRY_S, 0
        while True:
            snapshot = self._config.snapshot
            args = master_ip_args(snapshot.cluster)
            tries += 1
            # The node checks whether another host has the address; a custom script may not.
            if tries > 1 or args.by_script:
                await self._take_away(snapshot, args, tries)
            try:
                await self._rpc.call(
                    master_of(snapshot), MASTER_IP_UP, args, key=f"{self._key}/{tries}"
                )
            except RpcError as err:
                _log.error("the cluster's address %s is not configured: %s", args.address, err)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_LONGEST_S)
            else:
                _log.info("the cluster's address %s is configured", args.address)
                return

    async def _take_away(self, snapshot: Snapshot, args: MasterIpArgs, tries: int) -> None:
        """Ask every node that may have been the master to release the address.

        Which of them was is not known for sure.
        """
        master = master_of(snapshot)
        former = [
            node
            for node in snapshot.nodes.values()
            if node.master_capable and not node.offline and node is not master
        ]

        async def ask(node: Node) -> None:
            try:
                async with asyncio.timeout(TAKE_AWAY_S):
                    await self._rpc.call(
                        node, MASTER_IP_DOWN, args, key=f"{self._key}/{tries}/{node.uuid}"
                    )
            except TimeoutError:
                _log.warning(
                    "%s does not answer and may still have the cluster's address", node.name
                )
            except RpcError as err:
                _log.warning(
                    "cannot ask %s to release the cluster's address: %s",
                    node.name,
                    err,
                )

        await asyncio.gather(*(ask(node) for node in former))
