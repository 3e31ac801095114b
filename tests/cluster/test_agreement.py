"""The simulation agrees with reality: three scenarios on a real cluster, and before them in a simulation of this cluster.

The source of the simulation are the answers of the running cluster, and its durations those that `gnt-whatif learn`
finds in the log of the cluster's jobs. Nodes are processes; guests are fake, and their operations take a given time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from ganeti.simulation.durations import Durations
from ganeti.vcluster.leftovers import end_commands
from ganeti.vcluster.lifecycle import POWER_PROGRAM
from ganeti.whatif.durations import parse_model
from ganeti.whatif.report import report_of, run_of
from ganeti.whatif.source import Source
from tests.support.agreement import FakeWatch, Watch, differences, facts_of
from tests.support.local_cluster import LocalCluster, local_cluster, vcluster
from tests.support.twins import Twin, changed, uuids, with_priorities
from tests.support.virtual_hosts import VirtualHosts, virtual_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(900)]

HOME = 4
WEB = {"web1.example.com": 90, "web2.example.com": 50, "web3.example.com": 10}
"""Instances on node 4, and the priorities of their recovery."""
TURNED = dict(zip(WEB, reversed(WEB.values()), strict=True))
"""The last instance is the first."""
LOADS = {"load1.example.com": (2, 3), "load2.example.com": (3, 6)}
"""Instances that make nodes differ: node, and virtual processors."""
TAKES_S = {"start": 1.5, "stop": 0.7, "migrate": 1.2}
AT_ONCE_S = 0.001
AWAY_S = 4
"""How long a node's restart takes in the simulation; no guest waits for it."""
REBOOTED = (2, 4)
WRONG_S = 10.0
"""How far a planted model is wrong: twice the most slack."""


@dataclass(frozen=True)
class FakeTwin(Twin):
    """A cluster of processes."""

    hosts: VirtualHosts

    def watched(self) -> Watch:
        return FakeWatch(self.cluster, self.names, self.least_slack_s)

    def bring_home(self) -> None:
        self.return_power()
        self.wait_until_calm()
        for name in WEB:
            if not self.cluster.value("instance", name, "pnode").startswith(f"node{HOME}."):
                self.cluster.ok("gnt-instance", "migrate", "-f", "-n", f"node{HOME}", name)
        self.wait_until_calm()

    def cut_power(self) -> None:
        """Let node 4 lose all of its processes and guests at one moment."""
        node = self.cluster.node(HOME)
        end_commands(node.paths, node.name, print)
        for guest in node.paths.fake_hypervisor.glob("*.json"):
            guest.unlink()

    def return_power(self) -> None:
        vcluster(self.cluster.directory, "power", "power-on", self.cluster.node(HOME).name)


def prepare(cluster: LocalCluster) -> None:
    """Create the instances, and let guests take their time."""
    cluster.ok("gnt-cluster", "modify", f"--node-parameters=oob_program={POWER_PROGRAM}",
               "--ipolicy-vcpu-ratio=100", "--ipolicy-spindle-ratio=1000")  # fmt: skip
    for node in cluster.cluster.nodes:
        node.paths.fake_hypervisor.mkdir(mode=0o700, parents=True, exist_ok=True)
        for operation, seconds in TAKES_S.items():
            (node.paths.fake_hypervisor / f"delay-{operation}").write_text(f"{seconds} together")
    for name, priority in WEB.items():
        add(cluster, name, HOME, f"recovery=failover,recovery_priority={priority}")
    for name, (number, processors) in LOADS.items():
        add(cluster, name, number, f"vcpus={processors}")


def add(cluster: LocalCluster, name: str, number: int, params: str) -> None:
    cluster.ok("gnt-instance", "add", "-n", f"node{number}", "-t", "diskless", "--no-install", "--no-nics",
               "-B", f"memory=16m,{params}", name)  # fmt: skip
    cluster.ok("gnt-instance", "start", name)


def learned(cluster: LocalCluster) -> Durations:
    """Do everything three times that a scenario needs, and learn how long it takes.

    No log tells that fake guests serve at once, and that the connection to a process that was killed breaks at once.
    """
    for name in WEB:
        cluster.ok("gnt-instance", "failover", "-f", "-n", "node1", name)
        cluster.ok("gnt-instance", "migrate", "-f", "-n", "node2", name)
    cluster.ok("gnt-node", "modify", "--offline=yes", f"node{HOME}")
    for _ in range(3):
        cluster.ok("gnt-node", "fence-test", "--off", "-f", f"node{HOME}")
    vcluster(cluster.directory, "power", "power-on", cluster.node(HOME).name)
    cluster.ok("gnt-node", "modify", "--offline=no", f"node{HOME}")
    file = cluster.directory / "model.json"
    cluster.ok("gnt-whatif", "learn", "-o", str(file))
    model = json.loads(file.read_text())
    assert {"start_s", "stop_s", "migration_s", "power_cut_s"} <= model["durations"].keys()
    for name, least in (("start_s", "start"), ("stop_s", "stop"), ("migration_s", "migrate")):
        assert model["durations"][name] >= TAKES_S[least]
    model["durations"] |= {
        "boot_s": AT_ONCE_S,
        "connect_timeout_s": AT_ONCE_S,
        "silence_s": AT_ONCE_S,
    }
    file.write_text(json.dumps(model))
    return parse_model(file.read_text(), str(file))


@pytest.fixture(scope="module")
def prepared() -> Iterator[FakeTwin]:
    # A node that is protected must not get another boot id, so there are hosts from the beginning.
    with local_cluster(nodes=4) as cluster, virtual_hosts(cluster, *REBOOTED) as hosts:
        prepare(cluster)
        durations = learned(cluster)
        yield FakeTwin(cluster, durations, uuids(cluster), hosts)


@pytest.fixture
def twin(prepared: FakeTwin) -> FakeTwin:
    prepared.bring_home()
    return prepared


@pytest.mark.soak
def test_evacuation_goes_as_simulated(twin: FakeTwin) -> None:
    option, source = f"evacuate=node{HOME}", twin.source()
    simulated = twin.simulated(option, source)
    model = str(twin.cluster.directory / "model.json")
    said = twin.cluster.ok("gnt-whatif", "cluster", f"--{option}", "--durations", model, "--json")
    work = json.loads(said.out)["run"]["work"]
    assert {one["kind"]: one["count"] for one in work} == {
        "NODE_EVACUATE": 1,
        "INSTANCE_MIGRATE": len(WEB),
    }
    real, slack = twin.compared(
        simulated, lambda _: twin.cluster.ok("gnt-node", "evacuate", "-f", f"node{HOME}")
    )
    facts = facts_of(real)
    assert [name for kind, name, _ in facts.jobs if kind == "INSTANCE_MIGRATE"] == list(WEB)
    assert not facts.downtimes

    if slack is not None:
        longer = twin.durations.migration_s + WRONG_S
        wrong = replace(twin.durations, migration_s=longer, spread={})
        found = differences(twin.simulated(option, source, wrong), real, twin.most_slack_s)
        assert sum("INSTANCE_MIGRATE" in one and "works for" in one for one in found) == len(WEB)


@pytest.mark.soak
def test_rolling_reboot_goes_as_simulated(twin: FakeTwin) -> None:
    names = ",".join(twin.cluster.node(number).name for number in REBOOTED)
    simulated = twin.simulated(f"drain={names}@0s/{AWAY_S}s", twin.source())
    words = ("gnt-cluster", "rolling-reboot", "--by=powercycle", "-f", f"--nodes={names}")
    real, _slack = twin.compared(simulated, lambda _: twin.cluster.ok(*words))
    assert twin.hosts.restarted[-len(REBOOTED) :] == list(REBOOTED)
    facts = facts_of(real)
    assert not facts.downtimes
    assert {facts.homes[name].partition(".")[0] for name in WEB} == {f"node{HOME}"}
    moves = [name for kind, name, _ in facts.jobs if kind == "INSTANCE_MIGRATE" and name in WEB]
    assert len(moves) == 2 * len(WEB)


def test_loss_of_a_node_goes_as_simulated(twin: FakeTwin) -> None:
    option, source = f"fail-node=node{HOME}", twin.source()
    simulated = twin.simulated(option, source)

    def lose(watch: Watch) -> None:
        twin.cut_power()
        # Until the watch looks again, the guests seem to run on.
        twin.ended(lambda: {name for name, _ in facts_of(watch.history()).downtimes} == set(WEB))

    real, slack = twin.compared(simulated, lose)
    facts = facts_of(real)
    assert {name for name, _number in facts.downtimes} == set(WEB)

    runs = [run_of(one, source.sizes, seed) for seed, one in enumerate(simulated, 1)]
    report = report_of(source, "", [option], twin.durations, runs)
    if slack is not None:
        longest = report.distribution["longest outage s"]
        assert longest.min - slack <= max(facts.downtimes.values()) <= longest.max + slack

    for name in ("start_s", "power_cut_s") if slack is not None else ():
        longer = getattr(twin.durations, name) + WRONG_S
        wrong = replace(twin.durations, **{name: longer, "spread": {}})
        found = differences(twin.simulated(option, source, wrong), real, twin.most_slack_s)
        assert sum("is down for" in one for one in found) == len(WEB), name
    other = with_loads_elsewhere(source)
    elsewhere = differences(twin.simulated(option, other), real, twin.most_slack_s)
    assert len([one for one in elsewhere if "web" in one and "runs at the end" in one]) == len(WEB)
    turned = differences(
        twin.simulated(option, with_priorities(source, TURNED)), real, twin.most_slack_s
    )
    assert any("comes before" in one for one in turned)


def with_loads_elsewhere(source: Source) -> Source:
    """Return a wrong source, in which the best node has all of the load."""
    best = next(one.uuid for one in source.nodes if one.name.startswith("node1."))
    return changed(source, {name: {"primary_node": best} for name in LOADS})
