"""Endpoints to the consoles of instances: the node of a guest opens one for the REST server or a command."""

from typing import Any, cast, get_args

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import instance_spec
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.model.scope import Scope
from ganeti.query.live import NodeCaller
from ganeti.rpc.procedures.consoles import CONSOLE_OPEN, ConsoleArgs, ConsoleKind


class ConsoleSource:
    """Asks the node of an instance."""

    def __init__(self, rpc: NodeCaller) -> None:
        self._rpc = rpc

    async def open(
        self, snapshot: Snapshot, scope: Scope | None, instance: str, kind: str
    ) -> dict[str, Any]:
        """Return node, address, port, secret and the node's certificates; PrereqError, InputError, RpcError."""
        if kind not in get_args(ConsoleKind):
            raise InputError(f"must be {', '.join(get_args(ConsoleKind))}", "kind")
        found = resolve_instance(snapshot, instance)
        if scope is not None and not scope.has(found.name, found.tags):
            raise PrereqError(f"the user may not use instance {found.name}", ErrorCode.FORBIDDEN)
        node = snapshot.nodes[found.primary_node]
        if node.offline:
            raise PrereqError(f"node {node.name} is offline", ErrorCode.WRONG_STATE)
        args = ConsoleArgs(
            instance=instance_spec(snapshot, found),
            kind=cast(ConsoleKind, kind),
            address=node.primary_ip,
        )
        endpoint = await self._rpc.call(node, CONSOLE_OPEN, args)
        certificates = [one for one in (node.certificate, node.next_certificate) if one]
        return {
            "node": node.name,
            "address": node.primary_ip,
            "port": endpoint.port,
            "secret": endpoint.secret,
            "certificates": certificates,
        }
