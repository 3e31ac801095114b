"""Who has the guest, by what both ends say."""

import pytest

from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.units.instance.reconcile_migration import decide_owner

pytestmark = pytest.mark.requirement("G5", "F20")

HAVING = ("running", "paused", "migrating", "shutdown")


def end(state: str | None) -> RunningInstance | None:
    if state is None:
        return None
    return RunningInstance(
        name="web1", uuid="u", hypervisor="fake", memory=1, vcpus=1, state=state, cpu_time_s=0.0
    )


@pytest.mark.parametrize(
    ("source", "target", "owner"),
    [
        ("running", None, "source"),
        ("running", "incoming", "source"),
        ("migrating", "incoming", "source"),
        ("paused", "incoming", "source"),
        ("postmigrate", None, "source"),
        ("postmigrate", "incoming", "source"),
        ("postmigrate", "running", "target"),
        ("postmigrate", "paused", "target"),
        (None, "running", "target"),
        (None, "incoming", "target"),
        (None, None, "nowhere"),
        ("running", "running", "both"),
        ("paused", "running", "both"),
        ("migrating", "paused", "both"),
    ],
)
def test_the_guest_is_where_it_runs_or_where_it_came_from(
    source: str | None, target: str | None, owner: str
) -> None:
    assert decide_owner(end(source), end(target)) == owner


@pytest.mark.parametrize("source", HAVING)
@pytest.mark.parametrize("target", HAVING)
def test_two_guests_are_never_reconciled(source: str, target: str) -> None:
    assert decide_owner(end(source), end(target)) == "both"


@pytest.mark.parametrize(
    ("source", "target", "owner"),
    [
        ("postmigrate", None, "nowhere"),
        ("postmigrate", "incoming", "source"),
        ("postmigrate", "running", "target"),
        ("running", None, "source"),
        (None, "incoming", "target"),
        (None, None, "nowhere"),
    ],
)
def test_once_handed_over_a_target_that_is_gone_may_have_run_the_guest(
    source: str | None, target: str | None, owner: str
) -> None:
    assert decide_owner(end(source), end(target), handed_over=True) == owner
