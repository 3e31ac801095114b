"""Restarting the host: who may, how, and that it needs no disk."""

import asyncio
import errno
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, NotMaster, StoreError
from ganeti.base.paths import Paths
from ganeti.model.objects import NodeUuid
from ganeti.node import powercycle
from ganeti.node import register as register_module
from ganeti.node.host_restart import restart_host
from ganeti.node.membership import CandidateCertificates
from ganeti.node.powercycle import Powercycle, host_powercycle
from ganeti.node.register import NodeRegister
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Nothing
from ganeti.store.register import Answer, MemoryRegister, Promise, Register

MASTER = "00000000-0000-4000-9000-0000000000b1"
FROM_MASTER = Call(epoch=3, master_uuid=MASTER)


async def anybody(_epoch: int, _master: str) -> None:
    return None


async def nobody(_epoch: int, _master: str) -> str:
    return "epoch 3 is over"


@pytest.mark.virtual_time
@pytest.mark.requirement("S32")
async def test_the_host_is_restarted_once_the_answer_is_on_its_way() -> None:
    restarted = asyncio.Event()
    one = Powercycle(anybody, restarted.set)
    answer = await one.powercycle(Nothing(), FROM_MASTER)
    assert answer.delay_s == powercycle.DELAY_S
    assert not restarted.is_set()
    await asyncio.sleep(answer.delay_s + 0.1)
    assert restarted.is_set()


@pytest.mark.virtual_time
async def test_only_the_master_restarts_a_host() -> None:
    restarted = asyncio.Event()
    with pytest.raises(NotMaster, match="is over"):
        await Powercycle(nobody, restarted.set).powercycle(Nothing(), FROM_MASTER)
    await asyncio.sleep(60)
    assert not restarted.is_set()


def test_trigger_file_restarts_the_host(tmp_path: Path) -> None:
    trigger = tmp_path / "sysrq-trigger"
    trigger.touch()
    restart_host(trigger, lambda: pytest.fail("not needed"))
    assert trigger.read_text() == "b"


def test_without_the_trigger_the_kernel_is_called(tmp_path: Path) -> None:
    called: list[bool] = []
    restart_host(tmp_path / "nosuch", lambda: called.append(True))
    assert called == [True]


def test_virtual_node_logs_a_missing_trigger_and_calls_no_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    restart_host(tmp_path / "nosuch", None)
    assert "No such file" in caplog.text


async def test_virtual_node_without_a_trigger_refuses_a_restart(tmp_path: Path) -> None:
    one = host_powercycle(Paths(tmp_path), anybody)
    with pytest.raises(HostError, match=r"a virtual node without .* cannot be restarted"):
        await one.powercycle(Nothing(), FROM_MASTER)


class FailingDisk:
    """A register whose disk fails, or hangs, from some moment on."""

    def __init__(self) -> None:
        self.register = MemoryRegister(Register("c", Promise(3, NodeUuid(MASTER))))
        self.has_failed = False

    def read(self) -> Register | None:
        return self._working().read()

    def decide(self, rule: object) -> Answer:
        return self._working().decide(rule)  # type: ignore[arg-type]  # passed on

    def _working(self) -> MemoryRegister:
        if self.has_failed:
            raise StoreError("cannot read the register: Input/output error")
        return self.register


@pytest.mark.requirement("S31")
async def test_a_master_is_known_although_the_disk_has_failed() -> None:
    disk = FailingDisk()
    register = NodeRegister(disk, lambda _epoch: [])
    try:
        assert await register.check_epoch(3, MASTER) is None
        disk.has_failed = True
        with pytest.raises(StoreError):
            await register.check_epoch(3, MASTER)
        assert await register.check_epoch_without_disk(3, MASTER) is None
        assert await register.check_epoch_without_disk(2, MASTER)
        assert await register.check_epoch_without_disk(3, "another")
    finally:
        await register.close()


@pytest.mark.requirement("S31")
async def test_a_master_is_known_although_the_disk_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "DISK_S", 0.01)
    register = NodeRegister(FailingDisk(), lambda _epoch: [])
    try:
        assert await register.check_epoch(3, MASTER) is None

        async def hang(_epoch: int, _master: str) -> str | None:
            await asyncio.Event().wait()
            return None

        monkeypatch.setattr(register, "check_epoch", hang)
        assert await register.check_epoch_without_disk(3, MASTER) is None
        assert await register.check_epoch_without_disk(2, MASTER)
    finally:
        await register.close()


@pytest.mark.requirement("S31")
async def test_node_that_never_saw_a_master_accepts_none() -> None:
    disk = FailingDisk()
    disk.has_failed = True
    register = NodeRegister(disk, lambda _epoch: [])
    try:
        assert await register.check_epoch_without_disk(3, MASTER)
    finally:
        await register.close()


@pytest.mark.requirement("S31", "A25")
@pytest.mark.parametrize("operation", ["stat", "read_text"])
@pytest.mark.parametrize(("number", "stays"), [(errno.EIO, True), (errno.ENOENT, False)])
def test_a_failing_disk_leaves_the_list_of_candidates_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, number: int, stays: bool
) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    listed = paths.data / "ssconf_master_candidates_certs"
    listed.write_text(f"{MASTER}={'ab' * 32}\n")
    allowed = CandidateCertificates(paths)
    assert allowed() == {"ab" * 32}
    listed.write_text(f"{MASTER}={'cd' * 32}\n\n")

    def fail(_path: Path, *_args: object, **_rest: object) -> None:
        raise OSError(number, "fails")

    monkeypatch.setattr(Path, operation, fail)
    assert bool(allowed()) is stays
