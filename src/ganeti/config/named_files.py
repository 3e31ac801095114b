"""Files that hypervisor parameters name and that must be equal on all nodes: passwords of displays (S71)."""

from ganeti.config.fill import cluster_hvparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.params import Params


def named_files(snapshot: Snapshot) -> list[str]:
    """Return their paths for all enabled hypervisors: of the cluster, of OSes, and of single instances."""
    cluster = snapshot.cluster
    found: set[str] = set()
    for hypervisor in cluster.enabled_hypervisors:
        for os in ("", *cluster.os_hvp):
            filled = cluster_hvparams(cluster, hypervisor, os)
            found |= _of(hypervisor, filled)
    for instance in snapshot.instances.values():
        if instance.hvparams:
            found |= _of(instance.hypervisor, instance.hvparams)
    return sorted(found - {""})


def _of(hypervisor: str, hvparams: Params) -> set[str]:
    """Return the valid paths: a value from before the present, stricter check is not distributed."""
    return {
        str(hvparams[param.name])
        for param in _SHARED.get(hypervisor, ())
        if param.name in hvparams and param.check and not param.check(hvparams[param.name])
    }


_SHARED = {
    hypervisor: tuple(param for param in params.values() if param.is_shared_file)
    for hypervisor, params in HYPERVISOR_PARAMS.items()
}
