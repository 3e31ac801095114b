"""The Ansible collection, with the real ansible-core against a real cluster.

ansible-core is not among the packages of `make setup`: only this test needs its 40 MB and its dependencies. The test
installs the pinned version once, in the cache of the checkout, and is skipped where that is not possible.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,  # it installs ansible-core
    pytest.mark.timeout(900),
]
TOP = Path(__file__).resolve().parents[2]
assemble = runpy.run_path(str(TOP / "scripts" / "ansible_collection.py"))["assemble"]
CACHE = TOP / ".cache" / "ansible"
PINS = TOP / "requirements" / "ansible.txt"
NAME = "ansible1.example.com"
INSTANCE = {
    "name": NAME, "state": "started", "os": "noop", "disk_template": "sharedfile", "disks": [{"size": 1}],
    "primary_node": "node1", "beparams": {"maxmem": 16, "minmem": 16}, "tags": ["blue"],
}  # fmt: skip
NETWORK = {
    "name": "front", "network": "192.0.2.0/24", "gateway": "192.0.2.1", "tags": ["blue"],
    "connections": [{"group": "default", "mode": "routed", "link": "100"}],
}  # fmt: skip


RECORDER = '''"""Prints each task's result as a line of JSON."""
DOCUMENTATION = "{name: recorder, type: stdout, short_description: lines of JSON, description: lines of JSON}"
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "recorder"

    def v2_runner_on_ok(self, result, **_more):
        print("RESULT " + json.dumps(dict(result._result), default=str), flush=True)

    def v2_runner_on_failed(self, result, **_more):
        print("RESULT " + json.dumps({**result._result, "failed": True}, default=str), flush=True)
'''
"""ansible-core has no callback that prints JSON."""


@pytest.fixture(scope="module")
def ansible() -> Path:
    """The directory of the programs of the pinned ansible-core."""
    programs, stamp = CACHE / "bin", CACHE / "pins"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        shutil.rmtree(CACHE, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", CACHE], check=True, capture_output=True)
        pip = [
            str(programs / "python"),
            "-m",
            "pip",
            "install",
            "-qq",
            "--require-hashes",
            "-r",
            str(PINS),
        ]
        done = subprocess.run(pip, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"ansible-core cannot be installed here: {done.stderr[-300:]}")
        stamp.write_text(PINS.read_text())
    return programs


class Ansible:
    """Runs playbooks of one task after another on this host."""

    def __init__(self, programs: Path, work: Path, address: str, trusted: Path) -> None:
        self._programs, self._work = programs, work
        assemble(work / "ansible_collections" / "ganeti" / "cluster")
        callbacks = work / "callbacks"
        callbacks.mkdir()
        (callbacks / "recorder.py").write_text(RECORDER)
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(work),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(work),
            "ANSIBLE_CALLBACK_PLUGINS": str(callbacks),
            "ANSIBLE_STDOUT_CALLBACK": "recorder",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "GANETI_ADDRESS": address,
            "GANETI_USER": "tour",
            "GANETI_PASSWORD": "secret",
            "GANETI_CA_FILE": str(trusted),
        }

    def program(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._programs / words[0], *words[1:]],
            env=self._environment,
            cwd=self._work,
            check=False,
            capture_output=True,
            text=True,
            timeout=300 * patience(),
        )

    def play(self, *tasks: dict[str, Any], options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Return the result of each task."""
        named = [
            {f"ganeti.cluster.{kind}": fields} for task in tasks for kind, fields in task.items()
        ]
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": named,
                "vars": {"ansible_python_interpreter": str(self._programs / "python")}}  # fmt: skip
        path = self._work / "play.yml"
        path.write_text(json.dumps([{**play, "ignore_errors": True}]))
        done = self.program("ansible-playbook", *options, str(path))
        lines = (line.partition("RESULT ") for line in done.stdout.splitlines())
        found = [json.loads(text) for before, mark, text in lines if mark and not before]
        assert len(found) == len(tasks), done.stdout + done.stderr
        return found

    def one(self, kind: str, fields: dict[str, Any], *options: str) -> dict[str, Any]:
        """Return the result of one task, which must succeed."""
        [result] = self.play({kind: fields}, options=options)
        assert not result.get("failed"), result.get("msg")
        return result


@pytest.fixture(scope="module")
def run(
    ansible: Path, address: str, trusted: Path, tmp_path_factory: pytest.TempPathFactory
) -> Ansible:
    return Ansible(ansible, tmp_path_factory.mktemp("ansible"), address, trusted)


def test_instance_is_created_changed_and_removed(run: Ansible, cluster: LocalCluster) -> None:
    wanted = {**INSTANCE, "osparams": {"record": str(cluster.record)}}
    checked = run.one("instance", wanted, "--check", "--diff")
    assert (checked["changed"], checked["instance"]) == (True, None)
    assert checked["diff"]["after"] == {"state": "started"}
    assert cluster.names("instance") == set()

    made = run.one("instance", wanted)
    assert made["changed"]
    assert (made["instance"]["status"], made["instance"]["tags"]) == ("running", ["blue"])
    again = run.one("instance", wanted)
    assert (again["changed"], again["jobs"]) == (False, [])

    other = {
        **wanted,
        "beparams": {"maxmem": 32},
        "tags": ["red"],
        "disks": [{"size": 2}],
        "state": "stopped",
    }
    checked = run.one("instance", other, "--check", "--diff")
    assert (
        checked["diff"]["before"].items()
        >= {"tags": ["blue"], "disks": [1], "state": "started"}.items()
    )
    assert (
        checked["diff"]["after"].items()
        >= {"tags": ["red"], "disks": [2], "beparams": {"maxmem": 32}}.items()
    )
    assert cluster.value("instance", NAME, "status") == "running"
    changed = run.one("instance", other)
    shown = changed["instance"]
    assert (shown["beparams"]["maxmem"], shown["tags"], shown["disk.sizes"], shown["status"]) == (
        32, ["red"], [2], "ADMIN_down",
    )  # fmt: skip
    assert not run.one("instance", other)["changed"]

    listed = run.program("ansible-inventory", "-i", str(inventory(run)), "--list")
    found = json.loads(listed.stdout)
    status = found["_meta"]["hostvars"][NAME]["ganeti_status"]
    assert status == {"__ansible_unsafe": "ADMIN_down"}, listed.stderr  # never a template
    assert found["tag_red"]["hosts"] == [NAME]

    assert run.one("instance", {"name": NAME, "state": "absent"})["changed"]
    assert cluster.names("instance") == set()
    assert not run.one("instance", {"name": NAME, "state": "absent"})["changed"]


def inventory(run: Ansible) -> Path:
    path = run._work / "lab.ganeti.yml"
    groups = [{"key": "ganeti_tags", "prefix": "tag"}]
    path.write_text(json.dumps({"plugin": "ganeti.cluster.instances", "keyed_groups": groups}))
    return path


def test_network_and_group_and_node(run: Ansible, cluster: LocalCluster) -> None:
    tasks: list[dict[str, Any]] = [
        {"network": NETWORK},
        {"group": {"name": "rack", "alloc_policy": "last_resort", "ndparams": {"spindle_count": 3}, "tags": ["r"]}},
        {"node": {"name": "node2", "role": "drained", "tags": ["n"], "ndparams": {"spindle_count": 5}}},
    ]  # fmt: skip
    first, second = run.play(*tasks), run.play(*tasks)
    assert [one.get("msg") for one in (*first, *second) if one.get("failed")] == []
    assert [one["changed"] for one in first] == [True, True, True]
    assert [one["changed"] for one in second] == [False, False, False]
    assert cluster.value("node", "node2", "role") == "D"
    assert cluster.value("group", "rack", "alloc_policy") == "last_resort"

    changes: list[dict[str, Any]] = [
        {"network": {**NETWORK, "gateway": "192.0.2.254", "connections": []}},
        {"group": {"name": "rack", "alloc_policy": "preferred"}},
        {"node": {"name": "node2", "role": "master-candidate", "tags": []}},
    ]
    changed = run.play(*changes)
    assert [one["changed"] for one in changed] == [True, True, True], changed[2].get("msg")
    assert (changed[0]["network"]["gateway"], changed[0]["network"]["group_list"]) == (
        "192.0.2.254",
        [],
    )
    gone = run.play(
        {"network": {"name": "front", "state": "absent"}},
        {"group": {"name": "rack", "state": "absent"}},
    )
    assert [one["changed"] for one in gone] == [True, True]


def test_errors_are_those_of_the_server(run: Ansible, cluster: LocalCluster) -> None:
    with cluster.luxi() as client:
        job = int(client.call("SubmitJob", [{"OP_ID": "OP_TEST_DELAY", "duration": 0.1}]))
    failed, waited, wrong = run.play(
        {"instance": {"name": "x.example.com", "disk_template": "nosuch", "os": "noop"}},
        {"job": {"id": job}},
        {"node": {"name": "nosuch", "role": "drained"}},
    )
    assert failed["failed"]
    assert "nosuch" in failed["msg"]
    assert waited["job"]["status"] == "success"
    assert wrong["failed"]
    assert "nosuch" in wrong["msg"]
    assert "secret" not in json.dumps([failed, waited, wrong]).replace("osparams_secret", "")


@pytest.mark.parametrize("kind", ["instance", "node", "group", "network", "job"])
def test_documentation_names_every_option(run: Ansible, kind: str) -> None:
    done = run.program("ansible-doc", "--json", f"ganeti.cluster.{kind}")
    assert done.returncode == 0, done.stderr
    doc = json.loads(done.stdout)[f"ganeti.cluster.{kind}"]["doc"]
    text = (TOP / "integrations" / "ansible" / "plugins" / "modules" / f"{kind}.py").read_text()
    options = text.split("OPTIONS: dict[str, Any] = {")[1].split("\n}\n")[0]
    for name in doc["options"]:
        is_shared = name in (
            "address",
            "user",
            "password",
            "token",
            "ca_file",
            "validate_certs",
            "timeout",
        )
        assert is_shared or f'"{name}"' in options, name
