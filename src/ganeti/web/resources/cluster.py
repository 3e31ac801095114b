"""The cluster as a whole."""

from typing import Any

from ganeti.clients.fields import with_aliases
from ganeti.model.operation import Right
from ganeti.web.operations import Call, Operation, read
from ganeti.web.resources.tags import tags_of

VERSION = 2
FEATURES = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
)
_LISTED = ["&", ["?", "valid"], ["!", ["|", ["?", "hidden"], ["?", "blacklisted"]]]]
"""Conditions for an OS definition in the list (S155, S156)."""


async def _nothing(_call: Call) -> None:
    return None


async def _version(_call: Call) -> int:
    return VERSION


async def _features(_call: Call) -> list[str]:
    return list(FEATURES)


async def _info(call: Call) -> dict[str, Any]:
    return with_aliases(await call.services.master.ask("QueryClusterInfo"))


async def _ha_status(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = await call.services.master.ask("QueryHaStatus")
    return found


async def _overview(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = await call.services.master.ask("QueryOverview")
    return found


async def _os(call: Call) -> list[str]:
    """Return the OS definitions that can be installed, with their variants as `NAME+VARIANT`."""
    answer = await call.services.master.ask("Query", "os", ["name", "variants"], _LISTED)
    found: list[str] = []
    for (_, name), (_, variants) in answer["data"]:
        found += [f"{name}+{variant}" for variant in variants or ()] or [name]
    return found


OPERATIONS: tuple[Operation, ...] = (
    read("/", "", "Return null, for compatibility with version 1", _nothing, result="value", is_open=True),
    read("/2", "2", "Return null", _nothing, result="value", is_open=True),
    read("/version", "version", "Return the version of this interface", _version, result="value", is_open=True),
    read("/2/info", "info", "Return facts and parameters of the cluster", _info, is_open=True),
    read("/2/features", "features", "List the features that this server supports", _features,
         result="texts", is_open=True),
    read("/2/ha-status", "ha_status", "Return the state of automatic recovery", _ha_status, right=Right.READ),
    read("/2/overview", "overview", "Return the cluster at a glance: room, N+1 violations, capacity", _overview,
         right=Right.READ),
    read("/2/os", "os", "List the OS definitions that can be installed", _os, result="texts", is_open=True),
    tags_of("cluster", "/2/tags", "tags"),
)  # fmt: skip
