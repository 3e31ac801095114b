"""The image `tiny` of a new virtual cluster: the small test guest, or a disk without a system."""

import shutil
import subprocess
from pathlib import Path

from ganeti.base.errors import ExecError
from ganeti.vcluster.layout import VirtualCluster
from ganeti.vcluster.lifecycle import Commands

NAME, SIZE_MIB = "tiny", 64
_SOURCE = "/srv/ganeti/images/tiny.raw"


def import_tiny(cluster: VirtualCluster, commands: Commands) -> None:
    """Import the image; it needs no OS definition, since its system does not read settings for cloud-init."""
    source = cluster.master.paths.below(_SOURCE)
    source.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with source.open("wb") as file:
        file.write(b"no system\n")
        file.truncate(SIZE_MIB << 20)
    if cluster.guest:
        _install(Path(cluster.guest) / "tiny", source)
        what = "small Linux for tests"
    else:
        what = "a disk without a system"
    words = ["--format=raw", "--cloud-init=no", f"--description={what}", NAME, _SOURCE]
    commands.run(cluster.master, ["gnt-image", "import", *words])
    source.unlink()


def _install(definition: Path, disk: Path) -> None:
    """Run the create script of the guest's OS definition on a file; ExecError."""
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "INSTANCE_NAME": NAME,
        "DISK_COUNT": "1",
        "DISK_0_PATH": str(disk),
    }
    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run(
        [shell, str(definition / "create")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ExecError(f"the test guest cannot be installed: {done.stderr.strip()}")
