"""Surveys of the cluster for people: an overview, and the effect of a node's loss.

Computed by the worker process of the built-in allocator, kept for some seconds, and one at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from ganeti.config.fill import filled_ipolicy
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.units.allocator_message import cluster_message
from ganeti.units.services import Services

FRESH_S = 15.0


class Surveyor(Protocol):
    """Computes surveys (`ganeti.daemons.built_in_allocator`)."""

    async def survey(self, message: dict[str, Any]) -> Any:
        """Return the answer to a request of the type `overview`, `impact` or `impacts`; PrereqError."""
        ...


class Survey:
    """The latest surveys."""

    def __init__(self, services: Services, surveyor: Surveyor) -> None:
        self._services = services
        self._surveyor = surveyor
        self._kept: dict[str, tuple[float, int, Any]] = {}
        self._turn = asyncio.Lock()

    @property
    def services(self) -> Services:
        return self._services

    @property
    def snapshot(self) -> Snapshot:
        return self._services.config.snapshot

    async def overview(self) -> dict[str, Any]:
        """Return counts from the configuration, room, and N+1 violations; PrereqError, RpcError."""
        found: dict[str, Any] = await self._recent(
            "", {"type": "overview", **_standard(self.snapshot)}
        )
        return {**_counts(self.snapshot), **found}

    async def impact(self, name: str) -> dict[str, Any]:
        """Return what the loss of a node would mean for each of its instances; PrereqError, RpcError."""
        node = resolve_node(self.snapshot, name).name
        found = await self._recent(node, {"type": "impact", "node": node})
        return {"node": node, "instances": found}

    async def impacts(self) -> dict[str, Any]:
        """Return how many instances of each node have which outcome if it is lost; PrereqError, RpcError."""
        return {"nodes": await self._recent("all nodes", {"type": "impacts"})}

    async def _recent(self, key: str, request: dict[str, Any]) -> Any:
        async with self._turn:
            now, position = self._services.clock.monotonic(), self.snapshot.position
            kept = self._kept.get(key)
            if kept is not None and kept[1] == position and now - kept[0] < FRESH_S:
                return kept[2]
            self._kept = {one: value for one, value in self._kept.items() if value[1] == position}
            template = _template(self.snapshot)
            message = await cluster_message(self, request, template=template, fresh=False)
            found = await self._surveyor.survey(message)
            self._kept[key] = (now, position, found)
            return found


def _template(snapshot: Snapshot) -> str:
    enabled = snapshot.cluster.enabled_disk_templates
    return str(next((one for one in enabled if one != "diskless"), "diskless"))


def _standard(snapshot: Snapshot) -> Mapping[str, Any]:
    policy = filled_ipolicy(snapshot.cluster, None)
    return {"standard": dict(policy["std"]), "template": _template(snapshot)}


def _counts(snapshot: Snapshot) -> dict[str, Any]:
    nodes = snapshot.nodes.values()
    states = Counter(str(one.admin_state) for one in snapshot.instances.values())
    return {
        "nodes": {
            "total": len(snapshot.nodes),
            "offline": sum(one.offline for one in nodes),
            "drained": sum(one.drained for one in nodes),
        },
        "instances": {
            "total": len(snapshot.instances),
            "running_wanted": states["up"],
            "down_wanted": states.total() - states["up"],
        },
    }
