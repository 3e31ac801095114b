import ssl
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.store.etcd.settings import access
from ganeti.store.settings import StateSettings


@pytest.mark.parametrize(("scheme", "is_private"), [("https", True), ("http", False)])
def test_servers_of_others_show_certificates_that_the_system_trusts(
    tmp_path: Path, scheme: str, *, is_private: bool
) -> None:
    settings = StateSettings(
        kind="etcd", endpoints=(f"{scheme}://etcd.example.com:2379",), is_managed=False
    )
    context = access(Paths(tmp_path), settings).tls
    assert (context is not None) == is_private
    if context is not None:
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        system = ssl.create_default_context().cert_store_stats()
        assert context.cert_store_stats() == system
