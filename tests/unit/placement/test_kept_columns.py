"""Columns of instances that follow the descriptions of a cluster."""

from random import Random

import msgspec
import numpy as np
import placement_clusters as clusters

from ganeti.placement.state import Instances, KeptColumns, State


def test_columns_that_follow_descriptions_are_those_of_a_whole_look() -> None:
    random, kept = Random(1), KeptColumns()
    cluster = clusters.cluster(4, 3)
    more = list(clusters.cluster(8, 6).instances)
    for number in range(40):
        instances = [
            msgspec.structs.replace(one, memory=random.randrange(1, 4096), disks=(1.0,))
            if random.random() < 0.1
            else one
            for one in cluster.instances
        ]
        if number % 4 == 1:
            instances += [random.choice(more) for _ in range(2)]
        if number % 4 == 3:
            del instances[random.randrange(len(instances))]
        loads = {instances[0].name: (1.0, 2.0, 3.0, 4.0)} if number % 10 == 5 else {}
        cluster = msgspec.structs.replace(cluster, instances=instances, utilisation=loads)
        found, whole = kept.of(cluster), Instances(instances, cluster)
        for name in Instances._COLUMNS:
            assert np.array_equal(getattr(found, name), getattr(whole, name), equal_nan=True)


def test_instances_that_a_state_admits_are_not_kept() -> None:
    kept, cluster = KeptColumns(), clusters.cluster(4, 3)
    state = State(cluster, kept=kept)
    state.append(msgspec.structs.replace(cluster.instances[0], name="new"), 0)
    assert len(state.instances) == len(cluster.instances) + 1
    assert len(kept.of(cluster)) == len(cluster.instances)
