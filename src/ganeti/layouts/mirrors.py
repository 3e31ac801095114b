"""Disks on two nodes: DRBD over a volume for the data and one for the metadata on each."""

import dataclasses
from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.layouts.volumes import volume_group
from ganeti.model.disk_templates import DRBD, PLAIN
from ganeti.model.objects import Cluster, Disk, NodeUuid
from ganeti.model.params import Params

MIB_PER_METADATA_MIB = 32 * 1024
"""One bit for 4 KiB, in DRBD's map of blocks to copy."""
FIXED_METADATA_MIB = 1
"""The first block, the log of active writes, and our mark."""
PARAMS_BELOW = {"data": "data-stripes", "meta": "meta-stripes"}


class DrbdPlanner(Planner):
    """A port and a secret for both nodes; a minor and two volumes on each."""

    template = DRBD

    def check_site(self, site: Site) -> None:
        if not site.others:
            volume_group(site, {})

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        own = dict(request.params or {})
        params = _params(site.defaults(DRBD.name), own)
        size = metadata_mib(request.size, int(params["meta_size"]))
        group = volume_group(site, {"vg": own.get("vg", "")})
        meta_group = str(own.get("metavg") or params["metavg"] or group)
        own.pop("vg", None)
        return Disk(
            uuid=names.uuid(),
            size=request.size,
            template=self.template.name,
            logical_id=(names.port(),),
            secret=names.secret(),
            children=(
                _volume(names, request.size, group, params["data-stripes"]),
                _volume(names, size, meta_group, params["meta-stripes"]),
            ),
            mode=request.mode,
            name=request.name,
            params=own,
        )

    def placed(self, disk: Disk, nodes: Sequence[NodeUuid], names: Names) -> Disk:
        kind = self.template.name
        parts = {node: disk.parts.get(node) or (names.number(kind, node),) for node in nodes}
        below = tuple(
            replace(
                child,
                parts={
                    node: child.parts.get(node) or _new_part(child, use, names) for node in nodes
                },
            )
            for child, use in zip(disk.children, PARAMS_BELOW, strict=True)
        )
        return replace(disk, parts=parts, children=below)

    def renewed(self, disk: Disk, node: NodeUuid, names: Names) -> Disk:
        below = tuple(
            replace(child, parts={**child.parts, node: _new_part(child, use, names)})
            for child, use in zip(disk.children, PARAMS_BELOW, strict=True)
        )
        return replace(disk, children=below)

    def around(
        self, below: Disk, node: NodeUuid, request: NewDisk, site: Site, names: Names
    ) -> Disk | None:
        if below.template != PLAIN.name:
            return None
        group = str(below.part(node)[0])
        if (request.params or {}).get("vg") not in (None, "", group):
            return None
        params = {**(request.params or {}), "vg": group}
        disk = self.new_disk(dataclasses.replace(request, params=params), site, names)
        data = replace(
            disk.children[0], uuid=below.uuid, params=below.params, parts={node: below.part(node)}
        )
        return replace(disk, children=(data, *disk.children[1:]))

    def within(self, disk: Disk, node: NodeUuid) -> Disk | None:
        data = disk.children[0]
        return replace(data, logical_id=data.part(node), parts={}, mode=disk.mode, name=disk.name)

    def space_mib(self, disk: Disk, cluster: Cluster) -> int:
        if disk.children:
            return sum(child.size for child in disk.children)
        params = _params(cluster.diskparams.get(DRBD.name, {}), disk.params)
        return disk.size + metadata_mib(disk.size, int(params["meta_size"]))

    def grown(self, disk: Disk, size: int) -> Disk:
        data, meta = disk.children
        if metadata_mib(size, 0) > meta.size:
            most = (meta.size - FIXED_METADATA_MIB) * MIB_PER_METADATA_MIB
            raise PrereqError(
                f"disk {disk.uuid} has {meta.size} MiB of metadata, enough for {most} MiB of data; move the data"
                " to a new disk that is made larger from the start",
                ErrorCode.NO_RESOURCES,
            )
        return replace(disk, size=size, children=(replace(data, size=size), meta))


def metadata_mib(size: int, wanted: int) -> int:
    """Return the size of a disk's metadata: the requested or the required one."""
    return max(wanted, -(-size // MIB_PER_METADATA_MIB) + FIXED_METADATA_MIB)


def _params(defaults: Params, own: Params) -> Params:
    return {**DRBD.params, **defaults, **own}


def _volume(names: Names, size: int, group: str, stripes: int) -> Disk:
    return Disk(
        uuid=names.uuid(),
        size=size,
        template=PLAIN.name,
        params={"vg": group, "stripes": stripes},
    )


def _new_part(volume: Disk, use: str, names: Names) -> tuple[str, str]:
    """Return a volume with an unused name, so that it can be created beside an old one."""
    return str(volume.params["vg"]), f"{names.uuid()}.{use}"
