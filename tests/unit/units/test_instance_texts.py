"""The instances in messages to allocators follow the configuration."""

from dataclasses import replace
from random import Random

import msgspec

from ganeti.config.snapshot import REMEMBERED, Snapshot
from ganeti.units.instance_texts import KeptTexts
from tests.unit.config.sample import (
    changed_sample,
    sample_cluster,
    sample_instance,
    sample_node,
    sample_snapshot,
)


def test_texts_that_follow_changes_are_those_of_a_whole_look() -> None:
    random, kept = Random(1), KeptTexts()
    snapshot = sample_snapshot(4)
    for number in range(100):
        found, whole = kept.of(snapshot), KeptTexts().of(snapshot)
        assert {name: bytes(one) for name, one in found.texts.items()} == {
            name: bytes(one) for name, one in whole.texts.items()
        }
        assert found.uses == whole.uses
        assert +found.memory == +whole.memory
        assert +found.up_memory == +whole.up_memory
        steps = REMEMBERED + 1 if number == 50 else random.randrange(4)
        for _ in range(steps):
            snapshot = changed_sample(snapshot, random)


def test_text_of_an_instance_is_kept_until_it_or_the_cluster_changes() -> None:
    kept, first = KeptTexts(), sample_snapshot(3)
    before = kept.of(first).texts
    second = changed_sample(first, Random(1))
    after = kept.of(second).texts
    same = [name for name, one in after.items() if before.get(name) is one]
    assert len(same) == 2
    other = msgspec.structs.replace(second.cluster, name="other.example.com")
    anew = kept.of(replace(second, cluster=other)).texts
    assert not any(anew[name] is after[name] for name in anew)


def test_instance_that_takes_the_name_of_another_has_its_text() -> None:
    kept = KeptTexts()
    kept.of(sample_snapshot(2))
    one, two = sample_instance(1), sample_instance(2)
    instances = [sample_instance(1, name=two.name), sample_instance(2, name=one.name)]
    swapped = Snapshot.of(2, sample_cluster(), nodes=[sample_node(1)], instances=instances)
    assert kept.of(swapped).texts.keys() == {one.name, two.name}
