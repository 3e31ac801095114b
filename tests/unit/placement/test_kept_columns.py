"""Rows of instances that follow the descriptions of a cluster."""

from random import Random

import msgspec
import numpy as np
import placement_clusters as clusters

from ganeti.placement.small.cluster import Small
from ganeti.placement.state import MOST_KEPT, Instances, KeptColumns, State


def test_columns_that_follow_descriptions_are_those_of_a_whole_look() -> None:
    random, kept = Random(1), KeptColumns()
    cluster = clusters.cluster(4, 3)
    more = list(clusters.cluster(4, 6).instances)
    for number in range(40):
        instances = [
            msgspec.structs.replace(
                one,
                name=f"{one.name}x" if random.random() < 0.1 else one.name,
                memory=random.randrange(1, 4096),
                disks=(1.0,),
                primary=random.choice(cluster.nodes).name,
                secondary=random.choice([*(node.name for node in cluster.nodes), ""]),
            )
            if random.random() < 0.1
            else one
            for one in cluster.instances
        ]
        if number % 4 == 1:
            instances += [random.choice(more) for _ in range(2)]
        if number % 4 == 3:
            del instances[random.randrange(len(instances))]
        loads = {instances[0].name: (1.0, 2.0, 3.0, 4.0)} if number % 10 == 5 else {}
        nodes = cluster.nodes[::-1] if number % 10 == 8 else cluster.nodes
        cluster = msgspec.structs.replace(
            cluster, nodes=nodes, instances=instances, utilisation=loads
        )
        found, whole = kept.of(cluster), KeptColumns().of(cluster)
        assert found.names == whole.names == [one.name for one in instances]
        for one, primary, secondary in zip(instances, found.primary, found.secondary, strict=True):
            assert nodes[primary].name == one.primary
            assert (nodes[secondary].name if secondary >= 0 else "") == one.secondary
        for name in Instances._COLUMNS:
            column = getattr(found.columns, name)
            assert np.array_equal(column, getattr(whole.columns, name), equal_nan=True)


def test_facts_of_lists_that_are_kept_are_those_of_a_new_look() -> None:
    kept, cluster = KeptColumns(), clusters.cluster(3, 2)
    loads = {one.name: (1.0, 2.0, 3.0, 4.0) for one in cluster.instances}
    for number in range(100):
        utilisation = loads if number % 3 == 1 else {}
        instances = list(cluster.instances)
        instances[number % len(instances)] = msgspec.structs.replace(
            instances[number % len(instances)], memory=float(100 + number)
        )
        cluster = msgspec.structs.replace(cluster, instances=instances, utilisation=utilisation)
        state = State(cluster, kept=kept)
        found, whole = Small.of(state), Small.of(State(cluster))
        assert found is not None
        assert whole is not None
        assert found.amounts == whole.amounts
        assert len(state.memo) <= (MOST_KEPT + 1) * (len(instances) + 1)


def test_instances_that_a_state_admits_are_not_kept() -> None:
    kept, cluster = KeptColumns(), clusters.cluster(4, 3)
    state = State(cluster, kept=kept)
    state.append(msgspec.structs.replace(cluster.instances[0], name="new"), 0)
    assert len(state.instances) == len(cluster.instances) + 1
    state.settle_at(0, 1, 0)
    rows = kept.of(cluster)
    assert len(rows.names) == len(rows.columns) == len(cluster.instances)
    whole = KeptColumns().of(cluster)
    assert rows.primary.tolist() == whole.primary.tolist()
    assert rows.secondary.tolist() == whole.secondary.tolist()
