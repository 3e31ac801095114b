"""History files on a disk."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.history import format as form
from ganeti.history.files import FILES_LIMIT, NODE, Histories, is_name
from ganeti.model.figures import FIGURES, RINGS, Values

NOW = 1_800_000_000
FINE, MINUTES, QUARTERS = RINGS
GUEST = "0b7c9a3e-1111-2222-3333-444455556666"


def all_of(value: float | None) -> Values:
    return (value,) * len(FIGURES)


@pytest.fixture
def histories(tmp_path: Path) -> Histories:
    return Histories(tmp_path / "history")


@pytest.fixture(autouse=True)
def _closed(histories: Histories) -> object:
    yield
    histories.close()


def times(histories: Histories, name: str = GUEST, end: float = NOW + 3000) -> list[int]:
    return [row.time for row in histories.read(name, FINE, 0, end)]


def test_an_hour_of_samples_becomes_minutes_and_quarters(
    histories: Histories, tmp_path: Path
) -> None:
    for step in range(0, 3605, 5):
        histories.record(NOW + step + 1.5, {GUEST: all_of(step // 60)})
    assert len(times(histories, end=NOW + 3600)) == FINE.slots
    minutes = list(histories.read(GUEST, MINUTES, NOW, NOW + 3600))
    assert [row.time for row in minutes] == [NOW + 60 * one for one in range(60)]
    assert [row.values[0] for row in minutes] == list(range(60))
    quarters = list(histories.read(GUEST, QUARTERS, NOW, NOW + 3600))
    assert [(row.time, row.values[0]) for row in quarters] == [
        (NOW, 7.0), (NOW + 900, 22.0), (NOW + 1800, 37.0), (NOW + 2700, 52.0),
    ]  # fmt: skip
    [file] = (tmp_path / "history").iterdir()
    assert file.stat().st_size == form.FILE_BYTES
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_restart_in_a_minute_loses_nothing_of_it(histories: Histories, tmp_path: Path) -> None:
    histories.record(NOW, {GUEST: all_of(10.0)})
    histories.close()
    later = Histories(tmp_path / "history")
    later.record(NOW + 30, {GUEST: all_of(20.0)})
    later.record(NOW + 60, {GUEST: all_of(0.0)})
    [minute] = later.read(GUEST, MINUTES, 0, NOW + 3000)
    assert minute == (NOW, all_of(15.0))
    later.close()


def test_a_daemon_that_was_down_for_long_ends_the_minute_of_its_last_sample(
    histories: Histories, tmp_path: Path
) -> None:
    histories.record(NOW, {GUEST: all_of(10.0)})
    histories.close()
    later = Histories(tmp_path / "history")
    later.record(NOW + 3000, {GUEST: all_of(0.0)})
    assert [row.time for row in later.read(GUEST, MINUTES, 0, NOW + 3000)] == [NOW]
    later.close()


def test_a_range_has_only_its_own_steps(histories: Histories) -> None:
    for step in range(0, 60, 5):
        histories.record(NOW + step, {GUEST: all_of(1.0)})
    found = histories.read(GUEST, FINE, NOW + 11, NOW + 30)
    assert [row.time - NOW for row in found] == [15, 20, 25, 30]
    assert histories.read(GUEST, FINE, NOW + 30, NOW) == []
    assert histories.read("unknown", FINE, 0, NOW) == []


@pytest.mark.parametrize("jump", [-86_400, -100, 86_400, 10 * 365 * 86_400])
def test_a_step_of_the_clock_stops_nothing(histories: Histories, jump: int) -> None:
    for step in range(0, 300, 5):
        histories.record(NOW + step, {GUEST: all_of(1.0)})
    for step in range(300, 600, 5):
        histories.record(NOW + step + jump, {GUEST: all_of(2.0)})
    for step in range(600, 660, 5):
        histories.record(NOW + step, {GUEST: all_of(3.0)})
    now = histories.read(GUEST, FINE, NOW + 600, NOW + 660)
    assert [row.values[0] for row in now] == [3.0] * 12


@pytest.mark.parametrize("now", [-5.0, form.END_S + 1.0])
def test_an_impossible_time_records_nothing(histories: Histories, now: float) -> None:
    histories.record(now, {GUEST: all_of(1.0)})
    assert times(histories) == []


def damaged(path: Path) -> None:
    path.write_bytes(b"x" * form.FILE_BYTES)


def short(path: Path) -> None:
    os.truncate(path, form.FILE_BYTES - 1)


def of_another(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(form.header("another") + content[form.HEADER_BYTES :])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [damaged, short, of_another, empty, link, fifo])
def test_a_hostile_or_damaged_file_is_begun_again(
    histories: Histories, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    histories.record(NOW, {GUEST: all_of(1.0)})
    histories.close()
    spoil(tmp_path / "history" / GUEST)
    later = Histories(tmp_path / "history")
    assert later.read(GUEST, FINE, 0, NOW + 3000) == []
    later.record(NOW + 5, {GUEST: all_of(2.0)})
    assert [row.time for row in later.read(GUEST, FINE, 0, NOW + 3000)] == [NOW + 5]
    later.close()


def test_a_directory_instead_of_a_file_is_an_error_and_others_are_recorded(
    histories: Histories, tmp_path: Path
) -> None:
    (tmp_path / "history" / GUEST / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        histories.record(NOW, {GUEST: all_of(1.0), NODE: all_of(1.0)})
    assert times(histories, name=NODE) == [NOW]
    assert times(histories) == []


def test_a_full_disk_is_an_error_and_the_next_sample_is_recorded(
    histories: Histories, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.record(NOW, {GUEST: all_of(1.0)})

    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            histories.record(NOW + 5, {GUEST: all_of(1.0)})
        with pytest.raises(OSError, match="No space"):
            histories.record(NOW + 5, {GUEST: all_of(1.0), NODE: all_of(1.0)})
    histories.record(NOW + 10, {GUEST: all_of(1.0), NODE: all_of(1.0)})
    assert times(histories) == [NOW, NOW + 10]
    assert times(histories, name=NODE) == [NOW + 10]


def test_a_file_that_was_removed_is_made_again(histories: Histories, tmp_path: Path) -> None:
    histories.record(NOW, {GUEST: all_of(1.0)})
    (tmp_path / "history" / GUEST).unlink()
    histories.record(NOW + 5, {GUEST: all_of(1.0)})
    assert times(histories) == [NOW + 5]


def test_a_forgotten_history_is_gone(histories: Histories, tmp_path: Path) -> None:
    histories.record(NOW, {GUEST: all_of(1.0)})
    histories.forget(GUEST)
    histories.forget(GUEST)
    assert list((tmp_path / "history").iterdir()) == []


def test_only_old_files_of_absent_guests_and_rests_are_pruned(
    histories: Histories, tmp_path: Path
) -> None:
    directory = tmp_path / "history"
    histories.record(NOW, {"old": all_of(1.0), "young": all_of(1.0), "present": all_of(1.0)})
    histories.record(NOW, {"present": all_of(1.0)})
    (directory / "rest.new").write_bytes(b"")
    for name, age in {"old": 32, "young": 30, "present": 40}.items():
        os.utime(directory / name, (NOW - age * 86_400,) * 2)
    histories.prune(NOW)
    assert sorted(path.name for path in directory.iterdir()) == ["present", "young"]
    Histories(tmp_path / "none").prune(NOW)


def test_the_number_of_open_files_is_bounded(
    histories: Histories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.history.files.FILES_LIMIT", 3)
    histories.record(NOW, {f"guest{number}": all_of(1.0) for number in range(5)})
    assert len(list((tmp_path / "history").iterdir())) == 3
    assert FILES_LIMIT == 1024


@given(st.text(max_size=40))
def test_a_name_is_never_another_path(name: str) -> None:
    if is_name(name):
        assert Path(name).name == name
        assert not name.endswith(".new")


@pytest.mark.parametrize("name", ["", "..", "a/b", "x\n", "A", ".hidden", "a" * 37, "ü"])
def test_a_wrong_name_is_refused(histories: Histories, name: str) -> None:
    with pytest.raises(ValueError, match="name of a history"):
        histories.forget(name)
