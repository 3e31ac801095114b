"""Machines from elsewhere by the real commands: an export goes out as an OVA and comes back."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.cluster.test_gnt_backup import add, digests, disks_of, install_os
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import text_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NewName = Callable[[], str]


@pytest.mark.requirement("A51")
def test_an_instance_goes_out_as_an_ova_and_comes_back(
    cluster: LocalCluster, new_name: NewName
) -> None:
    install_os(cluster, "quiet", ["create", "verify"])
    old, new = new_name(), new_name()
    data = add(cluster, old, "quiet")
    cluster.ok("gnt-backup", "export", "-n", "node2", "--ova", "--remove-instance", old)
    paths = cluster.node(2).paths
    [exported] = paths.exports.iterdir()
    packed = exported / f"{exported.name}.ova"
    images = paths.below("/srv/ganeti/images")
    images.mkdir(parents=True)
    shutil.copy(packed, images / "box.ova")
    listed = ["--src-node=node2", "-t", "file", "-n", "node3"]
    wrong = "/srv/ganeti/export/box.ova"
    assert "is not below" in cluster.fails("gnt-backup", "import", "--image", wrong, *listed, new)
    image = "/srv/ganeti/images/box.ova"
    said = cluster.fails("gnt-backup", "import", "--image", image, "--format=qcow2", *listed, new)
    assert "no header of qcow2" in said
    said = cluster.ok("gnt-backup", "import", "--image", image, *listed, new).out
    assert "converting" in said
    assert digests(disks_of(cluster, 3, new)) == data
    assert cluster.value("instance", new, "be/maxmem") == "16M"
    assert [path.name for path in paths.exports.iterdir()] == [exported.name]
    cluster.ok("gnt-instance", "remove", "-f", new)
    cluster.ok("gnt-backup", "remove", exported.name)
    shutil.rmtree(images)


def converter(cluster: LocalCluster) -> int | None:
    """The process that converts an image, which has nothing of the cluster in its words but where it works."""
    place = os.fspath(cluster.directory)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            if b"qemu-img\0convert\0" in words and (entry / "cwd").readlink().is_relative_to(place):
                return int(entry.name)
    return None


def log_of_last_job(cluster: LocalCluster) -> str:
    """What the newest job has said so far."""
    with cluster.luxi() as client:
        job = max(row[0] for row in client.call("QueryJobs", None, ["id"]))
        [[log]] = client.call("QueryJobs", [job], ["oplog"])
        return str(log)


def when_it_converts(cluster: LocalCluster, command: "subprocess.Popen[str]") -> int:
    """The process that converts, stopped."""
    while (pid := converter(cluster)) is None:
        assert command.poll() is None, "it was over before it was seen"
        time.sleep(0.005)
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.mark.requirement("F32", "A51", "S218")
@pytest.mark.parametrize("killed", [(), (NODED,), (MASTERD, NODED)], ids=["tool", "node", "both"])
def test_killed_conversion_leaves_no_partial_image(
    cluster: LocalCluster, new_name: NewName, tmp_path: Path, killed: tuple[str, ...]
) -> None:
    name, paths = new_name(), cluster.node(1).paths
    images = paths.below("/srv/ganeti/images")
    images.mkdir(parents=True)
    raw = tmp_path / "raw"
    raw.write_bytes(os.urandom(8 * 1024 * 1024))
    box = str(images / "box.qcow2")
    convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), box]
    subprocess.run(convert, check=True)
    words = ["--image", "/srv/ganeti/images/box.qcow2", "--src-node=node1", "-t", "file"]
    words += ["-n", "node1", "--no-nics", "-B", "memory=16m", name]
    with cluster.in_background("gnt-backup", "import", *words) as command:
        pid = when_it_converts(cluster, command)
        try:
            if not killed:
                wait_until(lambda: "copying box.qcow2: " in log_of_last_job(cluster), "progress")
            for daemon in killed:
                cluster.kill(daemon)
            for daemon in reversed(killed):
                cluster.start(daemon)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if killed else signal.SIGKILL)
        said = text_of(command, 120)[0]

    with cluster.luxi() as client:
        job = max(row[0] for row in client.call("QueryJobs", None, ["id"]))
        for _change in client.wait_for_job(job):
            pass
        [[status, result]] = client.call("QueryJobs", [job], ["status", "opresult"])
    wait_until(lambda: converter(cluster) is None, "nothing converts", 60)
    wait_until(lambda: not list(paths.exports.iterdir()), "the export for the import goes", 60)
    assert not [one for one in cluster.processes().values() if "node.images" in one]
    if status == "success":
        assert killed, "the tool was killed"
        assert digests(disks_of(cluster, 1, name)) == digests([raw])
    else:
        assert killed != (NODED,), f"the program goes on without its daemon: {said} {result}"
        assert name not in cluster.names("instance")
        assert disks_of(cluster, 1, name) == []
        if not killed:
            assert "cannot convert the image" in said
    shutil.rmtree(images)
