"""The simulation agrees with nodes that are machines: real LVM, DRBD and QEMU, and power that is really cut.

As `tests/cluster/test_agreement.py` compares with processes and fake guests. The guests are QEMU in the machines, and
boot from their mirrored disks, to which they write a numbered log. So the loss of a node also shows that no
acknowledged write is lost.
"""

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.simulation.durations import Durations
from ganeti.whatif.durations import parse_model
from ganeti.whatif.source import NodeSize, Source
from ganeti.whatif.sources import running_source
from tests.support.agreement import Watch, differences, facts_of
from tests.support.machine_cluster import POWER, MachineCluster, machine_cluster
from tests.support.machine_guests import (
    Attendant,
    MachineWatch,
    add_guest,
    attend,
    fence_by,
    reopen_mirrors,
    switch_on,
    wait_serves,
)
from tests.support.twins import Twin, uuids, with_priorities

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(14400)]

LONG_S = 1800
HOME, MIRROR, SPARE = 2, 3, 4
WEB = {"web1.example.com": 90, "web2.example.com": 10}
"""Instances on node 2 with a copy on node 3, and the priorities of their recovery."""
TURNED = dict(zip(WEB, reversed(WEB.values()), strict=True))
"""The last instance is the first."""


@dataclass(frozen=True)
class MachineTwin(Twin):
    """A cluster of a master and machines."""

    cluster: MachineCluster
    attendant: Attendant
    sizes: Mapping[NodeUuid, NodeSize] = field(default_factory=dict)
    """A machine with busy guests of its own may not answer in time for a query."""
    away_s: float = 0.0
    """How long a machine takes to boot."""
    beside_s: float = 0.0
    """How long a migration takes beside another one: a machine has one processor."""
    fencing: str = "none"
    """How node 2 is fenced in the scenario."""

    watch_s: ClassVar[float] = 200.0
    """No watcher runs meanwhile."""
    limit_s: ClassVar[float] = LONG_S
    least_slack_s: ClassVar[float] = 5.0
    """Under emulation each step of a job takes a part of a second."""

    def source(self) -> Source:
        return replace(super().source(), sizes=self.sizes)

    def watched(self) -> Watch:
        return MachineWatch(self.cluster, self.names, self.least_slack_s, attendant=self.attendant)

    def bring_home(self) -> None:
        fence_by(self.cluster, HOME, "none")
        for number in self.cluster.numbers:
            switch_on(self.cluster, number)
        reopen_mirrors(self.cluster, WEB)
        self.wait_until_calm()
        for name in WEB:
            self._bring_home(name)
        fence_by(self.cluster, HOME, self.fencing)
        self.wait_until_calm()
        wait_serves(self.attendant, *WEB)

    def _bring_home(self, name: str) -> None:
        """Let an instance run on node 2 with a copy on node 3."""
        for number in (HOME, MIRROR):
            node = self.cluster.node(number).name
            if node not in self._nodes_of(name):
                words = ("gnt-instance", "replace-disks", f"--new-secondary={node}", name)
                self.cluster.ok(*words, timeout_s=LONG_S)
            if self._nodes_of(name)[0] != self.cluster.node(HOME).name:
                self.cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=LONG_S)

    def _nodes_of(self, name: str) -> list[str]:
        """Return the primary node of an instance, and its secondary one."""
        return [self.cluster.value("instance", name, field) for field in ("pnode", "snodes")]


def learned(twin: MachineTwin) -> MachineTwin:
    """Do everything three times that a scenario needs, and learn how long it takes.

    No log tells how long guests boot: their consoles do.
    """
    cluster = twin.cluster
    for name in WEB:
        for _ in range(2):
            stop = ("gnt-instance", "shutdown", "--timeout=0", name)
            cluster.ok(*stop, timeout_s=LONG_S)
            cluster.ok("gnt-instance", "startup", name, timeout_s=LONG_S)
            wait_serves(twin.attendant, name)
    for _ in range(2):
        for name in WEB:
            cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=LONG_S)
        twin.wait_until_calm()
    with twin.watched() as watch:
        for number in (HOME, MIRROR):
            cluster.ok("gnt-node", "migrate", "-f", f"node{number}", timeout_s=LONG_S)
            twin.wait_until_calm()
    works = facts_of(watch.history()).works.items()
    beside_s = statistics.median(took for (kind, *_), took in works if kind == "INSTANCE_MIGRATE")
    cluster.ok("gnt-node", "modify", "--offline=yes", f"node{MIRROR}", timeout_s=LONG_S)
    for _ in range(3):
        cluster.ok("gnt-node", "fence-test", "--off", "-f", f"node{MIRROR}", timeout_s=LONG_S)
    switched_on = time.monotonic()
    switch_on(cluster, MIRROR)
    away_s = time.monotonic() - switched_on
    cluster.ok("gnt-node", "modify", "--offline=no", f"node{MIRROR}", timeout_s=LONG_S)
    reopen_mirrors(cluster, WEB)
    file = cluster.directory / "model.json"
    cluster.ok("gnt-whatif", "learn", "-o", str(file))
    model = json.loads(file.read_text())
    assert {"start_s", "migration_s", "power_cut_s"} <= model["durations"].keys()
    model["durations"] |= {"boot_s": round(statistics.median(twin.attendant.boots), 3)}
    file.write_text(json.dumps(model))
    durations = parse_model(file.read_text(), str(file))
    return replace(twin, durations=durations, away_s=away_s, beside_s=beside_s)


@pytest.fixture(scope="module")
def prepared() -> Iterator[MachineTwin]:
    with machine_cluster(3, "kvm") as cluster:
        cluster.install_power()
        cluster.ok("gnt-cluster", "modify", f"--node-parameters=oob_program={POWER},fence_methods=none",
                   "--ipolicy-vcpu-ratio=100", "--ipolicy-spindle-ratio=1000", timeout_s=LONG_S)  # fmt: skip
        with cluster.luxi() as client:
            sizes = running_source(client).sizes
        assert len(sizes) == len(cluster.cluster.nodes)
        for name, priority in WEB.items():
            params = f"recovery=failover,recovery_priority={priority}"
            add_guest(cluster, name, f"node{HOME}:node{MIRROR}", params)
        for number in cluster.numbers:
            attend(cluster, number)
        names = uuids(cluster)
        attendant = Attendant(cluster, names)
        twin = MachineTwin(cluster, Durations(), names, attendant, sizes=sizes)
        wait_serves(twin.attendant, *WEB)
        twin.wait_until_calm()
        yield learned(twin)


@pytest.fixture
def twin(prepared: MachineTwin) -> Iterator[MachineTwin]:
    prepared.bring_home()
    yield prepared
    for number in prepared.cluster.numbers:  # connections that this test has opened
        prepared.cluster.machine(number).forget()


@contextlib.contextmanager
def restarting(twin: MachineTwin) -> Iterator[list[int]]:
    """Switch on each machine that has reset itself, for a while; the numbers of these machines."""
    ended, restarted = threading.Event(), list[int]()

    def look() -> None:
        while not ended.wait(0.5):
            for number in twin.cluster.numbers:
                if twin.cluster.machine(number).machine.pid is None:
                    restarted.append(number)
                    switch_on(twin.cluster, number)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield restarted
    finally:
        ended.set()
        thread.join()


def assert_no_entry_is_lost(attendant: Attendant) -> None:
    """Every entry that was acknowledged before is on the disk; at most one more, whose end was not told."""
    wait_serves(attendant, *WEB)
    for name in WEB:
        last = attendant.last_before[name]
        assert last < attendant.first[name] <= last + 2, name


@pytest.mark.requirement("D4", "D6")
def test_loss_of_a_machine_goes_as_simulated(twin: MachineTwin) -> None:
    twin = replace(twin, fencing="power")
    twin.bring_home()
    option, source = f"fail-node=node{HOME}", twin.source()
    simulated = twin.simulated(option, source)
    mirror = twin.cluster.node(MIRROR).name

    def lose(watch: Watch) -> None:
        twin.cluster.machine(HOME).cut_power()
        watch.began = time.time()
        twin.ended(lambda: set(facts_of(watch.history()).running.values()) == {mirror})

    real, slack = twin.compared(simulated, lose)
    assert_no_entry_is_lost(twin.attendant)
    facts = facts_of(real)
    assert {name for name, _number in facts.downtimes} == set(WEB)
    assert set(facts.homes.values()) == {mirror}

    for name in ("start_s", "power_cut_s") if slack is not None else ():
        wrong = 2 * twin.most_slack_s
        other = replace(twin.durations, **{name: getattr(twin.durations, name) + wrong})
        found = differences(twin.simulated(option, source, other), real, twin.most_slack_s)
        assert sum("is down for" in one for one in found) == len(WEB), name
    turned = twin.simulated(option, with_priorities(source, TURNED))
    assert any("comes before" in one for one in differences(turned, real, None))


def test_evacuation_of_a_machine_goes_as_simulated(twin: MachineTwin) -> None:
    twin = replace(twin, durations=replace(twin.durations, migration_s=twin.beside_s))
    option, source = f"evacuate-primaries=node{HOME}", twin.source()
    simulated = twin.simulated(option, source)
    words = ("gnt-node", "evacuate", "-f", "--primary-only", f"node{HOME}")
    real, slack = twin.compared(simulated, lambda _: twin.cluster.ok(*words, timeout_s=LONG_S))
    facts = facts_of(real)
    assert not facts.downtimes
    assert {facts.homes[name] for name in WEB} == {twin.cluster.node(MIRROR).name}
    if slack is not None:
        longer = twin.durations.migration_s + 2 * twin.most_slack_s
        wrong = replace(twin.durations, migration_s=longer)
        found = differences(twin.simulated(option, source, wrong), real, twin.most_slack_s)
        assert sum("works for" in one for one in found) >= len(WEB)


def test_rolling_reboot_of_machines_goes_as_simulated(twin: MachineTwin) -> None:
    names = ",".join(twin.cluster.node(number).name for number in (HOME, MIRROR))
    simulated = twin.simulated(f"drain={names}@0s/{twin.away_s:.0f}s", twin.source())
    words = ("gnt-cluster", "rolling-reboot", "--by=powercycle", "-f", f"--nodes={names}")
    with restarting(twin) as restarted:
        real, _slack = twin.compared(simulated, lambda _: twin.cluster.ok(*words, timeout_s=LONG_S))
    assert restarted[-2:] == [HOME, MIRROR]
    facts = facts_of(real)
    assert not facts.downtimes
    assert {facts.homes[name] for name in WEB} == {twin.cluster.node(HOME).name}
