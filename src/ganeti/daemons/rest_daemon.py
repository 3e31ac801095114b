"""Keeps ganeti-rapi running on the master."""

import asyncio
import logging

from ganeti.base.errors import RpcError
from ganeti.config.config import Config
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import REST_UP
from ganeti.units.calls import Rpc
from ganeti.units.cluster.master_ip import master_of

LOOK_INTERVAL_S = 20.0

_log = logging.getLogger(__name__)


class RestDaemon:
    """Asks the local node daemon to start the server, at the beginning and every 20 s."""

    def __init__(self, config: Config, rpc: Rpc, epoch: int) -> None:
        self._config = config
        self._rpc = rpc
        self._epoch = epoch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._keep(), name="rest-daemon")

    async def close(self) -> None:
        """Stop asking; the server ends when this node is no longer the master."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        tries, last = 0, ""
        while True:
            tries += 1
            try:
                node = master_of(self._config.snapshot)
                await self._rpc.call(node, REST_UP, Nothing(), key=f"rest/{self._epoch}/{tries}")
                last = ""
            except RpcError as err:
                if str(err) != last:
                    _log.error("the REST server does not run: %s", err)
                last = str(err)
            await asyncio.sleep(LOOK_INTERVAL_S)
