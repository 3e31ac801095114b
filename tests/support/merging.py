"""Virtual clusters that are merged: made with names of their own, with real sshd, looked at, and cut short."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.states import opened
from ganeti.config.merging.plan import MergePlan
from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.sshd import PASSWORD, PORT, sshd_on

LIMIT_S = 900
_CHANGING = ("state.", "archive.", "ssconf", "register", "merge.lock", "tasks", "disk-copies")
"""What is written whenever daemons start; the state in it is compared as objects."""


@dataclass(frozen=True)
class Merging:
    """Our cluster and the others."""

    ours: LocalCluster
    others: tuple[LocalCluster, ...]
    known_hosts: Path

    @property
    def contacts(self) -> list[str]:
        return [one.cluster.master.address for one in self.others]

    def words(self, *options: str) -> list[str]:
        return [
            "ganeti-cluster-merge",
            "--password-stdin",
            f"--ssh-port={PORT}",
            f"--known-hosts={self.known_hosts}",
            "--groups=merge",
            "--parameters=ours",
            *options,
        ]

    @property
    def passwords(self) -> str:
        return f"{PASSWORD}\n" * len(self.others)

    def run(self, *options: str, status: int = 0) -> str:
        """Run the program on our master; what it said."""
        done = self.ours.run(*self.words(*options), stdin=self.passwords, timeout_s=LIMIT_S)
        assert done.status == status, done.out + done.err
        assert "Traceback" not in done.err
        return done.out + done.err

    def cut(self, title: str, *, is_new: bool = True) -> str:
        """Begin a merge, or go on with it, and kill the program in the step with this title; what it had said."""
        master = self.ours.cluster.master
        begin = ["--force", *self.contacts] if is_new else []
        process = subprocess.Popen(
            master.words(self.words(*begin)),
            env=master.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ""
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(self.passwords)
            process.stdin.close()
            for line in process.stdout:
                said += line
                if line.startswith(title):
                    break
            process.kill()
        assert title in said, said
        return said


@contextlib.contextmanager
def clusters_to_merge(*sizes: int, options: Sequence[str] = ()) -> Iterator[Merging]:
    """A cluster for each size; all have instances, all but the first (ours) have sshd."""
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(local_cluster(f"--domain=c{number}.test", *options, nodes=size))
            for number, size in enumerate(sizes, 1)
        ]
        ours, *others = made
        lines = []
        for one in made:
            one.install_noop()
            domain = one.cluster.domain
            add = ["gnt-instance", "add", *one.noop_options(), "-n", "node1"]
            one.ok(*add, f"up.{domain}")
            # In a directory that is another one in each cluster.
            one.ok(*add, "-t", "sharedfile", "--no-start", f"down.{domain}")
        for one in others:
            for node in one.cluster.nodes:
                with node.paths.file_storage_paths.open("a") as allowed:
                    allowed.write(f"{ours.cluster.shared_directory}\n")
                lines.append(stack.enter_context(sshd_on(node)))
        known = ours.directory / "known_hosts"
        known.write_text("\n".join(lines) + "\n")
        yield Merging(ours, tuple(others), known)


@contextlib.contextmanager
def joined_networks(merging: Merging) -> Iterator[None]:
    """One network out of those of all clusters that have namespaces; each sees the others' addresses."""
    clusters = [one.cluster for one in (merging.ours, *merging.others)]
    first, *others = clusters
    commands = []
    for number, other in enumerate(others):
        ends = [f"{first.bridge[4:]}a{number}", f"{first.bridge[4:]}b{number}"]
        commands += [["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]]
        for end, bridge in zip(ends, (first.bridge, other.bridge), strict=True):
            commands += [["ip", "link", "set", end, "master", bridge, "up"]]
    for cluster in clusters:
        for node in cluster.nodes:
            commands += [["ip", "-n", node.namespace, "route", "add", "10.0.0.0/8", "dev", "eth0"]]
    for command in commands:
        subprocess.run(command, check=True)
    try:
        yield
    finally:
        for number in range(len(others)):
            subprocess.run(["ip", "link", "del", f"{first.bridge[4:]}a{number}"], check=False)


def picture(cluster: LocalCluster) -> dict[str, Any]:
    """A cluster as it is: every file that lasts, the configuration as objects, what runs."""
    found: dict[str, Any] = {}
    for node in cluster.cluster.nodes:
        for place in (node.paths.data, node.paths.etc, node.paths.root_ssh):
            for path in sorted(place.rglob("*")) if place.exists() else ():
                name = str(path.relative_to(node.root))
                if path.is_file() and not path.name.startswith(_CHANGING) and "/ssconf" not in name:
                    found[f"{node.name}:{name}"] = (path.stat().st_mode, path.read_bytes())
        daemons = Daemons(node.paths, environment=node.environment())
        found[f"{node.name}: daemons"] = Agent(node.paths, daemons).running_daemons()
    paths = Paths(Path(cluster.cluster.master.root))
    agent = Agent(paths, Daemons(paths))
    found["configuration"] = set(MergePlan(opened(agent.backup()).snapshot).rows())
    facts = agent.facts()
    found["running"] = facts.running
    found["instances"] = facts.instances
    return found
