"""Forwards the master's heartbeats to a node that does not answer the master itself."""

import asyncio

from msgspec.structs import replace

from ganeti.base import tls
from ganeti.base.addresses import address_of_environment, is_loopback
from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.recovery import (
    HEARTBEAT,
    RELAY_HEARTBEAT,
    HeartbeatResult,
    RelayArgs,
)
from ganeti.rpc.transport import HttpsTransport

RELAY_S = 3.0


class HeartbeatRelay:
    """The relay of a master candidate: other nodes accept only the certificates of candidates."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def handlers(self) -> Handlers:
        return {RELAY_HEARTBEAT.name: self.relay}

    async def relay(self, args: RelayArgs, call: Call) -> HeartbeatResult:
        """Return the node's answer; the node itself checks the master. RpcError or HostError without one."""
        paths, own = self._paths, address_of_environment()
        # Made for each call, because certificates are renewed, and relays are rare.
        context = tls.client_context(
            paths.node_certificate, paths.node_key, paths.authority_certificate
        )
        transport = HttpsTransport(context, own if is_loopback(own) else None)
        client = RpcClient(transport, lambda: (call.epoch, call.master_uuid))
        try:
            async with asyncio.timeout(RELAY_S):
                return await client.call(
                    replace(args.node, offline=False), HEARTBEAT, args.heartbeat
                )
        except TimeoutError:
            raise HostError(f"node {args.node.name}: no answer within {RELAY_S:g} s") from None
        finally:
            await client.close()
