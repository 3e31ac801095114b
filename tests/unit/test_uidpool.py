"""The user-id pool: definitions, and ids that no two processes ever share."""

import fcntl
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import ssconf, uidpool
from ganeti.base.errors import HostError, InputError, PrereqError
from ganeti.base.paths import Paths

SEEDS_REQUEST = """
from ganeti import ssconf
from ganeti import uidpool

# Get list of all user-ids in the uid-pool from ssconf
ss = ssconf.SimpleStore()
uid_pool = uidpool.ParseUidPool(ss.GetUidPool(), separator="\\n")
all_uids = set(uidpool.ExpandUidPool(uid_pool))

uid = uidpool.RequestUnusedUid(all_uids)
try:
  start_a_process(uid)
  # Once the process is started, we can release the file lock
  uid.Unlock()
except Exception as err:
  # Return the UID to the pool
  uidpool.ReleaseUid(uid)
"""
SEEDS_RELEASE = """
from ganeti import uidpool

uid = get_the_uid_the_process_is_running_under()
stop_the_process()
uidpool.ReleaseUid(uid)
"""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Ids belong to the whole host: a process of one of these tests would take an id from another beside it."""
    descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lock files of a node with an own prefix are."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    return uidpool.lock_directory()


def nobody_runs() -> set[int]:
    return {0}


@pytest.mark.requirement("S107", "S110")
@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("", []),
        ("  ", []),
        ("1000", [(1000, 1000)]),
        ("1000-1002,2000", [(1000, 1002), (2000, 2000)]),
        (" 2000 , 1000-1002 ", [(1000, 1002), (2000, 2000)]),
        ("1-1", [(1, 1)]),
        ("4294967294", [(4294967294, 4294967294)]),
    ],
)
def test_a_definition_is_ids_and_ranges(text: str, pool: list[tuple[int, int]]) -> None:
    assert uidpool.ParseUidPool(text) == pool
    assert uidpool.ParseUidPool(text.replace(",", "\n"), separator="\n") == pool


@pytest.mark.requirement("S107", "G24")
@pytest.mark.parametrize(
    "text",
    [
        *("5-1", "1-2-3", "x", "1,,2", ",1", "-1", "1-", "0", "0-5", "+5", "1e3", "1.0", "\u0661"),
        *("4294967295", "99999999999", "1000-1002,1002-1004", "1000,1000", "65534", "65000-66000"),
        "1000-99999999",
    ],
)
def test_a_wrong_definition_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InputError) as caught:
        uidpool.ParseUidPool(text)
    assert caught.value.field == "uid_pool"


@pytest.mark.requirement("S110")
def test_a_pool_is_expanded_with_both_ends() -> None:
    assert uidpool.ExpandUidPool([(1000, 1002), (2000, 2000)]) == [1000, 1001, 1002, 2000]


pools = st.sets(st.integers(1, 40)).map(
    lambda uids: [(uid * 10, uid * 10 + uid % 9) for uid in sorted(uids)]
)


@given(pools)
def test_what_is_formatted_is_read_back(pool: list[tuple[int, int]]) -> None:
    assert uidpool.ParseUidPool(uidpool.FormatUidPool(pool)) == pool


@given(pools, st.integers(1, 400), st.integers(0, 30))
def test_adding_and_removing_are_those_of_sets(
    pool: list[tuple[int, int]], low: int, more: int
) -> None:
    before, given_range = set(uidpool.ExpandUidPool(pool)), [(low, low + more)]
    wanted = set(uidpool.ExpandUidPool(given_range))
    if before & wanted:
        with pytest.raises(InputError, match="overlap"):
            uidpool.AddToUidPool(pool, given_range)
    else:
        added = uidpool.AddToUidPool(pool, given_range)
        assert set(uidpool.ExpandUidPool(added)) == before | wanted
    if wanted <= before:
        removed = uidpool.RemoveFromUidPool(pool, given_range)
        assert set(uidpool.ExpandUidPool(removed)) == before - wanted
    else:
        with pytest.raises(InputError, match="not in the pool"):
            uidpool.RemoveFromUidPool(pool, given_range)


@pytest.mark.requirement("S101", "S104", "S110", "S112")
def test_the_examples_of_the_seed_run_as_they_stand(directory: Path) -> None:
    pool = {"uid_pool": "61000-61002\n61005"}
    ssconf.write_set(Paths.from_environment(), 1, pool)
    started: list[int] = []
    names: dict[str, object] = {"start_a_process": lambda uid: started.append(uid.GetUid())}
    exec(compile(SEEDS_REQUEST, "seed", "exec"), names)  # noqa: S102 - a text of this file
    assert names["all_uids"] == {61000, 61001, 61002, 61005}
    assert started[0] in names["all_uids"]
    assert [path.name for path in directory.iterdir()] == [str(started[0])], "the file remains"
    names = {
        "get_the_uid_the_process_is_running_under": lambda: started[0],
        "stop_the_process": lambda: None,
    }
    exec(compile(SEEDS_RELEASE, "seed", "exec"), names)  # noqa: S102 - a text of this file
    assert list(directory.iterdir()) == []


@pytest.mark.requirement("S115")
def test_an_example_whose_process_does_not_start_returns_the_id(directory: Path) -> None:
    ssconf.write_set(Paths.from_environment(), 1, {"uid_pool": "61000"})

    def fails(uid: object) -> None:
        assert str(uid) == "61000"
        raise RuntimeError("no such program")

    exec(compile(SEEDS_REQUEST, "seed", "exec"), {"start_a_process": fails})  # noqa: S102
    assert list(directory.iterdir()) == []


@pytest.mark.requirement("S102", "S111")
def test_a_locked_id_is_not_handed_out_again_until_it_is_unlocked(directory: Path) -> None:
    first = uidpool.RequestUnusedUid([61000, 61001], uids_in_use=nobody_runs)
    second = uidpool.RequestUnusedUid([61000, 61001], uids_in_use=nobody_runs)
    assert {first.GetUid(), second.GetUid()} == {61000, 61001}
    with pytest.raises(PrereqError, match="all 2 user ids of the pool are in use"):
        uidpool.RequestUnusedUid([61000, 61001], uids_in_use=nobody_runs)
    first.Unlock()
    first.Unlock()  # harmless
    again = uidpool.RequestUnusedUid([61000, 61001], uids_in_use=nobody_runs)
    assert again.GetUid() == first.GetUid()
    assert again.AsStr() == str(again) == str(int(again))
    for uid in (again, second):
        uidpool.ReleaseUid(uid)
    assert list(directory.iterdir()) == []


@pytest.mark.requirement("S111", "S113")
def test_the_look_at_processes_comes_after_the_lock(directory: Path) -> None:
    seen: list[bool] = []

    def look() -> set[int]:
        path = directory / "61000"
        seen.append(path.exists() and is_locked(path))
        return {0}

    uidpool.RequestUnusedUid([61000], uids_in_use=look).Unlock()
    assert seen[-1], "the last look decides, and it was made with the lock held"


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.requirement("S102", "S113", "A65")
def test_a_process_that_nobody_announced_keeps_its_id_from_being_handed_out(
    directory: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run a process under another user id")
    words = ["setpriv", "--reuid=61000", "--regid=61000", "--clear-groups", "sleep", "60"]
    process = subprocess.Popen(words)
    try:
        assert process.poll() is None
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        for _ in range(20):
            uid = uidpool.RequestUnusedUid([61000, 61001])
            assert uid.GetUid() == 61001
            uidpool.ReleaseUid(uid)
        with pytest.raises(PrereqError):
            uidpool.RequestUnusedUid([61000])
        assert list(directory.iterdir()) == []
    finally:
        process.kill()
        process.wait()
    uid = uidpool.RequestUnusedUid([61000])
    assert uid.GetUid() == 61000
    uidpool.ReleaseUid(uid)


@pytest.mark.requirement("S114", "G11")
def test_a_late_release_does_not_take_an_id_from_its_next_owner(directory: Path) -> None:
    next_owner = uidpool.RequestUnusedUid([61000], uids_in_use=nobody_runs)
    uidpool.ReleaseUid(61000)
    with pytest.raises(PrereqError):
        uidpool.RequestUnusedUid([61000], uids_in_use=nobody_runs)
    next_owner.Unlock()
    uidpool.ReleaseUid("61000")
    assert list(directory.iterdir()) == []
    uidpool.ReleaseUid(61000)  # harmless


@pytest.mark.requirement("S102")
def test_a_file_that_was_removed_while_it_was_being_locked_protects_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []
    flock = fcntl.flock

    def slow(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(directory / "61000")
            removed[0].unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    uid = uidpool.RequestUnusedUid([61000], uids_in_use=nobody_runs)
    assert os.path.samestat(os.fstat(uid.fileno()), (directory / "61000").stat())
    uidpool.ReleaseUid(uid)


@pytest.mark.requirement("A65")
def test_a_lock_file_that_is_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "61000").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="no user id can be locked"):
        uidpool.RequestUnusedUid([61000], uids_in_use=nobody_runs)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.requirement("S115")
def test_a_function_is_called_with_an_id_that_is_unlocked_afterwards(directory: Path) -> None:
    def start(uid: uidpool.LockedUid, word: str, *, more: int) -> tuple[int, str, int]:
        assert uid.is_locked
        return uid.GetUid(), word, more

    assert uidpool.ExecWithUnusedUid(start, [61000], "word", more=3) == (61000, "word", 3)
    assert not is_locked(directory / "61000")


@pytest.mark.requirement("S115")
def test_an_id_is_free_again_if_the_function_fails(directory: Path) -> None:
    def fails(_uid: uidpool.LockedUid) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        uidpool.ExecWithUnusedUid(fails, [61000])
    assert list(directory.iterdir()) == []


@pytest.mark.requirement("S102", "F20")
@pytest.mark.usefixtures("directory")
def test_a_child_holds_the_lock_of_a_daemon_that_died() -> None:
    script = textwrap.dedent(
        """
        import os, subprocess, sys
        from ganeti import uidpool
        uid = uidpool.RequestUnusedUid([61000])
        child = subprocess.Popen(["sleep", "60"], pass_fds=[uid.fileno()], stdout=-3, stderr=-3)
        print(child.pid, flush=True)
        os._exit(0)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    child = int(done.stdout)
    try:
        with pytest.raises(PrereqError):
            uidpool.RequestUnusedUid([61000])
    finally:
        os.kill(child, 9)


def test_processes_of_this_host_are_seen(tmp_path: Path) -> None:
    assert {os.getuid(), 0} <= uidpool.host_uids_in_use()
    (tmp_path / "12").mkdir()
    (tmp_path / "12/status").write_text("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t9\t9\t9\t9\n")
    (tmp_path / "13").mkdir()
    for pid, state, threads in ((14, "Z (zombie)", 1), (15, "Z (zombie)", 2), (16, "X (dead)", 1)):
        (tmp_path / str(pid)).mkdir()
        text = f"Name:\tx: y\nState:\t{state}\nUid:\t{pid}\t5\t5\t5\nThreads:\t{threads}\n"
        (tmp_path / str(pid) / "status").write_text(text)
    (tmp_path / "self").mkdir()
    assert uidpool.host_uids_in_use(tmp_path) == {1, 2, 3, 4, 5, 15}


def test_a_host_that_shows_no_processes_hands_out_nothing(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="does not say"):
        uidpool.host_uids_in_use(tmp_path)


@pytest.mark.requirement("A65")
def test_virtual_nodes_of_one_host_have_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [Paths(tmp_path / name) for name in ("node1", "node2")]
    assert len({uidpool.lock_directory(node) for node in nodes}) == 2
    monkeypatch.setenv(uidpool.DIRECTORY_VARIABLE, str(tmp_path / "common"))
    [first, second] = [uidpool.lock_directory(node) for node in nodes]
    taken = uidpool.RequestUnusedUid([61400], directory=first, uids_in_use=nobody_runs)
    with pytest.raises(PrereqError, match="all 1 user ids of the pool are in use"):
        uidpool.RequestUnusedUid([61400], directory=second, uids_in_use=nobody_runs)
    uidpool.ReleaseUid(taken)


@pytest.mark.sampled(0)
@pytest.mark.requirement("S102", "A65")
@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.soak)])
def test_of_many_processes_that_start_at_once_no_two_share_an_id(
    directory: Path, tmp_path: Path, count: int
) -> None:
    """Each looks at all the others: the work grows with the square of their number."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a process under another user id")
    log = tmp_path / "log"
    log.touch()
    gates = [os.pipe(), os.pipe()]
    starters: list[int] = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                starters = []
                start_one(log, gates)
            finally:
                os._exit(0)
        starters.append(pid)
    try:
        os.close(gates[0][1])
        wait_until(lambda: len(log.read_text().split()) == count, starters)
        uids = log.read_text().split()
        assert len(set(uids)) == count
        assert {path.name for path in directory.iterdir()} == set(uids)
    finally:
        for descriptor in (gates[0][0], *gates[1]):
            os.close(descriptor)
        for pid in starters:
            os.waitpid(pid, 0)
    assert list(directory.iterdir()) == []


def start_one(log: Path, gates: list[tuple[int, int]]) -> None:
    """Take an id, let a child run with it, give the lock up, and at the end the id as well."""
    for _, writing in gates:
        os.close(writing)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.read(gates[0][0], 1)
    uid = uidpool.RequestUnusedUid(range(61700, 61920))
    ready, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresuid(uid.GetUid(), uid.GetUid(), uid.GetUid())
        os.write(say, b"!")
        os.read(gates[1][0], 1)
        os._exit(0)
    os.read(ready, 1)
    plain = uid.GetUid()
    if plain % 2:
        uid.Unlock()
    os.write(descriptor, f"{plain}\n".encode())
    os.waitpid(child, 0)
    uidpool.ReleaseUid(plain if plain % 2 else uid)


def wait_until(is_true: Callable[[], bool], starters: list[int]) -> None:
    """Look again and again; AssertionError if all processes have ended before."""
    while not is_true():
        assert any(Path(f"/proc/{pid}/exe").exists() for pid in starters), "all have ended"
        time.sleep(0.01)
