"""etcd as a back end of the state. Modules are imported on use: readers need none of the writers."""

from contextlib import AbstractAsyncContextManager

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.paths import Paths
from ganeti.store.backend import StateRestorer
from ganeti.store.backends import BackEnd, Founding, Reports, StateReader, StateServers
from ganeti.store.interface import Identity
from ganeti.store.ports import OpenedState, Ports
from ganeti.store.settings import StateSettings


class EtcdBackEnd(BackEnd):
    """The back end for etcd servers of the candidates or of an administrator."""

    async def open(self, paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
        from ganeti.store.etcd.opening import open_etcd

        return await open_etcd(paths, identity, ports)

    def restorer(self, paths: Paths, identity: Identity, settings: StateSettings) -> StateRestorer:
        from ganeti.store.etcd.restorer import EtcdRestorer

        return EtcdRestorer(paths, identity, settings)

    async def create_state(self, founding: Founding) -> StateSettings:
        from ganeti.store.etcd.provision import begin_etcd

        return await begin_etcd(founding)

    def leaving(
        self, paths: Paths, identity: Identity, settings: StateSettings
    ) -> AbstractAsyncContextManager[None]:
        from ganeti.store.etcd.moving import leaving

        return leaving(paths, identity, settings)

    async def resume(self, paths: Paths, identity: Identity, settings: StateSettings) -> None:
        from ganeti.store.etcd.moving import resume

        await resume(paths, identity, settings)

    def retire(self, paths: Paths) -> None:
        from ganeti.store.etcd.settings import forget_etcd

        forget_etcd(paths)

    def servers(
        self, paths: Paths, cluster_uuid: str, settings: StateSettings, reports: Reports
    ) -> StateServers:
        from ganeti.store.etcd.opening import open_gateway
        from ganeti.store.etcd.servers import EtcdServers, ExternalEtcd

        gateway = open_gateway(paths, settings)
        if not settings.is_managed:
            return ExternalEtcd(settings, gateway)
        return EtcdServers(cluster_uuid, gateway, reports)

    def check_server(self, server: str) -> None:
        from ganeti.store.etcd.settings import ServerSettings

        try:
            if server:
                msgspec.json.decode(server, type=ServerSettings)
        except msgspec.DecodeError as err:
            raise InputError(
                f"the settings of an etcd server are not valid: {err}", "server"
            ) from err

    def prepare_server(self, paths: Paths, server: str) -> None:
        from ganeti.store.etcd.settings import ServerSettings, keep_server_settings

        keep_server_settings(paths, msgspec.json.decode(server, type=ServerSettings))

    def has_data(self, paths: Paths) -> bool:
        from ganeti.store.etcd.settings import has_data

        return has_data(paths)

    def reader(self, paths: Paths, settings: StateSettings, cluster_uuid: str) -> StateReader:
        from ganeti.store.etcd.opening import open_gateway
        from ganeti.store.etcd.reader import EtcdReader

        return EtcdReader(open_gateway(paths, settings), cluster_uuid)


BACK_END = EtcdBackEnd()
