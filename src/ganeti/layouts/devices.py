"""Disks outside of Ganeti's storage: adopted block devices."""

from ganeti.base.errors import InputError
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_templates import BLOCK_DEVICE
from ganeti.model.objects import Cluster, Disk


class BlockDevicePlanner(Planner):
    """The named device; every node sees it under the same name."""

    template = BLOCK_DEVICE

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        path = request.adopt
        if path is None:
            raise InputError(
                f"disks of template {self.template.name} are existing devices: pass adopt=PATH",
                f"disks[{site.index}]",
            )
        form = self.template.disk_id
        if not form.is_path(path):
            raise InputError(
                f"must be the path of a device below {form.root}, where names belong to devices",
                f"disks[{site.index}].adopt",
            )
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=(form.driver, path),
            mode=request.mode,
            name=request.name,
            params=request.params or {},
        )

    def space_mib(self, disk: Disk, cluster: Cluster) -> int:
        """Nothing: the space is not the cluster's."""
        del disk, cluster
        return 0
