"""Disks on storage that every node reaches: images of Ceph, volumes of external providers."""

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_templates import EXTERNAL, RBD
from ganeti.model.objects import Disk


class RbdPlanner(Planner):
    """An image with a name of its own; the pool stays with the disk."""

    template = RBD

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        given, kind = request.params or {}, self.template.name
        default = site.defaults(kind).get("pool")
        pool = str(given.get("pool") or default or self.template.params["pool"])
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=kind,
            logical_id=(self.template.disk_id.driver, f"{names.uuid()}.{kind}.{site.label}"),
            mode=request.mode,
            name=request.name,
            params={**given, "pool": pool},
        )

    def place(self, disk: Disk) -> str | None:
        return str(disk.params.get("pool") or self.template.params["pool"])


class ExternalPlanner(Planner):
    """A volume of the provider that the disk names."""

    template = EXTERNAL

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        params = dict(request.params or {})
        provider = params.get("provider") or (site.others[0].logical_id[0] if site.others else None)
        where = f"disks[{site.index}].provider"
        if not provider:
            raise InputError("name the provider of the disk (provider=NAME)", where)
        name = plain_name(str(provider), where)
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=(name, f"{names.uuid()}.{self.template.name}.{site.label}"),
            mode=request.mode,
            name=request.name,
            params={**params, "provider": name},
        )
