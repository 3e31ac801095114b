"""Networks."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import (
    BULK,
    DRY_RUN,
    LOCK,
    PAGES,
    JobOf,
    Operation,
    flag,
    item,
    job,
    read,
)
from ganeti.web.resources.tags import tag_operations

NETWORKS = Listed("QueryNetworks", fields.NETWORK, "/2/networks", id_field="name")
_NETWORK = "/2/networks/{network}"
_THIS = {"network_name": item()}
_DRY = {"dry_run": flag("dry-run")}

OPERATIONS: tuple[Operation, ...] = (
    read("/2/networks", "networks", "All networks", NETWORKS.collection(), BULK, LOCK, *PAGES,
         result="list"),
    read(_NETWORK, "networks_name", "One network", NETWORKS.one(), LOCK),
    job("POST", "/2/networks", "networks", "Make a network",
        JobOf("OP_NETWORK_ADD", _DRY, {"name": "network_name"}), DRY_RUN),
    job("DELETE", _NETWORK, "networks_name", "Remove a network",
        JobOf("OP_NETWORK_REMOVE", {**_THIS, **_DRY}), DRY_RUN),
    job("PUT", f"{_NETWORK}/connect", "networks_name_connect", "Connect a network to a node group",
        JobOf("OP_NETWORK_CONNECT", {**_THIS, **_DRY}), DRY_RUN),
    job("PUT", f"{_NETWORK}/disconnect", "networks_name_disconnect",
        "Disconnect a network from a node group",
        JobOf("OP_NETWORK_DISCONNECT", {**_THIS, **_DRY}), DRY_RUN),
    job("PUT", f"{_NETWORK}/modify", "networks_name_modify", "Change a network",
        JobOf("OP_NETWORK_SET_PARAMS", _THIS)),
    job("PUT", f"{_NETWORK}/rename", "networks_name_rename", "Give a network another name",
        JobOf("OP_NETWORK_RENAME", {**_THIS, **_DRY}), DRY_RUN),
    *tag_operations(f"{_NETWORK}/tags", "network", "networks_name_tags"),
)  # fmt: skip
