"""Run by Debian's Python: Ganeti's own import reads the description of an export, as far as it asks nothing of a cluster."""

import json
import sys
import types

from ganeti import backend, constants, objects, utils  # type: ignore[attr-defined] # Ganeti's
from ganeti.cmdlib.instance_create import LUInstanceCreate  # type: ignore[import-not-found] # Ganeti's


def read(directory: str) -> dict[str, object]:
    """What the request for an import is filled with, and the dumps that it would read."""
    info = objects.SerializableConfigParser.Loads(backend.ExportInfo(directory))
    unit = LUInstanceCreate.__new__(LUInstanceCreate)
    unit.op = types.SimpleNamespace(
        disks=[], nics=[], tags=[], hypervisor=None, os_type=None, disk_template="file",
        hvparams={}, beparams={}, osparams={}, osparams_private={},
    )  # fmt: skip
    unit._ReadExportParams(info)
    utils.ForceDictType(unit.op.hvparams, constants.HVS_PARAMETER_TYPES)
    utils.ForceDictType(unit.op.beparams, constants.BES_PARAMETER_COMPAT)
    section = constants.INISECT_INS
    return {
        **vars(unit.op),
        "name": info.get(section, "name"),
        "version": info.getint(constants.INISECT_EXP, "version") == constants.EXPORT_VERSION,
        "dumps": [
            utils.PathJoin(directory, info.get(section, f"disk{number}_dump"))
            for number in range(len(unit.op.disks))
        ],
    }


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1]), default=lambda secret: secret.Get()))  # noqa: T201
