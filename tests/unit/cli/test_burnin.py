"""burnin: what it does with which instances, and that nothing is left, against a pretended cluster."""

import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ganeti.base.errors import ExecError, InputError, PrereqError
from ganeti.cli import burnin
from ganeti.cli.burnin import OPTIONAL, options_of, parser, run, wait_for_http
from ganeti.cli.burnin_steps import STEPS, BurninOptions, Guest, steps
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import RebootType
from tests.unit.cli.fake_master import FakeMaster

NODES = ("node1", "node2", "node3")
ORIGINAL = (
    "-o --os --disk-size --disk-growth --mem-size --maxmem-size --minmem-size --vcpu-count -H --hypervisor"
    " -O --os-parameters --no-replace1 --no-replace2 --no-failover --no-migrate --no-move --no-importexport"
    " --no-startstop --no-reinstall --no-reboot --no-renamesame --reboot-types --no-activate-disks"
    " --no-add-disks --no-add-nics --no-nics --no-confd --rename -t --disk-template -n --nodes -I"
    " --iallocator -p --parallel --net-timeout -C --http-check -K --keep-instances -d --debug -v --verbose"
    " --no-ip-check --no-name-check -e --early-release --reason"
)


class Cluster:
    """Three nodes; instances come and go as jobs say. A job that has the opcode `fails` fails there."""

    def __init__(self, master: FakeMaster, fails: str = "", kept: str = "") -> None:
        self.instances: dict[str, dict[str, Any]] = {}
        self.nodes = {
            name: {"offline": False, "drained": False, "vm_capable": True} for name in NODES
        }
        self.done: list[tuple[str, ...]] = []
        self.together: list[int] = []
        self._fails = fails
        self._ended: dict[int, tuple[str, list[str]]] = {}
        if kept:
            self.instances[kept] = {"name": kept, "pnode": "node1", "snodes": [], "tags": []}
        master.replies |= {
            "Query": self._query,
            "SubmitManyJobs": self._submit,
            "WaitForJobChange": lambda job, *_rest: [[self._ended[job][0]], []],
            "QueryJobs": lambda ids, _fields: [self._row(job) for job in ids],
        }

    def _query(self, kind: str, fields: list[str], wanted: Any) -> dict[str, Any]:
        rows = [{"name": name, **facts} for name, facts in self.nodes.items()]
        if kind == "instance":
            rows = [one for one in self.instances.values() if wanted[2] in one["tags"]]
        return {"fields": [], "data": [[[0, row[name]] for name in fields] for row in rows]}

    def _submit(self, jobs: list[list[dict[str, Any]]], _key: object = None) -> list[Any]:
        self.together.append(len(jobs))
        return [[True, self._run(ops)] for ops in jobs]

    def _run(self, ops: list[dict[str, Any]]) -> int:
        job, status, kinds = len(self._ended) + 1, "success", []
        for op in ops:
            kind = op["OP_ID"].removeprefix("OP_")
            kinds.append(kind)
            if kind == self._fails:
                status = "error"
                break
            name = op["instance_name"]
            if kind == "INSTANCE_CREATE":
                assert name not in self.instances
                self.instances[name] = {
                    "name": name,
                    "pnode": op["pnode"],
                    "snodes": [op["snode"]] if op["snode"] else [],
                    "tags": op["tags"],
                }
            elif kind == "INSTANCE_REMOVE":
                del self.instances[name]
            elif kind == "INSTANCE_RENAME":
                one = self.instances.pop(name)
                self.instances[op["new_name"]] = {**one, "name": op["new_name"]}
            elif not kind.startswith("BACKUP"):
                assert name in self.instances, kind
        self.done.append(tuple(kinds))
        self._ended[job] = (status, kinds)
        return job

    def _row(self, job: int) -> list[Any]:
        status, kinds = self._ended[job]
        each = ["success"] * (len(kinds) - 1) + [status]
        return [status, each, ["it broke" if one == "error" else None for one in each]]


def burn(*words: str) -> int:
    return run(["-o", "noop", "--no-confd", *words])


def options(*words: str) -> BurninOptions:
    return options_of(parser().parse_args(["-o", "noop", *words, "b1"]))


def test_every_option_of_upstream_is_taken() -> None:
    known = {flag for action in parser()._actions for flag in action.option_strings}
    assert set(ORIGINAL.split()) - known == set()


def test_what_the_options_name_are_steps() -> None:
    named = {name for name, _meaning in OPTIONAL} - {burnin.CONFD}
    assert {one.name for one in STEPS} - named == {"grow", "rename"}
    assert set(burnin.REBOOTS) == set(RebootType)
    (templates,) = (one.choices for one in parser()._actions if one.dest == "disk_template")
    assert set(DISK_TEMPLATES) - set(templates or ()) == {"blockdev", "ext"}


@pytest.mark.parametrize(
    ("template", "nodes", "without"),
    [
        ("drbd", 3, {"move", "rename"}),
        ("drbd", 2, {"move", "rename", "replace2"}),
        ("plain", 2, {"failover", "migrate", "replace1", "replace2", "rename"}),
        ("file", 1, {"failover", "migrate", "replace1", "replace2", "move", "rename"}),
        ("sharedfile", 2, {"replace1", "replace2", "move", "rename"}),
        ("diskless", 2, {"replace1", "replace2", "move", "rename", "grow", "importexport",
                         "activate-disks", "add-disks"}),
    ],
)  # fmt: skip
def test_a_template_has_the_steps_that_it_can_do(
    template: str, nodes: int, without: set[str]
) -> None:
    found = {one.name for one in steps(options("-t", template), nodes)}
    assert found == {one.name for one in STEPS} - without


def test_every_step_may_be_left_out() -> None:
    left = options(*(f"--no-{name}" for name, _meaning in OPTIONAL), "--disk-growth=0")
    assert steps(left, 3) == []


def asked(name: str, wanted: BurninOptions, guest: Guest, *fields: str) -> list[list[Any]]:
    """These fields of the opcodes of a step."""
    (step,) = (one for one in STEPS if one.name == name)
    return [[getattr(op, field, None) for field in fields] for op in step.ops(wanted, guest)]


def test_an_instance_comes_back_to_where_it_was() -> None:
    guest = Guest("b1", "t", "node2", None, ("node3", "node1"))
    ways = [["node3"], ["node2"]]
    assert asked("failover", options("-t", "sharedfile"), guest, "target_node") == ways
    assert asked("move", options("-t", "file"), guest, "target_node") == ways


def test_a_mirror_goes_to_its_other_node_and_gets_a_new_one() -> None:
    mirror = Guest("b1", "t", "node2", "node3", ("node1",))
    ways = asked("migrate", options(), mirror, "target_node", "cleanup")
    assert ways == [[None, False], [None, True], [None, False]]
    new = asked("replace2", options("-e"), mirror, "remote_node", "early_release")
    assert new == [["node1", True]]
    by_name = asked("replace2", options("-I", "hail"), mirror, "remote_node", "iallocator")
    assert by_name == [[None, "hail"]]


def test_an_import_is_where_the_instance_was_from_a_node_where_it_was_not() -> None:
    mirror = Guest("b1", "t", "node2", "node3", ("node1",))
    found = asked("importexport", options(), mirror, "target_node", "src_node", "pnode", "snode")
    assert found[1][0] == "node1"
    assert found[3][1:] == ["node1", "node2", "node3"]


def test_all_is_done_with_each_and_nothing_is_left(master: FakeMaster) -> None:
    cluster = Cluster(master, kept="web1")
    assert burn("-t", "drbd", "b1", "b2") == 0
    assert list(cluster.instances) == ["web1"]
    assert set(cluster.together) == {1}
    done = [kind for job in cluster.done for kind in job]
    for kind in (
        "MIGRATE",
        "FAILOVER",
        "REPLACE_DISKS",
        "GROW_DISK",
        "REBOOT",
        "REINSTALL",
        "RENAME",
    ):
        assert f"INSTANCE_{kind}" in done
    assert done.count("INSTANCE_CREATE") == 4, "both are made, and imported"


def test_instances_are_spread_over_the_nodes_and_done_together(master: FakeMaster) -> None:
    cluster = Cluster(master)
    cluster.nodes["node2"]["drained"] = True
    assert burn("-p", "-K", "-t", "drbd", "--no-importexport", "b1", "b2") == 0
    assert set(cluster.together) == {2}
    where = {name: (one["pnode"], one["snodes"]) for name, one in cluster.instances.items()}
    assert where == {"b1": ("node1", ["node3"]), "b2": ("node3", ["node1"])}


@pytest.mark.parametrize("kind", ["INSTANCE_CREATE", "INSTANCE_MIGRATE", "INSTANCE_RENAME"])
def test_a_step_that_fails_ends_it_and_what_was_made_is_removed(
    master: FakeMaster, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    cluster = Cluster(master, fails=kind, kept="web1")
    assert burn("-t", "sharedfile", "b1", "b2") == 1
    assert list(cluster.instances) == ["web1"]
    said = capsys.readouterr()
    assert "Failure: b1: " in said.err
    assert "it broke" in said.err
    assert "failed" in said.out
    assert "Reboot" not in said.out or kind == "INSTANCE_RENAME"


def test_an_instance_under_its_other_name_is_removed_too(master: FakeMaster) -> None:
    cluster = Cluster(master)
    real, renames = cluster._run, []

    def fail_back(ops: list[dict[str, Any]]) -> int:
        if len(ops) > 4:
            renames.append(ops)
            cluster._fails = "INSTANCE_SHUTDOWN"
            ops = [ops[1], ops[3]]  # the one to the other name is done
        elif renames:
            cluster._fails = ""
        return real(ops)

    cluster._run = fail_back  # type: ignore[method-assign] # the job of --rename breaks off in its middle
    burn_out = burn("-t", "diskless", "--no-reinstall", "--rename", "b9", "b1")
    assert (burn_out, cluster.instances, len(renames)) == (1, {}, 1)


def test_what_was_made_is_removed_when_it_is_interrupted(
    master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(master)

    def interrupt(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(burnin.Trial, "_check_alive", interrupt)
    assert burn("-t", "file", "b1") == 1
    assert cluster.instances == {}
    assert cluster.done == [("INSTANCE_CREATE",), ("INSTANCE_REMOVE",)]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["-o", ""], "--os"),
        (["--disk-size=1G,1G"], "--disk-growth"),
        (["--disk-size=x"], "--disk-size"),
        (["--rename", "x", "b2"], "--rename"),
        (["-n", "node1", "-I", "hail"], "--iallocator"),
        (["--reboot-types=soft,odd"], "--reboot-types"),
        (["--vcpu-count=0"], "--vcpu-count"),
        (["--net-timeout=-1"], "--net-timeout"),
        (["b1"], "instances"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(words: list[str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        burn("b1", *words)
    assert field in str(refused.value)


@pytest.mark.parametrize("words", [["-n", "node9"], ["-n", "node2"], ["-n", "node1", "-t", "drbd"]])
def test_nodes_that_will_not_do_are_refused_before_anything_is_made(
    master: FakeMaster, words: list[str]
) -> None:
    cluster = Cluster(master)
    cluster.nodes["node2"]["offline"] = True
    with pytest.raises(PrereqError):
        burn("b1", *words)
    assert cluster.done == []


class Guests(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the base class calls it so
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"127.0.0.1\n" if self.path == "/hostname.txt" else b"?")

    def log_message(self, *_given: object) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Guests) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_guest_that_serves_its_name_is_alive(port: int) -> None:
    started = time.monotonic()
    wait_for_http("127.0.0.1", 60, port=port)
    assert time.monotonic() - started < 60, "it waited for the time limit"


def test_a_guest_that_serves_another_name_is_not(port: int) -> None:
    with pytest.raises(ExecError, match=r"the guest returned '127\.0\.0\.1'"):
        wait_for_http("localhost", 0, port=port)


def test_a_guest_that_does_not_answer_is_not() -> None:
    with pytest.raises(ExecError, match="refused"):
        wait_for_http("127.0.0.1", 0, port=1)
