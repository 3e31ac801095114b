"""Records, socket names and logs of guests."""

from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.runtime import (
    LOG_KEPT,
    LOG_LIMIT,
    GuestFiles,
    Record,
    all_guest_files,
    boot_id,
)
from ganeti.model.instance_spec import InstanceSpec

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1", uuid=UUID, hypervisor="kvm", os="tiny", memory=96, vcpus=1, hvparams={}
)


@pytest.fixture
def files(tmp_path: Path) -> GuestFiles:
    found = GuestFiles.of(Paths(tmp_path), UUID)
    found.prepare()
    return found


def record() -> Record:
    return Record(
        instance=INSTANCE, argv=("qemu", "-S"), accelerator="tcg", boot_id=boot_id(), pid=7
    )


def test_a_record_is_read_as_it_was_written(files: GuestFiles) -> None:
    assert files.read() is None
    files.write(record())
    assert files.read() == record()
    files.forget()
    assert files.read() is None
    files.forget()


def test_a_damaged_record_is_refused_and_names_the_remedy(files: GuestFiles) -> None:
    files.record.write_bytes(b'{"instance": 3}')
    with pytest.raises(HypervisorError, match=r"damaged.*end it"):
        files.read()


def test_all_guests_with_a_record_are_found(tmp_path: Path, files: GuestFiles) -> None:
    assert list(all_guest_files(Paths(tmp_path / "none"))) == []
    files.write(record())
    assert list(all_guest_files(Paths(tmp_path))) == [files]


def test_a_directory_whose_sockets_would_have_too_long_names_is_refused(tmp_path: Path) -> None:
    GuestFiles.of(Paths(Path("/short")), UUID).check_lengths()
    with pytest.raises(HypervisorError, match="shorter name"):
        GuestFiles.of(Paths(tmp_path / ("x" * 100)), UUID).check_lengths()


def test_old_sockets_and_logs_are_gone_before_a_start(files: GuestFiles) -> None:
    files.monitor.touch()
    files.console_log.write_text("old")
    files.prepare()
    assert not files.monitor.exists()
    assert files.console_log.read_text() == ""
    assert files.console_log.stat().st_mode & 0o777 == 0o600
    assert files.directory.stat().st_mode & 0o777 == 0o700


def test_logs_that_have_grown_keep_their_end(files: GuestFiles) -> None:
    for path in (files.console_log, files.qemu_log):
        with path.open("wb") as log:
            log.truncate(LOG_LIMIT + 1)
            log.seek(0, 2)
            log.write(b"the end")
    for _ in range(2):
        files.shorten_logs()
        for path in (files.console_log, files.qemu_log):
            data = path.read_bytes()
            assert len(data) == LOG_KEPT
            assert data.endswith(b"the end")
    files.qemu_log.unlink()
    files.shorten_logs()
