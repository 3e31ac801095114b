"""The power of the master's machine is cut: what it had acknowledged is there when it comes back."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.vcluster.machine_image import make_disk
from tests.support.local_cluster import local_cluster, short_directory
from tests.support.node_vm import Images, NodeVm, build, running

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(900)]

BOOT_S = 400
FINAL = {"success"}
PROGRAM = """
import re, subprocess, sys, time
from pathlib import Path
from ganeti.clients.luxi import FINAL, LuxiClient
from ganeti.vcluster.layout import load

state = Path(re.search(r"state=(\\S+)", Path("/proc/cmdline").read_text())[1])
here, notes = state / "c", state / "unsynced"
kept = len(notes.read_text().splitlines()) if notes.exists() else 0
vcluster = Path(sys.executable).parent / "ganeti-vcluster"
for _ in range(4):  # under emulation a daemon needs longer than an administrator would wait
    up = [sys.executable, vcluster, "--dir", here, "up", "--no-image", "--nodes", "1"]
    if not subprocess.run(up, stdin=subprocess.DEVNULL).returncode:
        break

def delay(client):
    return client.submit_job([{"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}])

def tag(client, name):
    op = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": [name]}
    job, info = client.submit_job([op]), None
    while not info or info[0] not in FINAL:
        news = client.call("WaitForJobChange", job, ["status"], info, 2**31, 1)
        info = info if news == "nochange" else news[0]
    return job

def main():
    with LuxiClient(load(here).master.paths, timeout_s=120) as client:
        rows = [["running"]]
        while any(row[-1] not in FINAL for row in rows if row):
            rows = client.query_jobs([], ["id", "status"])
        for job, status in rows:
            print("JOB", job, status, flush=True)
        for name in client.call("QueryTags", "cluster", None):
            print("TAG", name, flush=True)
        print("KEPT", kept, flush=True)
        with notes.open("w") as file:
            for number in range(10**6):
                if number % 8 == 7:
                    job = tag(client, f"tag{time.time_ns()}-{number}")
                    print("ACK", job, flush=True)
                else:
                    print("ACK", delay(client), flush=True)
                file.write("note\\n")
                file.flush()
                print("NOTE", number + 1, flush=True)

try:
    main()
finally:
    for log in here.glob("node1/var/log/ganeti/*.log"):
        print(log.read_text()[-2000:], flush=True)
    print("THE PROGRAM HAS ENDED", flush=True)
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with short_directory() as directory:
        yield build(directory, PROGRAM)


@pytest.fixture
def state(tmp_path: Path) -> tuple[Path, Path]:
    """A disk with the state of a new cluster of one node, and where it must be mounted."""
    with local_cluster(nodes=1) as made:
        for daemon in (MASTERD, NODED):
            made.kill(daemon)
        place = made.directory.parent
        return make_disk(tmp_path / "state", 256, place), place


def listed(machine: NodeVm) -> tuple[dict[int, str], int]:
    """What the machine has when it serves: jobs with their states, and notes that nobody had synced."""
    machine.until(r"^(KEPT|THE PROGRAM HAS ENDED)", BOOT_S)
    words = [line.split() for line in machine.said]
    assert words[-1][:1] == ["KEPT"], "\n".join(machine.said[-60:])
    return {int(line[1]): line[2] for line in words if line[:1] == ["JOB"]}, int(words[-1][1])


@pytest.mark.requirement("G1", "G2", "G6", "G8")
@pytest.mark.parametrize("cuts", [1, 3])
def test_what_was_acknowledged_is_there_after_power_cuts(
    images: Images, state: tuple[Path, Path], cuts: int
) -> None:
    promised: list[int] = []
    noted = 0
    for _ in range(cuts + 1):
        with running(images, *state) as machine:
            known, kept = listed(machine)
            assert {known.get(job) for job in promised} <= FINAL
            assert kept < noted or not noted, "the cut lost nothing, so it proves nothing"
            machine.until(r"^ACK", BOOT_S)
            time.sleep(1 + random.random())
            said = [line.split() for line in machine.cut_power()]
        acknowledged = [int(words[1]) for words in said if words[:1] == ["ACK"]]
        assert len(acknowledged) > 3
        assert min(acknowledged) > max([0, *known])
        promised += acknowledged
        noted = max(int(words[1]) for words in said if words[:1] == ["NOTE"])
    assert promised == sorted(set(promised))
