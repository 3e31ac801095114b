"""Pictures of the screens of instances; taken one at a time, and never stored."""

import base64

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import instance_spec
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.query.live import NodeCaller
from ganeti.rpc.procedures.hardware import INSTANCE_SCREENSHOT
from ganeti.rpc.procedures.instances import InstanceArgs

SIZE_LIMIT = 8 * 1024 * 1024
"""The limit of a picture in bytes; a guest chooses the size of its screen."""
_PNG = b"\x89PNG\r\n\x1a\n"


class ScreenshotSource:
    """Queries the node of an instance."""

    def __init__(self, rpc: NodeCaller) -> None:
        self._rpc = rpc

    async def screenshot(self, snapshot: Snapshot, instance: str) -> str:
        """Return a PNG picture in base64; PrereqError if none is possible, RpcError if the node has none."""
        found = resolve_instance(snapshot, instance)
        node = snapshot.nodes[found.primary_node]
        if node.offline:
            raise PrereqError(f"node {node.name} is offline", ErrorCode.WRONG_STATE)
        args = InstanceArgs(instance=instance_spec(snapshot, found))
        answer = await self._rpc.call(node, INSTANCE_SCREENSHOT, args)
        picture = bytes(answer.png)
        if len(picture) > SIZE_LIMIT or not picture.startswith(_PNG):
            raise PrereqError(
                f"node {node.name} sent {len(picture)} bytes that are not a picture of {found.name}",
                ErrorCode.ENVIRONMENT,
            )
        return base64.b64encode(picture).decode()
