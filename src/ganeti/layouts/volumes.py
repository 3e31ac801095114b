"""Disks that are logical volumes of one node."""

from dataclasses import replace

from ganeti.base.errors import InputError
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_templates import PLAIN
from ganeti.model.objects import Disk
from ganeti.model.params import Params


class PlainPlanner(Planner):
    """A volume for each disk; its name has a UUID, so that it is the same on every node."""

    template = PLAIN

    def check_site(self, site: Site) -> None:
        if not site.others:
            volume_group(site, {})

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        params = request.params or {}
        group = volume_group(site, params)
        pool = params.get("thin_pool")
        if pool is None:
            pool = site.defaults(PLAIN.name).get("thin_pool", "")
        placed = replace(request, params={**params, "thin_pool": pool})
        return new_volume(group, placed, site.label, names)

    def place(self, disk: Disk) -> str | None:
        group, pool = str(disk.logical_id[0]), disk.params.get("thin_pool")
        return f"{group}/{pool}" if pool else group


def volume_group(site: Site, params: Params) -> str:
    """Return the volume group that a disk names, or the default; InputError if there is none."""
    default = site.defaults(PLAIN.name).get("vg", "")
    group = str(params.get("vg") or default or site.cluster.vg_name)
    if not group:
        raise InputError(
            f"the cluster has no volume group for template {PLAIN.name} (gnt-cluster modify --vg-name=GROUP);"
            " a disk may also name one (vg=GROUP)"
        )
    return group


def new_volume(group: str, request: NewDisk, suffix: str, names: Names) -> Disk:
    """Return a volume with an unused name; its parameters name its group, independent of the cluster's default."""
    return Disk(
        uuid=names.uuid(),
        size=request.size,
        template=PLAIN.name,
        logical_id=(group, f"{names.uuid()}.{suffix}"),
        mode=request.mode,
        name=request.name,
        params={**(request.params or {}), "vg": group},
    )
