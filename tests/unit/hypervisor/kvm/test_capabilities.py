"""What QEMU is told it can do in a migration, and which of it `migration_caps` may add."""

from collections.abc import Mapping
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm import migration
from ganeti.hypervisor.kvm.capabilities import (
    ALLOWED,
    NEEDED,
    capability_problems,
    names,
    set_capabilities,
)
from ganeti.hypervisor.kvm.migration import Destination, Limits
from ganeti.hypervisor.kvm.migration_tls import Link
from tests.support.single_questions import SingleQuestions

OLD_QEMU = (*NEEDED, "dirty-bitmaps", "xbzrle", "pause-before-switchover", "events")


class Qemu(SingleQuestions):
    """Remembers what each capability was set to last."""

    def __init__(self) -> None:
        self.states: dict[str, bool] = dict.fromkeys(OLD_QEMU, False)

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        if command == "query-migrate-capabilities":
            return [{"capability": name, "state": on} for name, on in self.states.items()]
        if command == "migrate-set-capabilities":
            assert arguments is not None
            self.states |= {one["capability"]: one["state"] for one in arguments["capabilities"]}
        if command == "query-migrate":
            inet = {"type": "inet", "host": "h", "port": "8102"}
            figures = {"total-time": 1, "downtime": 1, "socket-address": [inet]}
            return figures | {"status": "completed"}
        return {"status": "running"}

    @property
    def on(self) -> set[str]:
        return {name for name, state in self.states.items() if state}


async def test_both_ends_get_the_same_further_capabilities() -> None:
    target, source, further = Qemu(), Qemu(), names("xbzrle:events")
    await migration.listen(target, "h", 8102, Link("node1"), further)
    await migration.send(source, Destination("h", 8102, Link("n")), Limits(32, 30, further))
    assert source.on == target.on == {*NEEDED, "dirty-bitmaps", "xbzrle", "events"}


async def test_what_an_attempt_before_has_set_is_taken_back() -> None:
    qemu = Qemu()
    await set_capabilities(qemu, further=["xbzrle"], pauses=True)
    assert qemu.on == {*NEEDED, "dirty-bitmaps", "xbzrle", "pause-before-switchover"}
    await set_capabilities(qemu, bitmaps=False)
    assert qemu.on == set(NEEDED)


async def test_a_capability_that_this_qemu_lacks_is_named_and_nothing_is_set() -> None:
    qemu = Qemu()
    with pytest.raises(HypervisorError, match="migration_caps: this QEMU does not support multifd"):
        await set_capabilities(qemu, further=["multifd", "xbzrle"])
    assert qemu.on == set()


@pytest.mark.parametrize(
    "name", ["nosuch", "postcopy-ram", "release-ram", "block", "x-ignore-shared", "zero-copy-send"]
)
def test_what_breaks_the_promises_of_a_migration_or_is_unknown_is_refused(name: str) -> None:
    (problem,) = capability_problems(f"xbzrle:{name}")
    assert problem.startswith(f"migration_caps: {name} cannot be used")


def test_two_that_qemu_does_not_take_together_are_refused() -> None:
    (problem,) = capability_problems("multifd:xbzrle")
    assert problem == "migration_caps: multifd and xbzrle cannot be used together"


def test_nothing_and_each_alone_are_taken() -> None:
    assert [capability_problems(name) for name in ("", *ALLOWED)] == [[]] * (1 + len(ALLOWED))
