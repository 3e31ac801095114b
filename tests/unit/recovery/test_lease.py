"""A lease is as old as its token; the watchdog resets a machine whose guests outlive it."""

import pytest

from ganeti.model.recovery import Token
from ganeti.recovery.lease import DEVICE_S, Guard, GuardAction, NodeLease
from ganeti.recovery.times import LEASE_S, MAJORITY_S, MARGIN_S, RESET_S, reset_by


@pytest.mark.requirement("D7")
def test_a_lease_counts_from_the_sending_of_its_token() -> None:
    lease = NodeLease("boot")
    token = lease.issue(100.0)
    assert not lease.is_valid(100.0)
    assert lease.renew(token)  # whenever it comes back
    assert lease.is_valid(100.0 + LEASE_S - 0.1)
    assert not lease.is_valid(100.0 + LEASE_S)


def test_an_older_token_and_one_of_another_boot_renew_nothing() -> None:
    lease = NodeLease("boot")
    lease.renew(Token("boot", 100.0))
    assert not lease.renew(Token("boot", 99.0))
    assert not lease.renew(Token("earlier boot", 200.0))
    assert not lease.renew(None)
    assert lease.ends_at == 100.0 + LEASE_S


def actions(guard: Guard, *, has_guests: bool, seconds: int) -> dict[int, list[GuardAction]]:
    return {
        now: done
        for now in range(seconds)
        if (done := guard.tick(float(now), has_guests=has_guests)) != [GuardAction.PET]
    }


def test_a_machine_without_guests_is_never_reset() -> None:
    assert actions(Guard(ends_at=5.0), has_guests=False, seconds=100) == {}


@pytest.mark.requirement("D7")
def test_guests_that_outlive_the_lease_are_killed_and_then_the_machine_is_reset() -> None:
    seen = actions(Guard(ends_at=5.0), has_guests=True, seconds=22)
    assert min(seen) == 5
    assert all(GuardAction.KILL in done for done in seen.values())
    last_pet = max(now for now, done in seen.items() if GuardAction.PET in done)
    assert (
        last_pet + DEVICE_S <= 5.0 + RESET_S
    )  # the device resets it in time, if nothing else does
    assert min(now for now, done in seen.items() if GuardAction.RESET in done) <= 5.0 + RESET_S


@pytest.mark.parametrize(
    ("token_at", "elected_at", "seconds"),
    [
        (100.0, 0.0, 100.0 + LEASE_S + RESET_S + MARGIN_S),
        (100.0, 99.0, 99.0 + MAJORITY_S + LEASE_S + RESET_S + MARGIN_S),
        (float("-inf"), 50.0, 50.0 + MAJORITY_S + LEASE_S + RESET_S + MARGIN_S),
    ],
)
@pytest.mark.requirement("D6", "D7")
def test_the_waiting_time_counts_from_the_last_token_that_any_master_had(
    token_at: float, elected_at: float, seconds: float
) -> None:
    assert reset_by(token_at, elected_at) == seconds
