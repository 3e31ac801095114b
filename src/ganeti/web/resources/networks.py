"""Networks."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation, read
from ganeti.web.resources.tags import tags_of

NETWORKS = Listed("QueryNetworks", fields.NETWORK, "/2/networks", id_field="name")
_NETWORK = "/2/networks/{network}"

OPERATIONS: tuple[Operation, ...] = (
    read("/2/networks", "networks", "List all networks", NETWORKS.collection(), BULK, LOCK, *PAGES,
         result="list", shows="network"),
    read(_NETWORK, "networks_name", "Return one network", NETWORKS.one(), LOCK, shows="network"),
    tags_of("network", f"{_NETWORK}/tags", "networks_name_tags"),
)  # fmt: skip
