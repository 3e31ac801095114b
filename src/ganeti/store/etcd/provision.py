"""Starts the first etcd server of a new cluster, or checks external servers, before any master daemon runs."""

import asyncio

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.store.backends import Founding
from ganeti.store.etcd.gateway import GatewayError
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.etcd.server import ensure_certificate
from ganeti.store.etcd.settings import ServerSettings, client_url, keep_server_settings, peer_url
from ganeti.store.settings import StateSettings

WRITABLE_S = 60.0


async def begin_etcd(founding: Founding) -> StateSettings:
    """Start an etcd of one server here, or reach the external one.

    Return its settings. HostError, StoreError.
    """
    external, identity, address = founding.external, founding.identity, founding.address
    if external is not None and external.urls:
        external.check()
        found = StateSettings(
            kind=founding.kind,
            endpoints=external.urls,
            is_managed=False,
            authority=external.authority,
            credentials=external.credentials,
        )
    else:
        settings = ServerSettings(
            name=identity.node_uuid,
            cluster_uuid=identity.cluster_uuid,
            address=address,
            initial_cluster=f"{identity.node_uuid}={peer_url(address)}",
            is_new=True,
        )
        keep_server_settings(founding.paths, settings)
        found = StateSettings(kind=founding.kind, endpoints=(client_url(address),))
        ensure_certificate(founding.paths, identity.cluster_uuid, address, founding.now)
        await founding.start_server()
    await writable(founding.paths, found, identity.cluster_uuid)
    return found


async def writable(
    paths: Paths, settings: StateSettings, cluster_uuid: str, limit_s: float = WRITABLE_S
) -> None:
    """Return once this etcd has a quorum; HostError if that takes too long."""
    gateway = open_gateway(paths, settings)
    why = "no answer yet"
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
