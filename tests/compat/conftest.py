import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from ganeti.base.paths import RAPI_PORT
from ganeti.bootstrap.daemons import RAPI
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.rest import credentials

USERS = "tour secret write\ntenant secret write,name=mine*\nreader secret read\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes and a REST server, with users `tour` (write), `tenant` (limited to `mine*`) and `reader`."""
    with local_cluster("--rapi", nodes=2) as one:
        one.install_noop()
        users = one.node(1).paths.rapi_users
        users.write_text(USERS)
        users.chmod(0o600)
        wait_until(lambda: one.runs(RAPI), "the REST server runs")
        wait_until(lambda: _is_known(one, "reader"), "the REST server has read its users")
        yield one


@pytest.fixture(scope="module")
def trusted(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's certificate without its key, as clients have it."""
    text = cluster.node(1).paths.rapi_certificate.read_text()
    path = tmp_path_factory.mktemp("rapi") / "rapi.pem"
    path.write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    return path


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> str:
    return f"{cluster.node(1).address}:{RAPI_PORT}"


def _is_known(cluster: LocalCluster, user: str) -> bool:
    """Whether the server has looked at the file of its users since that has this one."""
    certificate = cluster.node(1).paths.rapi_certificate
    context = ssl.create_default_context(cafile=certificate)
    url = f"https://{cluster.node(1).address}:{RAPI_PORT}/2/info"
    request = urllib.request.Request(url, headers={"Authorization": credentials(user)})
    try:
        with urllib.request.urlopen(request, timeout=20, context=context):  # noqa: S310 - https
            return True
    except urllib.error.HTTPError as err:
        if err.code != HTTPStatus.UNAUTHORIZED:
            raise
        return False
