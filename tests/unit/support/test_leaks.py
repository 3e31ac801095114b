import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.leaks import Resources, leaks_since

TOP = Path(__file__).resolve().parents[3]

# A module of tests that are run by a pytest of their own: the first of each pair must fail.
LEAKY_TESTS = """
import asyncio
import pytest

kept = []


@pytest.fixture
async def server():
    task = asyncio.create_task(asyncio.sleep(3600))
    yield
    task.cancel()


async def test_that_leaves_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(3600)))


async def test_whose_fixture_ends_its_task(server):
    await asyncio.to_thread(print)


def test_that_leaves_a_descriptor():
    kept.append(open("/dev/null"))


@pytest.mark.leaks_allowed("to show the way out")
def test_that_may_leave_a_descriptor():
    kept.append(open("/dev/null"))
"""


def test_nothing_left_is_nothing_found() -> None:
    assert leaks_since(Resources.now()) == []


def test_open_descriptor_is_named_with_its_file(tmp_path: Path) -> None:
    before = Resources.now()
    with (tmp_path / "left open").open("w"):
        (leak,) = leaks_since(before, grace_s=0)
    assert leak.startswith("descriptor ")
    assert leak.endswith("left open")


def test_running_thread_is_named() -> None:
    before = Resources.now()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="straggler")
    thread.start()
    leaks = leaks_since(before, grace_s=0)
    end.set()
    thread.join()
    assert leaks == ["thread straggler"]


def test_child_process_is_named_with_its_command() -> None:
    before = Resources.now()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"up\n")
        child.stdin.flush()
        child.stdout.readline()  # only now is it sure to have its command
        leaks = leaks_since(before, grace_s=0)
    assert f"child process {child.pid}: cat " in leaks


def test_what_ends_within_the_grace_time_is_no_leak() -> None:
    before = Resources.now()
    read_end, write_end = os.pipe()

    def close_both() -> None:
        os.close(read_end)
        os.close(write_end)

    threading.Timer(0.02, close_both).start()
    assert leaks_since(before, grace_s=10) == []


@pytest.mark.sampled(0)
def test_fixtures_fail_exactly_the_tests_that_leave_something(tmp_path: Path) -> None:
    module = tmp_path / "test_leaky.py"
    module.write_text(LEAKY_TESTS)
    options = ["-p", "tests.support.leaks", "-p", "no:randomly", "-p", "no:cacheprovider"]
    options += ["-q", "-rA", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path)]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    options += ["-o", "markers=leaks_allowed", "--noconftest", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(module)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    assert [line.split("::")[1].split()[0] for line in errors] == [
        "test_that_leaves_a_task",
        "test_that_leaves_a_descriptor",
    ], done.stdout


async def test_the_loop_refuses_calls_from_another_thread() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="Non-thread-safe"):
        await asyncio.to_thread(loop.call_soon, print)
