"""The description of an instance, for exports and backups."""

from collections.abc import Sequence

from ganeti.config.fill import without_globals
from ganeti.model.objects import Instance
from ganeti.protocols.export_description import ExportDescription, ExportedDisk, ExportedNic
from ganeti.rpc.procedures.streams import StreamResult


def described(
    instance: Instance,
    source: str,
    timestamp: int,
    results: Sequence[StreamResult],
    *,
    compression: str,
    data: str,
) -> ExportDescription:
    """Return the description; `results` has the digest of each disk, `source` is the name of the node."""
    return ExportDescription(
        name=instance.name,
        os=instance.os,
        source=source,
        timestamp=timestamp,
        compression=compression,
        data=data,
        disk_template=instance.disk_template,
        hypervisor=instance.hypervisor,
        tags=instance.tags,
        disks=tuple(
            ExportedDisk(
                size=disk.size,
                dump=disk.uuid,
                name=disk.name,
                mode=disk.mode,
                sha256=sent.sha256,
            )
            for disk, sent in zip(instance.disks, results, strict=True)
        ),
        nics=tuple(
            ExportedNic(
                mac=nic.mac,
                ip=nic.ip,
                name=nic.name,
                network=nic.network,
                **{name: nic.nicparams.get(name) for name in ("mode", "link", "vlan")},
            )
            for nic in instance.nics
        ),
        hvparams=without_globals(instance.hypervisor, instance.hvparams),
        beparams=instance.beparams,
        osparams=instance.osparams,
        osparams_private=instance.osparams_private,
    )
