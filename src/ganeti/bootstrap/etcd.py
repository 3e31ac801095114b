"""The first etcd server of a new cluster, or external etcd servers, before any master daemon."""

import asyncio
from dataclasses import dataclass

from ganeti.base.clock import Clock
from ganeti.base.errors import HostError, InputError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import ETCD, Daemons
from ganeti.store.etcd.gateway import GatewayError
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.etcd.server import ensure_certificate
from ganeti.store.etcd.settings import (
    ServerSettings,
    StateSettings,
    client_url,
    keep_server_settings,
    peer_url,
)

WRITABLE_S = 60.0


@dataclass(frozen=True)
class ExternalEtcd:
    """An etcd that the administrator runs."""

    urls: tuple[str, ...]
    authority: str = ""
    """A file with the certificates that sign its servers'."""
    credentials: str = ""
    """A file with a user and a password, a line each."""

    def check(self) -> None:
        """InputError."""
        for url in self.urls:
            scheme, _, rest = url.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest:
                raise InputError(
                    f"{url!r:.100} is not a URL such as https://192.0.2.1:2379", "state_urls"
                )
            if scheme == "http" and self.credentials:
                raise InputError("a password must not be sent by plain http", "state_urls")


async def begin_etcd(
    paths: Paths,
    daemons: Daemons,
    clock: Clock,
    *,
    cluster_uuid: str,
    node_uuid: str,
    address: str,
    external: ExternalEtcd | None = None,
) -> StateSettings:
    """Let an etcd of one server run here, or reach the external one; how. HostError, StoreError.

    Nothing is kept: the caller says when the state is there.
    """
    if external is not None and external.urls:
        external.check()
        found = StateSettings(
            kind="etcd",
            endpoints=external.urls,
            is_managed=False,
            authority=external.authority,
            credentials=external.credentials,
        )
    else:
        settings = ServerSettings(
            name=node_uuid,
            cluster_uuid=cluster_uuid,
            address=address,
            initial_cluster=f"{node_uuid}={peer_url(address)}",
            is_new=True,
        )
        keep_server_settings(paths, settings)
        found = StateSettings(kind="etcd", endpoints=(client_url(address),))
        ensure_certificate(paths, cluster_uuid, address, clock.time())
        await daemons.start(ETCD)
    await writable(paths, found, cluster_uuid)
    return found


async def writable(
    paths: Paths, settings: StateSettings, cluster_uuid: str, limit_s: float = WRITABLE_S
) -> None:
    """Return once this etcd has a quorum; HostError if that takes too long."""
    gateway = open_gateway(paths, settings)
    why = "it was not asked"
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    await gateway.look([Keys(cluster_uuid).head])
                except GatewayError as err:
                    why = err.message
                    await asyncio.sleep(0.1)
                else:
                    return
    except TimeoutError:
        raise HostError(f"etcd does not work: {why}; see {paths.log}") from None
    finally:
        await gateway.close()
