"""Real daemons under users of their own: who they are, what they may, and who may ask them."""

import base64
import os
import re
import secrets
import select
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

import ganeti
from ganeti.base.paths import RAPI_PORT, Paths
from ganeti.base.permissions import problems
from ganeti.base.users import ServiceUsers, users_file
from ganeti.bootstrap.daemons import (
    CONFD,
    CONFD_VARIABLE,
    MASTERD,
    NODED,
    RAPI,
    RAPI_VARIABLE,
    Daemons,
)
from tests.support.local_cluster import wait_until
from tests.support.patience import ran

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users"),
]

SOURCE = str(Path(ganeti.__file__).parents[1])
IMPORTS = os.pathsep.join((SOURCE, str(Path(aiohttp.__file__).parents[1])))
ADDRESS = f"127.77.{os.getpid() // 254 % 256}.{os.getpid() % 254 + 1}"
"""Another one in each test process: two runs may share a machine."""
STRANGER = 61950
"""A user id that is nobody's."""
TRY = "import os, msgspec, aiohttp, cryptography, ganeti.daemons.masterd"


def as_user(uid: int, gid: int, words: Sequence[str]) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--", *words]


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that other users can read, with all that the daemons import."""
    for found in (sys.executable, shutil.which("python3", path="/usr/bin")):
        if found is None:
            continue
        environment = {"PYTHONPATH": IMPORTS, "PATH": os.environ["PATH"]}
        # It is root that starts it, who may find other libraries than they do.
        asked = subprocess.run(
            [found, "-c", f"{TRY}; print(os.__file__)"],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        can_read = as_user(STRANGER, STRANGER, ["test", "-r", asked.stdout.strip()])
        if asked.returncode == 0 and subprocess.run(can_read, check=False).returncode == 0:
            return found
    pytest.skip("no Python here can be used by other users than root")


@dataclass
class Separated:
    """A cluster of one node with users of its own."""

    python: str
    root: Path
    prefix: str

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @property
    def users(self) -> ServiceUsers:
        found = ServiceUsers.of_node(self.paths)
        assert found is not None
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": IMPORTS,
            "GANETI_ROOTDIR": str(self.root),
            "GANETI_HOSTNAME": "node1.example",
            "GANETI_ADDRESS": ADDRESS,
            RAPI_VARIABLE: "1",
            CONFD_VARIABLE: "1",
        }

    def words(self, module: str, *words: str) -> list[str]:
        return [
            self.python,
            "-c",
            f"import sys; from {module} import main; sys.exit(main())",
            *words,
        ]

    def run(
        self, module: str, *words: str, user: tuple[int, int] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = self.words(module, *words)
        command = command if user is None else as_user(*user, command)
        return ran(command, limit_s=60, env=self.environment)

    def ok(self, module: str, *words: str, user: tuple[int, int] | None = None) -> str:
        done = self.run(module, *words, user=user)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def setup(self, *words: str) -> str:
        return self.ok("ganeti.bootstrap.users_setup", *words)

    def cluster(self, *words: str, user: tuple[int, int] | None = None) -> str:
        return self.ok("ganeti.cli.gnt_cluster", *words, user=user)

    def pid(self, name: str) -> int:
        process = Daemons(self.paths).status(name).process
        assert process is not None, f"{name} does not run"
        return process.pid


@pytest.fixture(scope="module")
def separated(python: str) -> Iterator[Separated]:
    root = Path(tempfile.mkdtemp(prefix="gnt"))
    root.chmod(0o755)
    made = Separated(python, root, f"gt{secrets.token_hex(3)}")
    try:
        made.setup("--prefix", made.prefix)
        made.cluster(
            "init", "--enabled-hypervisors=fake", "--enabled-disk-templates=diskless",
            f"--primary-ip={ADDRESS}", "--file-storage-dir=", "--shared-file-storage-dir=",
            "--node-port=21811", "cluster.example",
        )  # fmt: skip
        yield made
    finally:
        made.run("ganeti.cli.gnt_cluster", "destroy", "--yes-do-it")
        for name in (RAPI, CONFD, MASTERD, NODED):
            process = Daemons(made.paths).status(name).process
            if process is not None:
                os.kill(process.pid, 9)
        made.run("ganeti.bootstrap.users_setup", "--remove")
        shutil.rmtree(root)


def rights(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(re.findall(r"^(Uid|Gid|Groups|CapEff|CapPrm):\s+(.*?)\s*$", text, re.MULTILINE))


@pytest.mark.requirement("S224", "S227")
def test_the_master_has_no_rights_of_root_and_the_node_daemon_has(separated: Separated) -> None:
    account = separated.users.accounts["masterd"]
    found = rights(separated.pid(MASTERD))
    assert set(found["Uid"].split()) == {str(account.uid)}
    assert set(found["Gid"].split()) == {str(separated.users.daemons)}
    wanted = {separated.users.daemons, separated.users.admin}
    assert set(map(int, found["Groups"].split())) == wanted
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
    assert set(rights(separated.pid(NODED))["Uid"].split()) == {"0"}


@pytest.mark.requirement("S225", "S227")
def test_the_rest_server_has_read_its_key_and_then_given_roots_rights_up(
    separated: Separated,
) -> None:
    wait_until(lambda: Daemons(separated.paths).status(RAPI).process is not None, "it serves")
    account = separated.users.accounts["rapi"]
    found = rights(separated.pid(RAPI))
    assert set(found["Uid"].split()) == {str(account.uid)}
    assert set(found["Gid"].split()) == {str(separated.users.daemons)}
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
    certificate = separated.paths.rapi_certificate
    assert (certificate.stat().st_uid, stat.S_IMODE(certificate.stat().st_mode)) == (0, 0o600)
    words = as_user(account.uid, account.gid, ["test", "-r", str(certificate)])
    assert subprocess.run(words, check=False).returncode != 0
    users = separated.paths.rapi_users
    users.write_text("anna secret write\n")
    os.chown(users, account.uid, separated.users.daemons)
    users.chmod(0o600)
    context = ssl.create_default_context(cafile=certificate)
    address = (ADDRESS, RAPI_PORT)

    def ask(method: str, path: str, body: bytes = b"") -> bytes:
        with (
            socket.create_connection(address, 60) as plain,
            context.wrap_socket(plain, server_hostname=ADDRESS) as line,
        ):
            login = base64.b64encode(b"anna:secret").decode()
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n"
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            line.sendall(f"{head}{kind}Connection: close\r\n\r\n".encode() + body)
            return b"".join(iter(lambda: line.recv(4096), b""))

    wait_until(
        lambda: b"node1.example" in ask("GET", "/2/nodes"),
        "it has read its users, and asks the master",
    )
    begun = ask("POST", "/2/whatif", b'{"scenario": {"steps": []}, "node_size": "64g,1t,8"}')
    assert b'"state":"running"' in begun, begun
    wait_until(lambda: b'"state":"done"' in ask("GET", "/2/whatif"), "a simulation of its ends")
    upload = ask("POST", "/2/image-uploads", b'{"name": "box", "size": 3, "source_format": "raw"}')
    assert b'"state":"receiving"' in upload, upload
    assert problems(separated.paths, separated.users) == []


@pytest.mark.requirement("S51", "G25")
def test_the_query_daemon_has_only_what_it_opened_before(separated: Separated) -> None:
    account = separated.users.accounts["confd"]
    pid = separated.pid(CONFD)
    found = rights(pid)
    assert set(found["Uid"].split()) == {str(account.uid)}
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
    for path in (separated.paths.confd_key, separated.paths.state, separated.paths.authority_key):
        words = as_user(account.uid, account.gid, ["test", "-r", str(path)])
        assert subprocess.run(words, check=False).returncode != 0
    separated.cluster("add-tags", "followed")
    query = ("-v", "-a", ADDRESS, "config", "/cluster/cluster_name")
    done = separated.run("ganeti.cli.confd_client", *query)
    assert done.stdout == "cluster.example\n", done.stderr


@pytest.mark.requirement("S224", "S226", "A19")
def test_the_masters_socket_is_for_its_group_alone(separated: Separated) -> None:
    socket = separated.paths.luxi_socket.stat()
    assert stat.S_IMODE(socket.st_mode) == 0o660
    assert socket.st_uid == separated.users.accounts["masterd"].uid
    assert socket.st_gid == separated.users.admin
    member = (STRANGER, separated.users.admin)
    assert "Cluster name: cluster.example" in separated.cluster("info", user=member)
    assert separated.cluster("getmaster", user=member).strip() == "node1.example"
    for group in (STRANGER, separated.users.daemons):
        done = separated.run("ganeti.cli.gnt_cluster", "info", user=(STRANGER, group))
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert "a member of the socket's group" in done.stderr


@pytest.mark.requirement("S224")
def test_a_member_of_the_admin_group_runs_jobs(separated: Separated) -> None:
    member = (STRANGER, separated.users.admin)
    name = "web1.example.com"
    words = ["add", "-t", "diskless", "-n", "node1.example", "-o", "none", "--no-install"]
    separated.ok(
        "ganeti.cli.gnt_instance", *words, "--no-name-check", "--no-ip-check", name, user=member
    )
    listed = separated.ok("ganeti.cli.gnt_instance", "list", "--no-headers", "-o", "name")
    assert listed.split() == [name]
    separated.ok("ganeti.cli.gnt_instance", "remove", "-f", name, user=member)


@pytest.mark.requirement("S224", "G23", "A63")
def test_secrets_are_for_the_daemons_that_need_them(separated: Separated) -> None:
    paths, users = separated.paths, separated.users
    assert problems(paths, users) == []
    secret = [paths.state, paths.register, paths.node_key, paths.authority_key]
    readers = [(STRANGER, users.admin), (users.accounts["rapi"].uid, users.daemons)]
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for uid, gid in readers:
            done = subprocess.run(as_user(uid, gid, ["test", "-r", str(path)]), check=False)
            assert done.returncode != 0, path
    public = paths.data / "ssconf_master_node"
    for uid, gid in readers:
        subprocess.run(as_user(uid, gid, ["test", "-r", str(public)]), check=True)


@pytest.mark.requirement("S224", "F40")
def test_verify_reports_wrong_owners_and_the_next_start_repairs_them(separated: Separated) -> None:
    paths = separated.paths
    separated.cluster("verify")
    paths.authority_key.chmod(0o644)
    os.chown(paths.node_key, 0, 0)
    done = separated.run("ganeti.cli.gnt_cluster", "verify", "--error-codes")
    assert done.returncode == 1
    said = done.stdout
    assert re.search(r"ENODESETUP:node:node1.example:.*ca.key has mode 0644, not 0600", said)
    assert re.search(r"ENODESETUP:node:node1.example:.*node.key belongs to 0:0", said)
    before = separated.pid(MASTERD)
    pidfd = os.pidfd_open(before)
    os.kill(before, 15)
    try:
        select.select([pidfd], [], [], 30)
    finally:
        os.close(pidfd)
    start = "import asyncio; from ganeti.base.paths import Paths; from ganeti.bootstrap.daemons"
    start += f" import Daemons; asyncio.run(Daemons(Paths.from_environment()).start({MASTERD!r}))"
    subprocess.run([separated.python, "-c", start], env=separated.environment, check=True)
    assert separated.pid(MASTERD) != before
    assert problems(paths, separated.users) == []
    separated.cluster("verify")


@pytest.mark.requirement("S224")
def test_other_users_cannot_start_the_master_and_users_stay_while_it_runs(
    separated: Separated,
) -> None:
    done = separated.run("ganeti.bootstrap.users_setup", "--remove")
    assert done.returncode != 0
    assert "stop it first" in done.stderr
    done = separated.run("ganeti.daemons.masterd", user=(STRANGER, separated.users.daemons))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("S224")
def test_setting_up_twice_changes_nothing(separated: Separated) -> None:
    before = users_file(separated.paths).read_bytes()
    out = separated.setup("--prefix", separated.prefix)
    assert "made" not in out
    assert users_file(separated.paths).read_bytes() == before


@pytest.mark.requirement("S225", "A44")
def test_the_rest_servers_user_asks_the_master_and_submits_no_job_of_its_own(
    separated: Separated,
) -> None:
    users = separated.users
    rest = (users.accounts["rapi"].uid, users.admin)
    assert "node1.example" in separated.ok("ganeti.cli.gnt_node", "list", user=rest)
    for program, words, method in (
        ("gnt_debug", ["delay", "0.01"], "SubmitJob"),
        ("gnt_cluster", ["queue", "drain"], "SetDrainFlag"),
        ("gnt_job", ["archive", "1"], "ArchiveJob"),
    ):
        done = separated.run(f"ganeti.cli.{program}", *words, user=rest)
        assert done.returncode == 1, done.stdout
        assert f"may not call {method}" in done.stderr
