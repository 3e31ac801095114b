"""Node groups."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation, read
from ganeti.web.resources.tags import tags_of

GROUPS = Listed("QueryGroups", fields.GROUP, "/2/groups", id_field="name")
_GROUP = "/2/groups/{group}"

OPERATIONS: tuple[Operation, ...] = (
    read("/2/groups", "groups", "List all node groups", GROUPS.collection(), BULK, LOCK, *PAGES,
         result="list", shows="group"),
    read(_GROUP, "groups_name", "Return one node group", GROUPS.one(), LOCK, shows="group"),
    tags_of("nodegroup", f"{_GROUP}/tags", "groups_name_tags"),
)  # fmt: skip
