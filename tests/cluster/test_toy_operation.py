"""A new operation is an opcode that declares it and a unit: command, REST route and LUXI request follow.

The daemons and commands here run a copy of the program that has two files more (`tests/support/toy/`).
"""

import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ganeti
from ganeti.base.paths import RAPI_PORT
from ganeti.bootstrap.daemons import RAPI
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import ran
from tests.support.rest import credentials

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120),
    pytest.mark.whole_starts("the program has an operation more than the one that runs the tests"),
]

TOY = Path(__file__).parents[1] / "support" / "toy"
FILES = ("model/opcodes/toy.py", "units/group/toy.py")
INDEX = "cli/command_index.json"
Command = Callable[..., str]


def copy_by_links(source: Path, target: Path, own: list[Path]) -> None:
    """Make `target` a directory with links to what is in `source`; real directories lead to the `own` files."""
    target.mkdir()
    for entry in source.iterdir():
        inside = [path for path in own if path.is_relative_to(entry)]
        if entry.is_dir() and inside:
            copy_by_links(entry, target / entry.name, inside)
        elif entry not in own:
            (target / entry.name).symlink_to(entry)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a program with the toy operation; daemons that start now run it."""
    source, target = Path(ganeti.__file__).resolve().parent, tmp_path / "ganeti"
    # A program finds itself by the real path of its first module.
    copy_by_links(source, target, [source / one for one in (*FILES, INDEX, "__init__.py")])
    (target / "__init__.py").write_bytes((source / "__init__.py").read_bytes())
    for file in FILES:
        (target / file).symlink_to(TOY / file)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (target / INDEX).write_text("{}")
    subprocess.run([sys.executable, "-m", "ganeti.cli.command_index"], check=True)
    return tmp_path


@pytest.fixture
def cluster(program: Path) -> Iterator[LocalCluster]:
    with local_cluster("--rapi", nodes=1) as made:
        users = made.node(1).paths.rapi_users
        users.write_text("tour secret operator\n")
        users.chmod(0o600)
        wait_until(lambda: made.runs(RAPI), "the REST server runs")
        yield made


@pytest.fixture
def command(cluster: LocalCluster, program: Path) -> Command:
    def run(*words: str) -> str:
        environment = {**os.environ, **cluster.environment(1), "PYTHONPATH": str(program)}
        done = ran(words, env=environment, limit_s=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def rest(cluster: LocalCluster, method: str, path: str, body: object = None) -> object:
    node = cluster.node(1)
    context = ssl.create_default_context(cafile=node.paths.rapi_certificate)
    context.check_hostname = False
    connection = http.client.HTTPSConnection(node.address, RAPI_PORT, timeout=30, context=context)
    headers = {"Authorization": credentials("tour"), "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, content
    return content


def test_new_operation_runs_by_command_rest_and_luxi(
    cluster: LocalCluster, command: Command
) -> None:
    name = cluster.node(1).name
    assert "  greet " in command("gnt-group", "--help")
    assert "--greeting TEXT" in command("gnt-group", "greet", "--help")
    assert command("gnt-group", "hail", "default") == f"hello, {name}\n"
    assert command("gnt-group", "greet", "--greeting", "hi", "default") == f"hi, {name}\n"

    document = rest(cluster, "GET", "/2/openapi.json")
    assert isinstance(document, dict)
    declared = document["paths"]["/2/groups/{group}/greet"]["put"]
    assert (declared["operationId"], declared["summary"], declared["x-ganeti-opcode"]) == (
        "put_groups_name_greet", "Greet the nodes of a group", "OP_GROUP_GREET",
    )  # fmt: skip
    job_id = rest(cluster, "PUT", "/2/groups/default/greet", {"greeting": "moin"})

    with cluster.luxi() as client:
        assert isinstance(job_id, int)
        other = client.submit_job([{"OP_ID": "OP_GROUP_GREET", "group_name": "default"}], "key")
        for one, said in ((job_id, "moin"), (other, "hello")):
            statuses = [change.status for change in client.wait_for_job(one)]
            assert statuses[-1] == "success"
            assert client.query_jobs([one], ["opresult"]) == [[[[f"{said}, {name}"]]]]
