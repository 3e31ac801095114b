"""Disks that belong to no instance until they are attached again; and the claims of every disk."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode
from ganeti.config.index import Claim, part_claim
from ganeti.config.kinds.kind import Kind, Problem
from ganeti.config.view import View
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.objects import Cluster, DetachedDisk, Disk


def disk_claims(disk: Disk) -> Iterator[Claim]:
    """Return the claims of a disk, attached or not."""
    for layer in disk.layers():
        yield Claim("UUID", layer.uuid)
        if layer.logical_id:
            yield Claim("disk", " ".join(str(part) for part in layer.logical_id))
        row = TEMPLATES.get(layer.template)
        if row is not None and row.has_port and layer.logical_id:
            yield Claim("network port", str(layer.logical_id[0]))
        for node, part in layer.parts.items():
            yield part_claim(layer.template, node, part)


def _claims(_cluster: Cluster, detached: DetachedDisk) -> Iterator[Claim]:
    yield from disk_claims(detached.disk)


def _problems(view: View, detached: DetachedDisk) -> Iterator[Problem]:
    for node in detached.nodes:
        if node not in view.nodes:
            yield ErrorCode.UNKNOWN_ENTITY, f"{detached.what}: its node {node} does not exist"


DETACHED_DISK = Kind("disk", DetachedDisk, _claims, _problems)
