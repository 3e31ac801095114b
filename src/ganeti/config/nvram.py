"""Tells which instances have NVRAM (UEFI variables, a TPM), and its location. Pure."""

from ganeti.config.fill import filled_hvparams
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, Instance
from ganeti.model.params import Params


def has_nvram_on_its_node(cluster: Cluster, instance: Instance) -> bool:
    """Return whether the instance has NVRAM that other nodes cannot reach.

    UEFI variables of disks in shared files lie beside the first one; a TPM's state never does.
    """
    hvparams, template = filled_hvparams(cluster, instance), DISK_TEMPLATES[instance.disk_template]
    are_shared = template.shared and template.in_files and bool(instance.disks)
    return _has_tpm(hvparams) or (_has_uefi(hvparams) and not are_shared)


def _has_uefi(hvparams: Params) -> bool:
    return hvparams.get("firmware") == "uefi"


def _has_tpm(hvparams: Params) -> bool:
    return bool(hvparams.get("tpm"))
