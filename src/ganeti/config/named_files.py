"""Files that hypervisor parameters name and that all nodes must have alike: passwords of displays (S71)."""

from ganeti.config.fill import cluster_hvparams
from ganeti.config.snapshot import Snapshot
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS


def named_files(snapshot: Snapshot) -> list[str]:
    """Their paths, for all enabled hypervisors: of the cluster, of OSes, and of single instances."""
    cluster = snapshot.cluster
    found: set[str] = set()
    for hypervisor in cluster.enabled_hypervisors:
        names = _shared(hypervisor)
        for os in ("", *cluster.os_hvp):
            filled = cluster_hvparams(cluster, hypervisor, os)
            found |= {str(filled[name]) for name in names}
    for instance in snapshot.instances.values():
        own = instance.hvparams
        if own:
            found |= {str(own[name]) for name in _shared(instance.hypervisor) if name in own}
    return sorted(found - {""})


def _shared(hypervisor: str) -> tuple[str, ...]:
    return _SHARED.get(hypervisor, ())


_SHARED = {
    hypervisor: tuple(name for name, param in params.items() if param.is_shared_file)
    for hypervisor, params in HYPERVISOR_PARAMS.items()
}
