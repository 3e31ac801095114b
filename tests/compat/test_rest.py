"""The REST server of a real cluster, and foreign clients that know nothing of us."""

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import RAPI_PORT
from ganeti.bootstrap.daemons import MASTERD, RAPI
from tests.support.debian_packages import environment, unpacked
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import patience, ran
from tests.support.rest import credentials

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
TOUR = Path(__file__).with_name("rapi_client_tour.py")

REFUSED_HERE = {
    "PrepareExport", "ExportInstance", "ModifyNodeStorageUnits", "RepairNodeStorageUnits",
    "InstancesMultiAlloc",  # of an empty list
}  # fmt: skip
"""Calls that this cluster's state may refuse, but not because they are not understood."""
FAILS = {
    "FailoverInstance": "its disks are files of one node",
    "MigrateInstance": "its disks are files of one node",
    "ReplaceInstanceDisks": "nothing is mirrored",
    "RecreateInstanceDisks": "its disk exists, and data is never overwritten",
}
"""Calls whose jobs fail here, as they do against Ganeti, and why."""


def said(cluster: LocalCluster, address: str) -> list[dict[str, Any]]:
    """What the tour of the client says."""
    root = unpacked(
        "python3-ganeti-rapi", "python3-pycurl", "python3-simplejson", "libcurl3-gnutls"
    )
    host, _, port = address.partition(":")
    words = ["/usr/bin/python3", str(TOUR), host, port, "secret", str(cluster.record)]
    has_curl = subprocess.run(
        ["/usr/bin/python3", "-c", "import pycurl, simplejson"],
        env=environment(root), check=False, capture_output=True,
    )  # fmt: skip
    if has_curl.returncode:
        pytest.skip("the client's libraries do not fit this system")
    done = ran(words, env=environment(root), limit_s=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.requirement("S225")
def test_ganetis_own_client_passes_all_of_its_calls(cluster: LocalCluster, address: str) -> None:
    steps = said(cluster, address)
    assert len(steps) > 90
    for one in steps:
        name = one["call"]
        if name in REFUSED_HERE:
            assert one["ok"] or one["code"] in (400, 404, 409), one
        else:
            assert one["ok"], one
            if name not in FAILS:
                assert one.get("job", "success") == "success", one
    assert cluster.names("instance") == set()


def asked(address: str, trusted: Path, path: str, user: str = "tour") -> Any:
    context = ssl.create_default_context(cafile=trusted)
    request = urllib.request.Request(f"https://{address}{path}")
    request.add_header("Authorization", credentials(user))
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310 - https
        return json.load(answer)


def test_the_certificate_is_for_the_address_and_the_clusters_name(
    address: str, trusted: Path
) -> None:
    assert asked(address, trusted, "/version") == 2
    assert asked(address, trusted, "/2/info", "reader")["name"] == "cluster.vcluster.test"


@pytest.mark.requirement("S225")
def test_commands_print_the_objects_of_rest_as_json(
    cluster: LocalCluster, address: str, trusted: Path
) -> None:
    def printed(*words: str) -> Any:
        return json.loads(cluster.ok(*words, "--json").out)

    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), "shown.example.com")
    try:
        for program, path in (
            ("gnt-instance", "/2/instances"),
            ("gnt-group", "/2/groups"),
            ("gnt-network", "/2/networks"),
        ):
            listed, found = printed(program, "list"), asked(address, trusted, f"{path}?bulk=1")
            pairs = zip(listed, found, strict=True)
            differences = [name for one, other in pairs for name in one if one[name] != other[name]]
            assert differences == [], program
        listed, found = printed("gnt-node", "list"), asked(address, trusted, "/2/nodes?bulk=1")
        # Free memory changes from one moment to the next.
        assert [one.keys() for one in listed] == [one.keys() for one in found]
        assert [one["name"] for one in listed] == [one["name"] for one in found]
        assert printed("gnt-cluster", "info").keys() == asked(address, trusted, "/2/info").keys()
        [job] = printed("gnt-job", "info", "1")
        assert job == asked(address, trusted, "/2/jobs/1")
        [instance] = printed("gnt-instance", "info", "shown.example.com")
        assert instance["run_state"] == "up"
    finally:
        cluster.ok("gnt-instance", "remove", "-f", "shown.example.com")


def test_our_placement_tools_read_the_cluster_by_rest(
    cluster: LocalCluster, address: str, trusted: Path, tmp_path: Path
) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), "placed.example.com")
    try:
        url = f"https://reader:secret@{address}"
        trust = ["env", f"SSL_CERT_FILE={trusted}", "python", "-m"]
        score = "Loaded 2 nodes, 1 instance"
        assert score in cluster.ok(*trust, "ganeti.cli.hinfo", "-m", url).out
        assert score in cluster.ok(*trust, "ganeti.cli.hbal", "-m", url).out
        cluster.ok(*trust, "ganeti.cli.hspace", "-m", url, "--disk-template=file")
        cluster.ok(*trust, "ganeti.cli.hscan", "-d", str(tmp_path), url)
        assert "placed.example.com" in next(tmp_path.glob("*.data")).read_text()
    finally:
        cluster.ok("gnt-instance", "remove", "-f", "placed.example.com")


def test_audit_log_records_users_and_changes(
    cluster: LocalCluster, address: str, trusted: Path
) -> None:
    context = ssl.create_default_context(cafile=trusted)
    request = urllib.request.Request(f"https://{address}/2/redistribute-config", method="PUT")
    request.add_header("Authorization", credentials("tour"))
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310 - https
        job_id = json.load(answer)
    assert "tour" in cluster.ok("gnt-cluster", "audit", "--job", str(job_id)).out
    assert cluster.value("job", str(job_id), "source") == "rest:tour"


@pytest.mark.requirement("G21")
def test_a_limited_user_gets_nothing_of_another_tenant(
    cluster: LocalCluster, address: str, trusted: Path
) -> None:
    """Neither its export nor its detached disk, its directory or its name; the user's own works."""
    context = ssl.create_default_context(cafile=trusted)

    def ask(method: str, path: str, body: Any) -> int:
        request = urllib.request.Request(f"https://{address}{path}", method=method)
        request.add_header("Authorization", credentials("tenant"))
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=20, context=context) as answer:  # noqa: S310 - https
                cluster.run("gnt-job", "watch", str(json.load(answer)))
                return int(answer.status)
        except urllib.error.HTTPError as err:
            return err.code

    theirs, mine = "theirs.vcluster.test", "mine1.vcluster.test"
    new = {"__version__": 1, "mode": "create", "disk_template": "file", "disks": [{"size": 4}],
           "nics": [], "no_install": True, "start": False}  # fmt: skip
    cluster.ok("gnt-instance", "add", "-t", "file", "--disk", "0:size=4m", "--disk", "1:size=4m,name=loot",
               "--no-install", "-n", "node1", theirs)  # fmt: skip
    cluster.ok("gnt-backup", "export", "-n", "node1", theirs)
    cluster.ok("gnt-instance", "modify", "--disk", "1:detach", theirs)
    imported = {**new, "name": "mine2.vcluster.test", "mode": "import"}
    inside = {**new, "name": "mine2.vcluster.test", "file_storage_dir": theirs}
    assert ask("POST", "/2/instances", {**new, "name": mine}) == 200
    assert ask("POST", "/2/instances", {**new, "name": "other.vcluster.test"}) == 403
    assert ask("POST", "/2/instances", {**imported, "src_path": theirs}) == 403
    assert ask("POST", "/2/instances", {**imported, "src_path": theirs, "src_node": "node1"}) == 403
    assert ask("POST", "/2/instances", inside) == 403
    change = f"/2/instances/{mine}/modify"
    assert ask("PUT", change, {"disks": [["attach", -1, {"name": "loot"}]]}) == 403
    assert ask("PUT", f"/2/instances/{mine}/rename", {"new_name": "other.vcluster.test"}) == 403
    assert ask("PUT", change, {"beparams": {"vcpus": 2}}) == 200
    assert cluster.names("instance") == {theirs, mine}
    assert cluster.value("instance", mine, "disk.count") == "1"
    assert cluster.value("instance", mine, "be/vcpus") == "2"
    cluster.ok("gnt-backup", "export", "-n", "node1", mine)
    own = {name: one for name, one in imported.items() if name != "no_install"}
    assert ask("POST", "/2/instances", {**own, "src_path": mine}) == 200
    assert cluster.names("instance") == {theirs, mine, "mine2.vcluster.test"}
    for name in (theirs, mine):
        cluster.ok("gnt-backup", "remove", name)
    for name in (theirs, mine, "mine2.vcluster.test"):
        cluster.ok("gnt-instance", "remove", "-f", name)


@pytest.mark.requirement("G1")
def test_simulation_of_the_real_cluster_changes_nothing_of_it(
    cluster: LocalCluster, address: str, trusted: Path
) -> None:
    def ask(method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"https://{address}{path}", method=method)
        request.add_header("Authorization", credentials("reader"))
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        context = ssl.create_default_context(cafile=trusted)
        with urllib.request.urlopen(request, data, timeout=90, context=context) as answer:  # noqa: S310 - https
            return json.load(answer)

    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), "shown.example.com")
    try:
        before = cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").lines
        steps = [{"at": "1m", "fail-node": "node2"}]
        begun = ask("POST", "/2/whatif", {"scenario": {"steps": steps}, "node_size": "64g,1t,8"})
        path = f"/2/whatif/{begun['id']}"
        wait_until(lambda: ask("GET", path)["state"] != "running", "the simulation ends")
        found = ask("GET", path)
        assert (found["state"], found["error"]) == ("done", "")
        down = [one["instance"] for one in found["report"]["run"]["outages"]]
        assert down == ["shown.example.com"]
        assert cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").lines == before
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask("POST", "/2/whatif", {"scenario": {"steps": [{"fail-node": "node9"}]}})
        assert "there is no node" in json.load(refused.value)["explain"]
    finally:
        cluster.ok("gnt-instance", "remove", "-f", "shown.example.com")


@pytest.mark.requirement("S225")
def test_server_is_restarted_and_survives_its_master(
    cluster: LocalCluster, address: str, trusted: Path
) -> None:
    cluster.kill(MASTERD)
    begun = time.monotonic()
    cluster.start(MASTERD)
    assert asked(address, trusted, "/2/nodes")[0]["id"] == "node1.vcluster.test"
    assert time.monotonic() - begun < 60 * patience()
    cluster.kill(RAPI)
    cluster.start(RAPI)
    wait_until(lambda: asked(address, trusted, "/version") == 2, "it serves again")
    status = Path(f"/proc/{cluster.pid(RAPI)}/status").read_text()
    assert "Uid:" in status
    assert f":{RAPI_PORT}" in address
