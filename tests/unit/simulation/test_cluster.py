"""Whole clusters in virtual time: the real master, simulated nodes."""

from ganeti.model.names import JobStatus
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.example import configuration, instance_name, node_name
from ganeti.simulation.trace import Kind
from tests.unit.units.opcodes import create


def cluster_of(nodes: int = 5, instances: int = 10, **more: object) -> SimulatedCluster:
    return SimulatedCluster(configuration(nodes, instances), seed=1, **more)  # type: ignore[arg-type]  # any of its options


def where(cluster: SimulatedCluster, name: str) -> list[str]:
    return [
        node.name
        for node in cluster.nodes.values()
        if any(guest.spec.name == name for guest in node.guests.values())
    ]


def test_instances_of_a_lost_node_run_elsewhere() -> None:
    async def lose_a_node(cluster: SimulatedCluster) -> None:
        await cluster.run_for(60)
        lost = [one.spec.name for one in cluster.nodes[node_name(4)].guests.values()]
        cluster.fail_node(node_name(4))
        await cluster.run_for(180)
        assert lost == [instance_name(4), instance_name(9)]
        for name in lost:
            assert len(where(cluster, name)) == 1

    cluster = cluster_of()
    cluster.run(lose_a_node)
    downtimes = cluster.trace.downtimes()
    assert [one.instance for one in downtimes] == [instance_name(4), instance_name(9)]
    assert all(one.ended is not None and one.ended - one.began < 60 for one in downtimes)
    kinds = [
        event.kind for event in cluster.trace.of(Kind.NODE_LOST, Kind.POWER_CUT, Kind.NODE_OFFLINE)
    ]
    assert kinds == [Kind.NODE_LOST, Kind.POWER_CUT, Kind.NODE_OFFLINE]


def test_job_of_an_administrator_runs() -> None:
    async def stop_one(cluster: SimulatedCluster) -> JobStatus:
        job = await cluster.submit(OpInstanceShutdown(instance_name=instance_name(1)))
        return (await cluster.finished(job)).status

    cluster = cluster_of()
    assert cluster.run(stop_one) is JobStatus.SUCCESS
    assert [one.why for one in cluster.trace.downtimes()] == ["it was shut down"]
    jobs = cluster.trace.of(Kind.JOB_QUEUED, Kind.JOB_RUNS, Kind.JOB_ENDED)
    assert [event.kind for event in jobs] == [Kind.JOB_QUEUED, Kind.JOB_RUNS, Kind.JOB_ENDED]


def test_master_reads_its_own_hooks_without_a_call() -> None:
    async def stop_one(cluster: SimulatedCluster) -> None:
        assert cluster.master is not None
        asked = cluster.master.rpc.timings
        await cluster.finished(
            await cluster.submit(OpInstanceShutdown(instance_name=instance_name(1)))
        )
        assert "hooks_list" not in asked
        await cluster.finished(
            await cluster.submit(OpInstanceShutdown(instance_name=instance_name(2)))
        )
        assert "hooks_list" in asked

    cluster_of().run(stop_one)


def test_skipped_heartbeats_change_nothing() -> None:
    async def happen(cluster: SimulatedCluster) -> float:
        await cluster.run_for(60)
        name = instance_name(1)
        await cluster.finished(await cluster.submit(OpInstanceShutdown(instance_name=name)))
        await cluster.finished(await cluster.submit(OpInstanceStartup(instance_name=name)))
        await cluster.run_for(300)
        for number in range(6):
            op = create(f"new{number}.example.com", iallocator="hail", pnode=None, nics=[])
            await cluster.finished(await cluster.submit(op))
            await cluster.run_for(1 + 0.3 * number)
        await cluster.run_for(60)
        assert all(one.under_lease for one in cluster.snapshot.instances.values())
        cluster.fail_node(node_name(4))
        await cluster.run_for(600)
        cluster.return_node(node_name(4))
        await cluster.run_for(600)
        node = cluster.nodes[node_name(2)]
        node.crash_guest(next(iter(node.guests)))
        await cluster.run_for(300)
        cluster.cut([node_name(3)], cluster.nodes)
        await cluster.run_for(60)
        cluster.heal([node_name(3)], cluster.nodes)
        await cluster.run_for(600)
        return cluster.world.recovery_time.monotonic()

    def told(*, skips: bool) -> tuple[list[tuple[Kind, str, str]], list[float], float]:
        cluster = cluster_of(skips_heartbeats=skips)
        beating_s = cluster.run(happen)
        events = sorted(cluster.trace.events, key=lambda one: (one.kind, one.name, one.at))
        found = [(one.kind, one.name, one.node) for one in events]
        return found, [one.at for one in events], beating_s

    whole, whole_times, whole_s = told(skips=False)
    short, short_times, short_s = told(skips=True)
    assert short == whole
    assert short_s < 0.5 * whole_s
    assert max(abs(one - other) for one, other in zip(whole_times, short_times, strict=True)) < 5
