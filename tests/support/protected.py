"""Protected guests of the fake hypervisor in a virtual cluster: where they run, and whether one runs twice."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from ganeti.vcluster.lifecycle import POWER_PROGRAM
from tests.support.local_cluster import LocalCluster, vcluster, wait_until

LOST_S = 60.0
BACK_S = 60.0


@dataclass
class Protected:
    """Guests that run on one node, on storage that all nodes share."""

    cluster: LocalCluster
    uuids: dict[str, str] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)
    """The nodes on which each guest has run since the last loss of a node."""

    def add(self, count: int, node: int, *, master: int = 1) -> None:
        """Create and start guests on a node, and wait until it is watched."""
        names = [f"protected{number}.example.com" for number in range(count)]
        params = f"--node-parameters=oob_program={POWER_PROGRAM}"
        self._ok(master, "gnt-cluster", "modify", params)
        for name in names:
            self._ok(
                master, "gnt-instance", "add", "-n", self.cluster.node(node).name,
                "-t", "sharedfile", "--disk", "0:size=1m", "--no-install", "--no-nics",
                "-B", "memory=16m,recovery=failover", name,
            )  # fmt: skip
            self._ok(master, "gnt-instance", "start", name)
            listed = self._ok(master, "gnt-instance", "list", "--no-headers", "-o", "uuid", name)
            self.uuids[name] = listed.strip()
        wait_until(lambda: self.state(master, node) == "healthy", "the node is watched")
        wait_until(
            lambda: self.instance_states(master) == {"protected"}, "the guests are protected"
        )

    def remove(self, master: int) -> None:
        """Remove the instances."""
        for name in self.uuids:
            self._ok(master, "gnt-instance", "remove", "-f", name)

    def switch_off(self, node: int) -> None:
        """Cut the power of a node: SIGKILL for all of its processes."""
        self.seen.clear()
        vcluster(self.cluster.directory, "power", "power-off", self.cluster.node(node).name)

    def switch_on(self, node: int) -> None:
        """Start the daemons of a node that has no power."""
        vcluster(self.cluster.directory, "power", "power-on", self.cluster.node(node).name)

    def where(self, name: str) -> set[int]:
        """The nodes on which the guest runs."""
        file = f"{self.uuids[name]}.json"
        numbers = range(1, len(self.cluster.cluster.nodes) + 1)
        found = {
            number
            for number in numbers
            if (self.cluster.node(number).paths.fake_hypervisor / file).exists()
        }
        self.seen.setdefault(name, set()).update(found)
        return found

    def wait_until_all_run(self) -> float:
        """Return the seconds until all guests run; fails if one runs on two nodes."""
        begun = time.monotonic()

        def is_so() -> bool:
            places = [self.where(name) for name in self.uuids]
            assert all(len(one) <= 1 for one in places), places
            return all(places)

        wait_until(is_so, "all guests run", LOST_S)
        return time.monotonic() - begun

    def wait_until_back(self, node: int, master: int) -> None:
        """Wait until a node that was fenced is trusted again."""
        wait_until(lambda: self.state(master, node) == "healthy", "the node is back", BACK_S)

    def state(self, master: int, node: int) -> str:
        """The state that recovery shows of a node; '' while it watches nothing."""
        return str(self.shown(master, node).get("state", ""))

    def shown(self, master: int, node: int) -> dict[str, Any]:
        """What recovery shows of a node."""
        rows = self._status(master)["nodes"]
        name = self.cluster.node(node).name
        return next((row for row in rows if row["name"] == name), {})

    def instance_states(self, master: int) -> set[str]:
        """The states that recovery shows of the instances."""
        return {row["state"] for row in self._status(master)["instances"]}

    def _status(self, master: int) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self._ok(master, "gnt-cluster", "ha-status", "--json"))
        return status

    def _ok(self, master: int, *argv: str) -> str:
        done = self.cluster.run(*argv, node=master)
        assert done.status == 0, f"{argv} ended with {done.status}:\n{done.out}{done.err}"
        return done.out
