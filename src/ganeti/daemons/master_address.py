"""Brings the cluster's own address up when a master begins (F5)."""

import asyncio
import logging

from ganeti.base.errors import RpcError
from ganeti.config.config import Config
from ganeti.rpc.procedures.mastership import MASTER_IP_UP
from ganeti.units.cluster.master_ip import master_ip_args, master_of
from ganeti.units.services import Rpc

RETRY_S = 5.0
RETRY_LONGEST_S = 60.0

_log = logging.getLogger(__name__)


class MasterAddress:
    """Tries until this node has the address; another host that has it keeps it, and the log says so."""

    def __init__(self, config: Config, rpc: Rpc, epoch: int) -> None:
        self._config = config
        self._rpc = rpc
        self._key = f"master-ip/{epoch}"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; nothing is done in a cluster whose address has no interface."""
        if self._config.snapshot.cluster.master_netdev:
            self._task = asyncio.create_task(self._bring_up(), name="master-address")

    async def close(self) -> None:
        """Give up what is not done yet; an address that is up stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _bring_up(self) -> None:
        delay_s, tries = RETRY_S, 0
        while True:
            snapshot = self._config.snapshot
            args = master_ip_args(snapshot.cluster)
            tries += 1
            try:
                await self._rpc.call(
                    master_of(snapshot), MASTER_IP_UP, args, key=f"{self._key}/{tries}"
                )
            except RpcError as err:
                _log.error("the cluster's address %s is not up: %s", args.address, err)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_LONGEST_S)
            else:
                _log.info("the cluster's address %s is up", args.address)
                return
