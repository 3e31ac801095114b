"""Node groups."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import (
    BULK,
    DRY_RUN,
    FORCE,
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

GROUPS = Listed("QueryGroups", fields.GROUP, "/2/groups", id_field="name")
_GROUP = "/2/groups/{group}"
_THIS = {"group_name": item()}
_DRY = {"dry_run": flag("dry-run")}
_CUSTOM = {
    "custom_ndparams": "ndparams",
    "custom_ipolicy": "ipolicy",
    "custom_diskparams": "diskparams",
}

OPERATIONS: tuple[Operation, ...] = (
    read("/2/groups", "groups", "All node groups", GROUPS.collection(), BULK, LOCK, *PAGES,
         result="list"),
    read(_GROUP, "groups_name", "One node group", GROUPS.one(), LOCK),
    job("POST", "/2/groups", "groups", "Make a node group",
        JobOf("OP_GROUP_ADD", _DRY, {"name": "group_name"}), DRY_RUN),
    job("DELETE", _GROUP, "groups_name", "Remove a node group",
        JobOf("OP_GROUP_REMOVE", {**_THIS, **_DRY}, has_body=False), DRY_RUN),
    job("PUT", f"{_GROUP}/modify", "groups_name_modify", "Change a node group",
        JobOf("OP_GROUP_SET_PARAMS", _THIS, _CUSTOM)),
    job("PUT", f"{_GROUP}/rename", "groups_name_rename", "Give a node group another name",
        JobOf("OP_GROUP_RENAME", {**_THIS, **_DRY}), DRY_RUN),
    job("PUT", f"{_GROUP}/assign-nodes", "groups_name_assign_nodes", "Put nodes into a group",
        JobOf("OP_GROUP_ASSIGN_NODES", {**_THIS, **_DRY, "force": flag("force")}), DRY_RUN, FORCE),
    *tag_operations(f"{_GROUP}/tags", "nodegroup", "groups_name_tags"),
)  # fmt: skip
