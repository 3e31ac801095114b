"""Images of disks for new instances."""

from ganeti.clients import fields
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation, read

IMAGES = Listed("QueryImages", fields.IMAGE, "/2/images", id_field="name")
_IMAGE = "/2/images/{image}"

OPERATIONS: tuple[Operation, ...] = (
    read("/2/images", "images", "List all images", IMAGES.collection(), BULK, LOCK, *PAGES,
         result="list", shows="image"),
    read(_IMAGE, "images_name", "Return one image", IMAGES.one(), LOCK, shows="image"),
)  # fmt: skip
