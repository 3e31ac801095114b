"""Uploads of images on a real cluster: the manual page's example word for word, and a change of the master."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.paths import RAPI_PORT
from ganeti.bootstrap.daemons import RAPI
from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.masters import fail_over, rest_cluster
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(240)]
MANUAL = Path(__file__).resolve().parents[2] / "docs/man/ganeti-rapi.md"
DATA = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with rest_cluster("anna secret write\n") as made:
        yield made


def example(cluster: LocalCluster, number: int, directory: Path) -> str:
    """The script of the manual page, for the server of a node."""
    found = re.search(r"```sh\n(api=.*?)```", MANUAL.read_text(), re.DOTALL)
    assert found
    script = found[1]
    node = cluster.node(number)
    shutil.copy(node.paths.rapi_certificate, directory / "rapi.pem")
    name = (node.paths.ssconf / "ssconf_cluster_name").read_text().strip()
    where = f"--connect-to {name}:{RAPI_PORT}:{node.address}:{RAPI_PORT}"
    assert "cluster.example.com" in script
    script = script.replace("cluster.example.com", name)
    return script.replace("--cacert rapi.pem", f"--cacert rapi.pem {where}")


def run(script: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    words = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        words, cwd=directory, capture_output=True, text=True, check=False, timeout=100 * patience()
    )


@pytest.mark.requirement("A51")
def test_example_of_the_manual_page_imports_an_image(cluster: LocalCluster, tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("jq") is None:
        pytest.skip("curl or jq is not installed on this host")
    (tmp_path / "disk.raw").write_bytes(DATA)
    done = run(example(cluster, 1, tmp_path), tmp_path)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[-1])
    with cluster.luxi() as client:
        assert ended(client, job) == ["success", [[hashlib.sha256(DATA).hexdigest()]]]
    assert "box" in cluster.ok("gnt-image", "list", "--no-headers").out
    cluster.ok("gnt-image", "remove", "-f", "box")


def ended(client: LuxiClient, job: int) -> list[object]:
    for _change in client.wait_for_job(job):
        pass
    [found] = client.call("QueryJobs", [job], ["status", "opresult"])
    return list(found)


def uploads(cluster: LocalCluster) -> list[Path]:
    return sorted(cluster.node(1).paths.image_uploads.iterdir())


def test_file_outside_the_directories_for_images_is_imported(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "disk.raw").write_bytes(DATA)
    before = uploads(cluster)
    said = cluster.ok("gnt-image", "import", "crate", str(tmp_path / "disk.raw")).out
    assert "copying" in said
    assert uploads(cluster) == before
    cluster.ok("gnt-image", "remove", "-f", "crate")


def test_change_of_the_master_loses_an_upload_cleanly(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "disk.raw").write_bytes(DATA)
    begun, _, _rest = example(cluster, 1, tmp_path).partition("# Continue")
    done = run(f"{begun}\ncurl $api/image-uploads/$id", tmp_path)
    assert done.returncode == 0, done.stderr
    upload = json.loads(done.stdout.splitlines()[-1])
    assert upload["offset"] == len(DATA) // 2
    fail_over(cluster, 2)
    try:
        _check_new_master(cluster, tmp_path, upload["id"])
    finally:
        fail_over(cluster, 1)
        wait_until(lambda: cluster.runs(RAPI), "the REST server runs")


def _check_new_master(cluster: LocalCluster, tmp_path: Path, ident: str) -> None:
    wait_until(lambda: cluster.runs(RAPI, 2), "the REST server runs on the new master")
    head, _, _rest = example(cluster, 2, tmp_path).partition("id=")
    script = head.replace("--fail", "--fail-with-body") + f"curl $api/image-uploads/{ident}"
    refused = run(script, tmp_path)
    assert refused.returncode != 0
    assert "begin it again" in refused.stdout
    again = run(example(cluster, 2, tmp_path), tmp_path)
    assert again.returncode == 0, again.stderr
    with LuxiClient(cluster.node(2).paths) as client:
        assert ended(client, int(again.stdout.split()[-1]))[0] == "success"
    assert cluster.run("gnt-image", "remove", "-f", "box", node=2).status == 0
