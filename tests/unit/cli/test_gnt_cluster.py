import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ganeti import uidpool
from ganeti.api.cluster_info import cluster_info
from ganeti.base.errors import HostError
from ganeti.bootstrap import destroy as bootstrap_destroy
from ganeti.bootstrap import init as bootstrap_init
from ganeti.bootstrap.init import InitOptions, NewCluster, check_options
from ganeti.cli.gnt_cluster import table
from ganeti.model.cluster_params import CLUSTER_PARAMS
from tests.unit.cli.fake_master import FakeMaster, Run
from tests.unit.query.cluster import snapshot


def verify_job(master: FakeMaster, *results: bool) -> None:
    """The original's protocol: one job that names the others."""
    master.job("* Verifying cluster config")
    jobs = {7: {"jobs": [[True, 8 + number] for number in range(len(results))]}}
    jobs.update({8 + number: result for number, result in enumerate(results)})  # type: ignore[misc] # results of both kinds
    master.replies["QueryJobs"] = lambda ids, _fields: [["success", ["success"], [jobs[ids[0]]]]]


@pytest.mark.parametrize(
    ("results", "code"), [([True, True], 0), ([True, False], 1), ([False, True], 1)]
)
def test_verify_follows_the_jobs_that_its_job_submits(
    master: FakeMaster, run: Run, results: list[bool], code: int
) -> None:
    verify_job(master, *results)
    found, out, _err = run(table, "verify", "--error-codes", "--ignore-errors", "ENODEVERSION")
    assert found == code
    assert out.splitlines() == [
        "Tue Nov 14 22:13:21 2023 * Verifying cluster config",
        "Submitted jobs 8, 9",
        "Waiting for job 8 ...",
        "Tue Nov 14 22:13:21 2023 * Verifying cluster config",
        "Waiting for job 9 ...",
        "Tue Nov 14 22:13:21 2023 * Verifying cluster config",
    ]
    [op] = master.args_of("SubmitJob")[0]
    assert (op["error_codes"], op["ignore_errors"]) == (True, ["ENODEVERSION"])


@pytest.mark.parametrize("is_degraded", [False, True])
def test_a_ping_reports_whether_the_state_has_one_copy_only(
    master: FakeMaster, run: Run, is_degraded: bool
) -> None:
    master.replies["QueryConfigValues"] = ["cluster.example.com"]
    master.is_degraded = is_degraded
    found, out, err = run(table, "master-ping")
    assert (found, out) == (0, "")
    assert ("degraded" in err) == is_degraded


def test_verify_fails_if_one_of_its_jobs_does(master: FakeMaster, run: Run) -> None:
    verify_job(master, True)
    normal = master.replies["QueryJobs"]
    master.replies["QueryJobs"] = lambda ids, fields: (
        normal(ids, fields) if ids == [7] else [["error", ["error"], [["OpExecError", ["broke"]]]]]
    )
    code, out, _err = run(table, "verify")
    assert code == 1
    assert "Job 8 failed: broke" in out


def test_verify_prints_the_findings_of_its_jobs_as_objects(master: FakeMaster, run: Run) -> None:
    verify_job(master, True, False)
    follows = master.replies["QueryJobs"]
    log = [
        [1, [0, 0], "message", "* Verifying"],
        [2, [0, 0], "message", "  - ERROR:ENODELVM:node:n1:no group: x"],
    ]
    master.replies["QueryJobs"] = lambda ids, fields: (
        [[[log]]] if fields == ["oplog"] else follows(ids, fields)
    )
    code, out, _err = run(table, "verify", "--json", "--error-codes")
    finding = {
        "severity": "error",
        "code": "ENODELVM",
        "kind": "node",
        "name": "n1",
        "text": "no group: x",
    }
    assert code == 1
    assert json.loads(out) == {
        "is_successful": False,
        "errors": 2,
        "warnings": 0,
        "findings": [{**finding, "job": 8}, {**finding, "job": 9}],
        "jobs": [{"id": 8, "error": None}, {"id": 9, "error": None}],
    }


def test_info_begins_as_ever(master: FakeMaster, run: Run) -> None:
    master.replies["QueryClusterInfo"] = cluster_info(snapshot(), degraded=False)
    code, out, _err = run(table, "info")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "Cluster name: cluster.example.com"
    assert "Master node: node1.example.com" in lines
    assert "Tags: lab" in lines
    assert "Enabled hypervisors: fake" in lines
    assert lines[lines.index("Hypervisor parameters: ") + 1 :][:2] == [
        "  fake: ",
        "    migration_mode: live",
    ]
    assert "  candidate pool size: 10" in lines
    assert "  mac prefix: aa:00:00" in lines


def test_info_reports_what_keeps_the_state(master: FakeMaster, run: Run) -> None:
    for kind, shown in (("etcd", "etcd"), ("embedded", "the candidates")):
        state = {"kind": kind, "holders": ["node1.example.com", "node2.example.com"]}
        master.replies["QueryClusterInfo"] = cluster_info(snapshot(), degraded=False, state=state)
        out = run(table, "info")[1]
        assert f"State kept by: {shown} (node1.example.com, node2.example.com)" in out
    elsewhere = {"kind": "etcd", "holders": []}
    master.replies["QueryClusterInfo"] = cluster_info(snapshot(), degraded=False, state=elsewhere)
    assert "State kept by: etcd (on other hosts)" in run(table, "info")[1]


def test_info_reports_if_the_state_has_one_copy_only(master: FakeMaster, run: Run) -> None:
    master.replies["QueryClusterInfo"] = cluster_info(snapshot(), degraded=True)
    assert "State: degraded: held by the master alone" in run(table, "info")[1]


@pytest.mark.requirement("S109")
def test_info_shows_every_parameter(master: FakeMaster, run: Run) -> None:
    changed = structs.replace(
        snapshot().cluster,
        enabled_data_collectors={"lv": False},
        default_iallocator_params={"no-capacity-checks": True},
    )
    known = replace(snapshot(), cluster=changed)
    master.replies["QueryClusterInfo"] = cluster_info(known, degraded=False)
    lines = run(table, "info")[1].splitlines()
    shown = {line.partition(":")[0].strip() for line in lines}
    # How often collectors run is said beside whether they do.
    headings = {p.heading for n, p in CLUSTER_PARAMS.items() if n != "data_collector_interval"}
    assert headings <= shown
    assert "    lv: off, every 5 s" in lines
    assert "    no-capacity-checks: True" in lines


def test_info_shows_the_pool_of_user_ids_as_modify_takes_it(master: FakeMaster, run: Run) -> None:
    pool = ((61000, 61009), (62000, 62000))
    known = snapshot()
    known = replace(known, cluster=structs.replace(known.cluster, uid_pool=pool))
    master.replies["QueryClusterInfo"] = cluster_info(known, degraded=False)
    [line] = [line for line in run(table, "info")[1].splitlines() if "uid pool" in line]
    definition = line.partition(":")[2].strip()
    assert uidpool.ParseUidPool(definition) == list(pool)
    master.job()
    assert run(table, "modify", f"--uid-pool={definition}")[0] == 0
    assert master.args_of("SubmitJob")[0][0]["uid_pool"] == [list(one) for one in pool]


def test_version_shows_all_interfaces(master: FakeMaster, run: Run) -> None:
    master.replies["QueryClusterInfo"] = cluster_info(snapshot(), degraded=False)
    code, out, _err = run(table, "version")
    assert code == 0
    assert "Software version: 4.0.0" in out
    assert "OS api version: 20" in out


def test_getmaster_needs_no_master(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "var/lib/ganeti"
    data.mkdir(parents=True)
    assert run(table, "getmaster")[0] == 5
    (data / "ssconf_master_node").write_text("node3.example.com\n")
    assert run(table, "getmaster") == (0, "node3.example.com\n", "")


@pytest.fixture
def founded(monkeypatch: pytest.MonkeyPatch) -> list[InitOptions]:
    given: list[InitOptions] = []

    async def found(options: InitOptions, **_rest: Any) -> NewCluster:
        check_options(options)
        given.append(options)
        return NewCluster("c", "n", "f")

    monkeypatch.setattr(bootstrap_init, "init_cluster", found)
    return given


def test_init_passes_the_options_on(
    master: FakeMaster, run: Run, founded: list[InitOptions]
) -> None:
    master.job()
    words = (
        "init --enabled-hypervisors=fake,kvm -H kvm:kernel_path=/boot/k,no_acpi -B memory=256"
        " -N mode=routed,link=100 -D plain:stripes=2 --enabled-disk-templates=file,diskless -I hail -C 3"
        " --file-storage-dir=/srv/f --shared-file-storage-dir=/srv/s -m aa:00:01"
        " --master-netdev=lo --master-netmask=8 -s 192.0.2.9 --primary-ip=192.0.2.1"
        " --node-port=1911 --uid-pool=61000-61009 --primary-ip-version=4 --no-etc-hosts --no-ssh-init cluster.invalid"
    )
    assert run(table, *words.split()) == (0, "", "")
    [options] = founded
    assert options == InitOptions(
        cluster_name="cluster.invalid",
        node_name="node1.example.com",
        primary_ip="192.0.2.1",
        secondary_ip="192.0.2.9",
        port=1911,
        params={
            "master_netdev": "lo",
            "master_netmask": 8,
            "mac_prefix": "aa:00:01",
            "enabled_hypervisors": ["fake", "kvm"],
            "enabled_disk_templates": ["file", "diskless"],
            "hvparams": {"kvm": {"kernel_path": "/boot/k", "acpi": False}},
            "beparams": {"memory": 256},
            "nicparams": {"mode": "routed", "link": "100"},
            "diskparams": {"plain": {"stripes": "2"}},
            "candidate_pool_size": 3,
            "default_iallocator": "hail",
            "uid_pool": [(61000, 61009)],
            "file_storage_dir": "/srv/f",
            "shared_file_storage_dir": "/srv/s",
        },
    )
    [op] = master.args_of("SubmitJob")[0]
    assert op["OP_ID"] == "OP_CLUSTER_POST_INIT"


def test_init_takes_the_address_of_a_virtual_node(
    master: FakeMaster, run: Run, founded: list[InitOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ADDRESS", "127.0.9.1")
    master.job()
    assert run(table, "init", "cluster.invalid")[0] == 0
    assert founded[0].primary_ip == "127.0.9.1"


def test_a_wrong_init_names_the_fault(run: Run, founded: list[InitOptions]) -> None:
    words = ["init", "--primary-ip=192.0.2.1", "--enabled-hypervisors=nosuch", "cluster.invalid"]
    code, _out, err = run(table, *words)
    assert code == 1
    assert "error type: wrong_input" in err
    assert "nosuch" in err
    assert founded == []


def test_destroy_must_be_meant(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    destroyed: list[Any] = []

    async def destroy(paths: Any, _daemons: Any) -> None:
        await asyncio.sleep(0)
        destroyed.append(paths.root)

    monkeypatch.setattr(bootstrap_destroy, "destroy", destroy)
    master.job()
    assert run(table, "destroy")[0] == 13
    assert (destroyed, master.requests) == ([], [])
    assert run(table, "destroy", "--yes-do-it")[0] == 0
    assert len(destroyed) == 1


def test_a_cluster_that_may_not_be_destroyed_stays(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def destroy(*_args: Any) -> None:
        raise HostError("must not be called")

    monkeypatch.setattr(bootstrap_destroy, "destroy", destroy)
    master.job(result=["OpPrereqError", ["there are nodes", "wrong_state"]], status="error")
    code, _out, err = run(table, "destroy", "--yes-do-it")
    assert code == 1
    assert "there are nodes" in err


def test_the_queue_can_be_drained(master: FakeMaster, run: Run) -> None:
    master.replies["SetDrainFlag"] = True
    master.replies["QueryConfigValues"] = [True]
    assert run(table, "queue", "drain") == (0, "", "")
    assert run(table, "queue", "info")[1] == "The drain flag is set\n"
    assert run(table, "queue", "burn")[0] == 1


def test_a_backup_is_asked_for_by_its_absolute_path(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    master.replies["BackupState"] = 8589934599
    code, out, _err = run(table, "backup", "today")
    assert (code, out) == (0, f"Wrote the state at position 8589934599 to {tmp_path}/today.\n")
    assert master.args_of("BackupState") == [f"{tmp_path}/today"]


def test_a_restore_needs_a_member_of_a_cluster(run: Run, tmp_path: Path) -> None:
    code, _out, err = run(table, "restore", str(tmp_path / "backup"))
    assert code == 1
    assert "not a member of a cluster" in err
