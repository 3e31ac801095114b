"""Instances go between a cluster of Debian's Ganeti 3.0.2 and one of this implementation, by the tool of either."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support.debian_cluster import DebianCluster, debian_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1800)]
THEIRS, OURS = 1, 3
NAME = "moved.peer"
POLICY = (
    "--ipolicy-bounds-specs=min:disk-size=1,cpu-count=1,disk-count=0,memory-size=1,nic-count=0,spindle-use=1"
    "/max:disk-size=1048576,cpu-count=8,disk-count=16,memory-size=32768,nic-count=8,spindle-use=12"
)
SET_UP = """
set -e
echo "198.51.100.40 $3" >>/etc/hosts
cat "$1/var/lib/ganeti/cluster-domain-secret" >"$2/secret"
mkdir -p "$1/var/lib/ganeti/rapi" "$2/srv/ganeti/os"
echo "mover a-password write" >"$1/var/lib/ganeti/rapi/users"
chmod 644 "$1/var/lib/ganeti/rapi/users"
echo "mover a-password write" >"$2/var/lib/ganeti/rapi_users"
chmod 600 "$2/var/lib/ganeti/rapi_users"
echo a-password >"$2/password"
for node in "$1" "$2"; do
  sed -n '/BEGIN CERT/,/END CERT/p' "$node/var/lib/ganeti/rapi.pem" >"$node/trusted.pem"
done
printf '#!/bin/sh\ncat "$EXPORT_DEVICE"\n' >/srv/ganeti/os/noop/export
printf '#!/bin/sh\ncat >"$IMPORT_DEVICE"\n' >/srv/ganeti/os/noop/import
cp -r /srv/ganeti/os/noop "$2/srv/ganeti/os/"
"""


@dataclass(frozen=True)
class Both:
    """A cluster of the original on two nodes (its allocator needs them), and one of ours on another."""

    cluster: DebianCluster

    def shell(self, text: str, *words: str) -> str:
        line = [*self.cluster.inside, "sh", "-c", text, "sh", *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def digests(self, node: int) -> list[str]:
        """The digests of all disks of a cluster, in their order."""
        place = (
            str(self.cluster.top / "files") if node == THEIRS else f"{self.cluster.root(node)}/srv"
        )
        find = 'find "$1" -name "*.file.disk*" -type f -exec sha256sum {} +'
        lines = [line.split() for line in self.shell(find, place).splitlines()]
        return [digest for digest, _path in sorted(lines, key=lambda one: one[1][-5:])]

    def names(self, node: int) -> set[str]:
        run = self.cluster.theirs if node == THEIRS else self.cluster.ours
        return set(run(node, "gnt-instance", "list", "--no-headers", "-o", "name").split())

    def options(self, source: int, target: int) -> list[str]:
        password = f"{self.cluster.root(OURS)}/password"
        ends = (("src", source), ("dest", target))
        return [
            *(f"--{end}-username=mover" for end, _node in ends),
            *(f"--{end}-password-file={password}" for end, _node in ends),
            *(f"--{end}-ca-file={self.cluster.root(node)}/trusted.pem" for end, node in ends),
        ]

    def move(self, source: int, target: int, *, by: int) -> None:
        """Move the instance with the tool of one of them; Debian's fails without these two options."""
        names = [f"peernode{source}", f"peernode{target}", NAME]
        options = self.options(source, target)
        if by == OURS:
            self.cluster.ours(
                OURS, "move-instance", *options, f"--dest-primary-node=peernode{target}", *names
            )
            return
        tool = ("/usr/bin/python3", "-W", "ignore", "/usr/share/ganeti/3.0/move-instance")
        self.cluster.theirs(
            THEIRS, *tool, *options, "--iallocator=hail", "--opportunistic-tries=1", *names
        )


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with ExitStack() as stack:
        cluster = stack.enter_context(debian_cluster(2, spare=1))
        made = Both(cluster)
        made.shell('mkdir -p "$1"', str(cluster.root(OURS)))
        cluster.ours(OURS, "gnt-cluster", "init", "--enabled-hypervisors=fake",
                     "--enabled-disk-templates=file,diskless", POLICY, "ours.peer")  # fmt: skip
        made.shell(SET_UP, str(cluster.root(THEIRS)), str(cluster.root(OURS)), NAME)
        secret = f"{cluster.root(OURS)}/secret"
        cluster.ours(OURS, "gnt-cluster", "renew-crypto", "-f", f"--cluster-domain-secret={secret}")
        server = cluster.words(OURS, ("ganeti-rapi", "-b", cluster.address(OURS)))
        rapi = stack.enter_context(subprocess.Popen(server))
        stack.callback(rapi.kill)
        time.sleep(3)
        yield made


@pytest.mark.requirement("S203", "S208", "S209", "S211", "S214", "S215")
def test_an_instance_goes_either_way_by_the_tool_of_either(both: Both) -> None:
    both.cluster.theirs(
        THEIRS, "gnt-instance", "add", "-o", "noop+default", "-t", "file", "--disk=0:size=4m", "--disk=1:size=8m",
        "--no-nics", "--no-name-check", "--no-ip-check", "--no-start", "-n", "peernode1", "-B",
        "memory=16M,vcpus=1", NAME,
    )  # fmt: skip
    fill = 'for disk in $(find "$1" -name "*.file.disk*"); do head -c "$(stat -c %s "$disk")" /dev/urandom >"$disk"; done'
    both.shell(fill, str(both.cluster.top / "files"))
    data = both.digests(THEIRS)
    assert len(set(data)) == 2
    for tool in (OURS, THEIRS):
        for source, target in ((THEIRS, OURS), (OURS, THEIRS)):
            both.move(source, target, by=tool)
            assert (both.names(source), both.names(target)) == (set(), {NAME})
            assert (both.digests(source), both.digests(target)) == ([], data)
