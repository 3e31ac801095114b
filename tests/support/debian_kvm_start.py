"""Run by Debian's Python: the driver of Debian's Ganeti starts a guest of KVM, as its node daemon would.

Standard input has the guest as JSON; the place of the files is `GANETI_ROOTDIR`.
"""

import json
import sys

from ganeti import constants, objects  # type: ignore[attr-defined] # Ganeti's
from ganeti.hypervisor import hv_kvm  # type: ignore[attr-defined] # Ganeti's

TIMES = {"serial_no": 1, "ctime": 1.0, "mtime": 1.0}


def main() -> None:
    """Start it; the files by which the original finds it are there afterwards."""
    given = json.load(sys.stdin)
    driver = hv_kvm.KVMHypervisor()
    hvparams = {**constants.HVC_DEFAULTS[constants.HT_KVM], **given["hvparams"]}
    disk = objects.Disk(
        dev_type="file",
        logical_id=("loop", given["disk"]),
        size=given["size"],
        mode="rw",
        uuid=given["disk_uuid"],
        iv_name="disk/0",
        params={},
        **TIMES,
    )
    instance = objects.Instance(
        name=given["name"],
        uuid=given["uuid"],
        primary_node="node",
        os="tiny",
        hypervisor="kvm",
        hvparams=hvparams,
        beparams={**constants.BEC_DEFAULTS, "maxmem": given["memory"], "minmem": given["memory"]},
        osparams={},
        admin_state="up",
        disk_template="file",
        nics=[],
        disks=[disk.uuid],
        disks_info=[disk],
        **TIMES,
    )
    driver.StartInstance(instance, [(disk, given["disk"], None)], False)


if __name__ == "__main__":
    main()
