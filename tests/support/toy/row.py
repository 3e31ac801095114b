"""The row of the toy template, as it would stand in `ganeti.model.disk_templates`."""

from ganeti.model.disk_templates import DiskId, DiskTemplate

TOY = DiskTemplate(
    "toy",
    has_driver=True,
    disk_id=DiskId(driver="toy"),
    params={"colour": "red"},
)
