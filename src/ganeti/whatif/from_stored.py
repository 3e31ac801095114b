"""Sources from stored configurations: a backup of this cluster, and a configuration of upstream Ganeti."""

from collections.abc import Iterable, Iterator
from io import BytesIO

from msgspec.structs import replace

from ganeti.base.errors import GanetiError, InputError
from ganeti.base.ids import IdSource
from ganeti.config.kinds import kind_named
from ganeti.config.upgrade import Reader
from ganeti.model.backup_key import BackupKey
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Cluster, Instance, Node
from ganeti.model.stored import Stored
from ganeti.store.backup import BackupHeader, read_backup
from ganeti.store.interface import Row
from ganeti.upstream.choices import Choices
from ganeti.upstream.forms import parse
from ganeti.upstream.reading import translate
from ganeti.whatif.source import Source, stand_in_certificate

_HYPERVISOR = next(iter(HYPERVISOR_PARAMS))
"""Simulated instead of a hypervisor that this implementation lacks."""
_NO_STATES = "the source does not tell what failed or moved before: every node begins as healthy"


def backup_source(data: bytes, ids: IdSource) -> Source:
    """Return the cluster of a file of `gnt-cluster backup`; InputError if it is damaged."""
    reader = Reader(ids)
    try:
        items: Iterator[BackupHeader | Row] = read_backup(BytesIO(data).read)
        if not isinstance(next(items), BackupHeader):
            raise InputError("the file has no header of a backup")
        for row in items:
            if isinstance(row, Row) and kind_named(row.kind):
                reader.add(row.kind, row.key, row.value)
        reader.finish()
    except GanetiError as err:
        raise InputError(
            f"{err.message}; write the file again with 'gnt-cluster backup'", "SOURCE"
        ) from err
    return _source("backup", reader.objects)


def upstream_source(data: bytes) -> Source:
    """Return the cluster of upstream's `config.data`; InputError if it cannot be converted."""
    document = parse(data)
    enabled = document["cluster"].get("enabled_hypervisors") or ()
    others = {str(name): _HYPERVISOR for name in enabled if name not in HYPERVISOR_PARAMS}
    found = translate(document, Choices(keep_unknown=True, hypervisors=others))
    if refused := found.report.refused:
        raise InputError(
            f"{len(refused)} parts of the configuration cannot be converted, the first: {refused[0]};"
            " 'gnt-cluster import --dry-run FILE' lists all of them",
            "SOURCE",
        )
    notes = [f"instances of {name} are simulated as {_HYPERVISOR}" for name in sorted(others)]
    return _source("upstream", found.objects, *notes)


def _source(kind: str, objects: Iterable[Stored], *notes: str) -> Source:
    clusters = [one for one in objects if isinstance(one, Cluster)]
    if len(clusters) != 1:
        raise InputError(f"the source has {len(clusters)} clusters, not one", "SOURCE")
    others = sorted(
        (_settled(one) for one in objects if not isinstance(one, (Cluster, BackupKey))),
        key=lambda one: (type(one).__name__, one.name, one.uuid),
    )
    return Source(kind, clusters[0].name, (clusters[0], *others), {}, (_NO_STATES, *notes))


def _settled(one: Stored) -> Stored:
    """Return an object without what only the real cluster has: secrets, and work in progress."""
    if isinstance(one, Node):
        return replace(
            one,
            certificate=one.certificate or stand_in_certificate(one.name),
            fence_secret="",
            recovery=None,
        )
    if isinstance(one, Instance):
        return replace(one, recovery=None, migrating_to=None, osparams_private={})
    return one
