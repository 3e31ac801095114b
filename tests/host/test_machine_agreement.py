"""The simulation agrees with nodes that are machines: real LVM, DRBD and QEMU, and power that is really cut.

As `tests/cluster/test_agreement.py` compares with processes and fake guests. The guests are QEMU in the machines, and
boot from their mirrored disks, to which they write a numbered log. So the loss of a node also shows that no
acknowledged write is lost.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import msgspec
import pytest

from ganeti.model.objects import NodeUuid
from ganeti.simulation.durations import Durations
from ganeti.whatif.durations import measurement, parse_model
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
HOME, MIRROR = 2, 3
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
    """A machine whose guests are busy may not answer a query in time."""
    away_s: float = 0.0
    """How long a machine takes to boot."""
    fencing: str = "none"
    """How node 2 is fenced in the scenario."""

    watch_s: ClassVar[float] = 200.0
    """No watcher runs meanwhile."""
    limit_s: ClassVar[float] = LONG_S
    least_slack_s: ClassVar[float] = 15.0
    """A failover makes ten calls before it starts the guest. Under emulation, two jobs at once on one processor, each
    takes about a second, and no log tells that: the model has the time of calls on real machines."""

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
            if not self.cluster.value("instance", name, "pnode").startswith(f"node{HOME}."):
                self.cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=LONG_S)
        fence_by(self.cluster, HOME, self.fencing)
        self.wait_until_calm()
        wait_serves(self.attendant, *WEB)

    def with_longer(self, name: str) -> Durations:
        """Return the durations with a wrong one: all of its time is more than the slack beyond what was measured."""
        longest = getattr(self.durations, name) * max(self.durations.spread[name])
        return replace(self.durations, **{name: longest + 2 * self.most_slack_s, "spread": {}})


def learned(twin: MachineTwin) -> MachineTwin:
    """Do everything three times that a scenario needs, and learn how long it takes.

    No log tells how long guests boot: their consoles do.
    """
    cluster = twin.cluster
    # Each alone, and twice both at once: they share the processors.
    for names in (*([one] for one in WEB), WEB, WEB):
        stop = ("gnt-instance", "shutdown", "--force-multiple", "--timeout=0")
        cluster.ok(*stop, *names, timeout_s=LONG_S)
        cluster.ok("gnt-instance", "startup", "--force-multiple", *names, timeout_s=LONG_S)
        wait_serves(twin.attendant, *names)
    for _ in range(2):
        for name in WEB:
            cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=LONG_S)
        twin.wait_until_calm()
    for number in (HOME, MIRROR):  # both at once
        cluster.ok("gnt-node", "migrate", "-f", f"node{number}", timeout_s=LONG_S)
        twin.wait_until_calm()
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
    boots = measurement(twin.attendant.boots)
    model["durations"]["boot_s"] = boots.value
    model["measured"]["boot_s"] = msgspec.to_builtins(boots)
    file.write_text(json.dumps(model))
    return replace(twin, durations=parse_model(file.read_text(), str(file)), away_s=away_s)


@pytest.fixture(scope="module")
def prepared() -> Iterator[MachineTwin]:
    with machine_cluster(2, "kvm") as cluster:
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


@pytest.fixture
def twin(prepared: MachineTwin) -> Iterator[MachineTwin]:
    prepared.bring_home()
    yield prepared
    for number in prepared.cluster.numbers:  # connections that this test has opened
        prepared.cluster.machine(number).forget()


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
        found = differences(
            twin.simulated(option, source, twin.with_longer(name)), real, twin.most_slack_s
        )
        assert sum("is down for" in one for one in found) == len(WEB), name
    turned = twin.simulated(option, with_priorities(source, TURNED))
    assert any("comes before" in one for one in differences(turned, real, None))


def test_evacuation_of_a_machine_goes_as_simulated(twin: MachineTwin) -> None:
    option, source = f"evacuate-primaries=node{HOME}", twin.source()
    simulated = twin.simulated(option, source)
    words = ("gnt-node", "evacuate", "-f", "--primary-only", f"node{HOME}")
    real, slack = twin.compared(simulated, lambda _: twin.cluster.ok(*words, timeout_s=LONG_S))
    facts = facts_of(real)
    assert not facts.downtimes
    assert {facts.homes[name] for name in WEB} == {twin.cluster.node(MIRROR).name}
    if slack is not None:
        wrong = twin.simulated(option, source, twin.with_longer("migration_s"))
        found = differences(wrong, real, twin.most_slack_s)
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
