"""Which instances start by UEFI, and where its variables lie: pure."""

from ganeti.config.fill import filled_hvparams
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, Instance


def has_uefi(cluster: Cluster, instance: Instance) -> bool:
    """Whether the instance starts by UEFI now."""
    return filled_hvparams(cluster, instance).get("firmware") == "uefi"


def has_variables_on_its_node(cluster: Cluster, instance: Instance) -> bool:
    """Whether it starts by UEFI, with variables that other nodes do not see.

    Those of disks in shared files lie beside the first one.
    """
    template = DISK_TEMPLATES[instance.disk_template]
    are_shared = template.shared and template.in_files and bool(instance.disks)
    return has_uefi(cluster, instance) and not are_shared
