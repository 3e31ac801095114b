"""Toy disks: a planner."""

from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.objects import Disk
from tests.support.toy.row import TOY


class ToyPlanner(Planner):
    template = TOY

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=(self.template.disk_id.driver, f"{names.uuid()}.toy.disk{site.index}"),
            mode=request.mode,
            name=request.name,
            params=request.params or {},
        )
