"""Run by Debian's Python: Ganeti's own reader and `cfgupgrade --dry-run` open a configuration."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from ganeti import config, constants, objects, serializer  # type: ignore[attr-defined] # Ganeti's


def read(path: str) -> dict[str, object]:
    """What the reader finds, and what it finds wrong."""
    data = objects.ConfigData.FromDict(serializer.LoadJson(Path(path).read_text()))
    for table in (data.nodes, data.instances, data.nodegroups, data.networks, data.disks):
        for one in table.values():
            one.UpgradeConfig()
    data.cluster.UpgradeConfig()
    owner = types.SimpleNamespace(masterd_uid=os.getuid(), confd_gid=os.getgid())
    opened = config.ConfigWriter(  # type: ignore[attr-defined] # Ganeti's
        cfg_file=path, offline=True, accept_foreign=True, _getents=lambda: owner
    )
    return {
        "version": data.version == constants.CONFIG_VERSION,
        "wrong": opened.VerifyConfig(),
        "nodes": sorted(node.name for node in data.nodes.values()),
        "instances": {
            one.name: opened.GetInstanceDiskTemplate(one.uuid) for one in data.instances.values()
        },
        "memory": {one.name: data.cluster.FillBE(one)["maxmem"] for one in data.instances.values()},
    }


def upgrade(path: str, programs: str, directory: str) -> int:
    """The status of `cfgupgrade --dry-run` on a directory with the configuration."""
    place = Path(directory)
    shutil.copy(path, place / "config.data")
    for name in ("server.pem", "known_hosts"):
        (place / name).touch()
    (place / "ssconf_master_node").write_text("elsewhere\n")
    (place / "etc").mkdir()
    words = ["--dry-run", "--force", "--ignore-hostname", "--no-verify"]
    words += ["--path", directory, "--confdir", str(place / "etc")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", f"{programs}/cfgupgrade", *words],
        check=False,
        stdout=sys.stderr,
    )
    return done.returncode


def main(path: str, programs: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        shutil.copy(path, copy)
        said = read(str(copy))
    with tempfile.TemporaryDirectory() as directory:
        said["upgrade"] = upgrade(path, programs, directory)
    sys.stdout.write(json.dumps(said) + "\n")


main(sys.argv[1], sys.argv[2])
