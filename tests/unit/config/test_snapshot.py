"""What has changed since an earlier snapshot is known without a look at all objects."""

from random import Random

from ganeti.config.snapshot import REMEMBERED, differing, differing_instances
from tests.unit.config.sample import changed_sample, sample_snapshot


def test_the_changes_between_two_snapshots_are_those_of_a_comparison() -> None:
    random = Random(1)
    history = [sample_snapshot(4)]
    for _ in range(60):
        history.append(changed_sample(history[-1], random))
    for now in (1, 20, 60):
        for then in range(0, now + 1, 7):
            old, new = history[then], history[now]
            assert new.changed_since(old) is not None
            found = set(differing_instances(old, new))
            assert found == set(differing(old.instances, new.instances))


def test_a_branch_that_was_not_written_does_not_count() -> None:
    """A refused change is no part of the next snapshot, which is made from its predecessor."""
    random, first = Random(2), sample_snapshot(4)
    refused, second = changed_sample(first, random), changed_sample(first, random)
    assert second.changed_since(refused) is None
    assert differing_instances(refused, second) == differing(refused.instances, second.instances)


def test_a_snapshot_that_is_too_old_is_compared_object_by_object() -> None:
    random = Random(3)
    first = last = sample_snapshot(4)
    for _ in range(REMEMBERED + 1):
        last = changed_sample(last, random)
    assert last.changed_since(first) is None
    assert set(differing_instances(first, last)) == set(differing(first.instances, last.instances))
    assert len(last.changes) == REMEMBERED
