"""The program of a drill, with a small program in the place of QEMU: confined like it, and gone after every end."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HostError
from ganeti.hypervisor.drills import DrillGuest
from ganeti.hypervisor.kvm.drills import Drills
from ganeti.model import wire
from ganeti.model.names import ProofState
from ganeti.node.backups import drill
from ganeti.node.backups.directory import opened
from ganeti.node.backups.drill import DrillOrder, memory_for
from ganeti.node.backups.proofs import read_proof
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_encryption import NO_KEYS
from ganeti.protocols.backup_proof import Judgement, judged, proof_file
from ganeti.rpc.procedures.drills import DrillArgs, DrillResult
from tests.support.backup_store import BLOCK, BackupStore, changed, keyring
from tests.support.patience import patience

pytestmark = pytest.mark.requirement("G11", "A51", "A52")

PYTHON = "/usr/bin/python3"  # a program that may be read in the confinement


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    one = BackupStore(tmp_path / "web1", tmp_path)
    rng = random.Random(5)
    data = rng.randbytes(8 * BLOCK)
    for _ in range(2):
        one.save(data)
        data = changed(rng, data, grows=False)
    return one


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a program in Python take the place of QEMU; it has the guest's descriptors."""

    def use(code: str) -> None:
        def command(_self: Drills, guest: DrillGuest) -> list[str]:
            facts = (
                f"import os, sys, time\nconsole={guest.console}\n"
                f"overlay={guest.disks[0].overlay}\nlayers={list(guest.disks[0].layers)}\n"
            )
            return [PYTHON, "-I", "-c", facts + code]

        monkeypatch.setattr(Drills, "command", command)

    return use


def order(store: BackupStore, **fields: Any) -> DrillOrder:
    args: dict[str, Any] = {
        "target": "/srv/ganeti/backup", "instance_name": "web1", "point": store.names()[-1], "hypervisor": "kvm",
        "hvparams": {}, "vcpus": 1, "memory": 64, "less_memory": True, "expect": "login:", "agent": False,
        "timeout_s": 20.0,
    }  # fmt: skip
    return DrillOrder(
        args=DrillArgs(**{**args, **fields}),
        directory=str(store.path),
        root=str(store.work / "root"),
        locks=str(store.work / "locks"),
        program=PYTHON,
        accelerator="tcg",
        device="",
    )


def run(store: BackupStore, **fields: Any) -> DrillResult:
    """Run a drill with the file mask of a task."""
    mask = os.umask(0o077)
    try:
        return drill.run(order(store, **fields), ProgressFile(store.work / "log"))
    finally:
        os.umask(mask)


def judgement(store: BackupStore) -> Judgement:
    with opened(store.path) as directory:
        point = directory.contents().find(store.names()[-1])
        return judged(read_proof(directory, point), point)


def check_nothing_left(store: BackupStore) -> None:
    assert [one.name for one in order(store).work.iterdir()] == ["empty"]
    assert list((store.work / "locks").iterdir()) == []


def test_sign_of_life_makes_the_backup_good(store: BackupStore, behave: Any) -> None:
    behave(r"os.write(console, b'Linux\r\n\x1b[1mweb1 login: '); time.sleep(60)")
    found = run(store)
    assert (found.problem, found.seen, found.lines) == ("", "login:", ["Linux", "web1 login:"])
    assert found.memory == 64
    assert found.unrecorded == ""
    assert judgement(store).state is ProofState.GOOD
    assert judgement(store).drilled
    assert judgement(store).checked
    store.verify()
    check_nothing_left(store)


def test_encrypted_backup_boots_from_decrypted_files_without_names(
    tmp_path: Path, behave: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BackupStore(tmp_path / "web1", tmp_path, keys=keyring())
    data = random.Random(5).randbytes(8 * BLOCK)
    store.save(data)
    store.save(data[:BLOCK] + bytes(BLOCK) + data[2 * BLOCK :])
    monkeypatch.setattr(drill, "received_keys", lambda: store.keys)
    behave(
        "magic = [os.pread(one, 4, 0) for one in layers]\n"
        "names = [os.readlink(f'/proc/self/fd/{one}') for one in layers]\n"
        "good = magic == [b'QFI\\xfb'] * 2 and all(one.endswith('(deleted)') for one in names)\n"
        "os.write(console, b'login:' if good else repr((magic, names)).encode()); time.sleep(60)"
    )
    found = run(store)
    assert found.problem == ""
    assert judgement(store).state is ProofState.GOOD
    check_nothing_left(store)


def test_missing_key_is_no_result_of_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BackupStore(tmp_path / "web1", tmp_path, keys=keyring())
    store.save(bytes(BLOCK))
    wanted = order(store)
    monkeypatch.setattr(drill, "received_keys", lambda: NO_KEYS)
    with pytest.raises(HostError, match=r"backup key .* which is not here"):
        drill.run(wanted, ProgressFile(store.work / "log"))
    assert not list(store.path.glob("*.proof"))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("os.write(console, b'no\\x1b[2Jdisk\\n')", "s without 'login:'; the console ends: nodisk"),
        ("pass", "the console was empty"),
        ("os.write(console, b'grub> '); time.sleep(60)", " s passed without 'login:'; the console ends: grub>"),
        ("os.write(console, b'x' * 10**7); os.write(console, b'\\n\\xff\\x1b]')", "without 'login:'"),
    ],
)  # fmt: skip
def test_guest_without_a_sign_of_life_fails_with_its_last_lines(
    store: BackupStore, behave: Any, code: str, problem: str
) -> None:
    behave(code)
    found = run(store, timeout_s=2.0 * patience())
    assert problem in found.problem
    assert found.problem.isprintable()
    assert judgement(store).state is ProofState.FAILED
    assert judgement(store).why == found.problem
    assert judgement(store).checked
    check_nothing_left(store)


def test_answer_of_the_agent_is_a_sign_of_life(store: BackupStore, behave: Any) -> None:
    behave(
        "import json\n"
        "line = sys.stdin.buffer.readline()\n"
        "token = json.loads(line[1:])['arguments']['id']\n"
        "os.write(console, b'login:')\n"
        "time.sleep(0.2)\n"
        "os.write(1, b'\\xff' + json.dumps({'return': token}).encode() + b'\\n')\n"
        "time.sleep(60)"
    )
    found = run(store, agent=True)
    assert found.seen == "the answer of the agent"
    assert found.lines == ["login:"]


def test_failure_of_the_node_is_not_one_of_the_backup(store: BackupStore, behave: Any) -> None:
    behave("sys.exit('no such \\x1b machine')")
    with pytest.raises(HostError, match=r"QEMU ended with status 1: no such \\x1b machine"):
        run(store)
    assert judgement(store).state is ProofState.UNPROVEN  # a drill was asked for
    assert judgement(store).checked
    check_nothing_left(store)
    behave("os.kill(os.getpid(), 9)")
    with pytest.raises(HostError, match="status -9"):
        run(store)
    with pytest.raises(HostError, match="less memory"):
        run(store, memory=1 << 30, less_memory=False)


def test_drills_of_a_node_take_turns(
    store: BackupStore, behave: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave("os.write(console, b'login:'); time.sleep(60)")
    empty, taken = order(store).empty, list[bool]()

    def free_memory() -> int:
        descriptor = os.open(empty, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken.append(True)
        finally:
            os.close(descriptor)
        return 1000

    monkeypatch.setattr(drill, "free_memory", free_memory)
    assert run(store).seen == run(store).seen == "login:"
    assert taken == [True, True]


def test_damaged_backup_is_not_booted(store: BackupStore, behave: Any) -> None:
    behave("os.write(console, b'login:'); time.sleep(60)")
    image = next(store.path.glob(f"{store.names()[0]}.*.qcow2"))
    content = bytearray(image.read_bytes())
    content[70_000] ^= 1
    image.write_bytes(content)
    found = run(store)
    assert "are not what was written" in found.problem
    assert found.memory == 0
    assert judgement(store).state is ProofState.FAILED


def test_result_that_cannot_be_recorded_is_reported(store: BackupStore, behave: Any) -> None:
    behave("os.write(console, b'login:'); time.sleep(60)")
    (store.path / proof_file(store.names()[-1])).mkdir()
    found = run(store)
    assert found.seen == "login:"
    assert found.unrecorded


def test_confined_program_reads_the_images_and_writes_only_its_own(
    store: BackupStore, behave: Any
) -> None:
    behave(
        "tried = []\n"
        "def refused(what):\n"
        "    try:\n"
        "        what()\n"
        "    except OSError:\n"
        "        return\n"
        "    tried.append(what.__name__)\n"
        "def passwd(): open('/etc/passwd')\n"
        "def here(): open('x', 'w')\n"
        "def layer(): os.pwrite(layers[0], b'x', 0)\n"
        "def root(): os.setuid(0)\n"
        "def net():\n"
        "    import socket\n"
        "    socket.socket()\n"
        "for one in (passwd, here, layer, root, net): refused(one)\n"
        "assert all(os.pread(one, 4, 0) == b'QFI\\xfb' for one in (*layers, overlay))\n"
        "os.pwrite(overlay, b'x', 1 << 20)\n"
        "os.write(console, b'uid %d: %s login:' % (os.getuid(), ' '.join(tried).encode()))\n"
        "time.sleep(60)"
    )
    (line,) = run(store).lines
    assert line.endswith("login:")
    if os.getuid() == 0:
        assert line.startswith("uid 6")
        assert line.partition(": ")[2] == " login:"
    store.verify()


def test_memory_is_that_of_the_instance_or_less() -> None:
    def args(**fields: Any) -> DrillArgs:
        given: dict[str, Any] = {
            "target": "", "instance_name": "", "point": "", "hypervisor": "kvm", "hvparams": {}, "vcpus": 1,
            "memory": 4096, "less_memory": True, "expect": "x", "agent": False, "timeout_s": 1.0,
        }  # fmt: skip
        return DrillArgs(**{**given, **fields})

    assert memory_for(args(), 100_000) == 4096
    assert memory_for(args(), 3000) == 1500
    assert memory_for(args(memory=64), 400) == 64
    assert memory_for(args(less_memory=False), 4400) == 4096
    for free, less in ((4300, False), (300, True)):
        with pytest.raises(HostError, match="--memory"):
            memory_for(args(less_memory=less), free)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_qemu_ends_with_the_program_that_watches_it(
    store: BackupStore, number: signal.Signals
) -> None:
    """A real process: the kernel ends the confined program, whatever ends the other one."""
    code = (
        "import sys\n"
        "from ganeti.hypervisor.kvm.drills import Drills\n"
        "from ganeti.node.backups import drill\n"
        "Drills.command = lambda self, guest: [\n"
        f"    '{PYTHON}', '-I', '-c',\n"
        "    f'import os, time; os.write({guest.console}, b\"pid %d.\" % os.getpid()); time.sleep(300)',\n"
        "]\n"
        "take = drill.ConsoleText.take\n"
        "def told(self, data):\n"
        "    take(self, data)\n"
        "    print(self.lines, flush=True)\n"
        "drill.ConsoleText.take = told\n"
        "sys.exit(drill.main(sys.argv[1:]))\n"
    )
    wanted = order(store, timeout_s=100.0)
    argv = [sys.executable, "-c", code, wire.encode(wanted).decode(), str(store.work / "log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        pid = int(line.partition("pid ")[2].partition(".")[0])
        assert Path(f"/proc/{pid}").exists()
        process.send_signal(number)
    end = time.monotonic() + 10 * patience()
    while _is_alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _is_alive(pid)
    assert [one.name for one in order(store).work.iterdir()] == ["empty"]
    assert judgement(store).state is ProofState.UNPROVEN


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
