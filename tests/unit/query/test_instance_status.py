import pytest

from ganeti.model.names import AdminState, InstanceStatus
from ganeti.query.instance_status import PrimaryNode, instance_status

UP, DOWN, OFFLINE = AdminState.UP, AdminState.DOWN, AdminState.OFFLINE


@pytest.mark.parametrize(
    ("wanted", "primary", "elsewhere", "status"),
    [
        (UP, PrimaryNode.RUNS, False, "running"),
        (UP, PrimaryNode.RUNS, True, "running"),
        (UP, PrimaryNode.STANDS_STILL, False, "ERROR_down"),
        (UP, PrimaryNode.STANDS_STILL, True, "ERROR_down"),
        (DOWN, PrimaryNode.STANDS_STILL, False, "ERROR_up"),
        (UP, PrimaryNode.HAS_NOT, False, "ERROR_down"),
        (UP, PrimaryNode.SHUT_DOWN, False, "USER_down"),
        (UP, PrimaryNode.HAS_NOT, True, "ERROR_wrongnode"),
        (DOWN, PrimaryNode.HAS_NOT, True, "ERROR_wrongnode"),
        (DOWN, PrimaryNode.HAS_NOT, False, "ADMIN_down"),
        (DOWN, PrimaryNode.SHUT_DOWN, False, "ADMIN_down"),
        (DOWN, PrimaryNode.RUNS, False, "ERROR_up"),
        (OFFLINE, PrimaryNode.HAS_NOT, False, "ADMIN_offline"),
        (OFFLINE, PrimaryNode.RUNS, False, "ERROR_up"),
        (UP, PrimaryNode.OFFLINE, False, "ERROR_nodeoffline"),
        (DOWN, PrimaryNode.OFFLINE, True, "ERROR_nodeoffline"),
        (UP, PrimaryNode.SILENT, False, "ERROR_nodedown"),
        (DOWN, PrimaryNode.SILENT, False, "ERROR_nodedown"),
    ],
)
def test_the_status_shows_desired_and_actual_state(
    wanted: AdminState, primary: PrimaryNode, elsewhere: bool, status: str
) -> None:
    assert instance_status(wanted, primary, runs_elsewhere=elsewhere).value == status


@pytest.mark.parametrize(
    ("wanted", "primary", "status"),
    [
        (DOWN, PrimaryNode.HAS_NOT, "USER_down"),
        (DOWN, PrimaryNode.SHUT_DOWN, "USER_down"),
        (DOWN, PrimaryNode.RUNS, "ERROR_up"),
        (DOWN, PrimaryNode.STANDS_STILL, "ERROR_up"),
        (DOWN, PrimaryNode.OFFLINE, "ERROR_nodeoffline"),
        (UP, PrimaryNode.HAS_NOT, "ERROR_down"),
        (OFFLINE, PrimaryNode.HAS_NOT, "ADMIN_offline"),
    ],
)
def test_what_its_user_shut_down_stays_user_down(
    wanted: AdminState, primary: PrimaryNode, status: str
) -> None:
    assert instance_status(wanted, primary, runs_elsewhere=False, by_user=True).value == status


def test_every_combination_has_a_status_and_every_status_a_combination() -> None:
    found = {
        instance_status(wanted, primary, runs_elsewhere=elsewhere)
        for wanted in AdminState
        for primary in PrimaryNode
        for elsewhere in (False, True)
    }
    assert found == set(InstanceStatus)
