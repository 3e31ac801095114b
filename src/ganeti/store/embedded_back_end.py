"""The candidates' own store as a back end of the state."""

from ganeti.base.paths import Paths
from ganeti.store.backend import StateRestorer
from ganeti.store.backends import BackEnd
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Identity
from ganeti.store.local_log import Options
from ganeti.store.ports import OpenedState, Ports
from ganeti.store.restoring import EmbeddedRestorer
from ganeti.store.settings import StateSettings


class EmbeddedBackEnd(BackEnd):
    """The back end without servers: it needs none of the server methods."""

    async def open(self, paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
        options = Options(archive=paths.job_archive)
        store = await EmbeddedStore.open(paths.state, identity, ports, options)
        return OpenedState(store, store, store.handlers)

    def restorer(self, paths: Paths, identity: Identity, settings: StateSettings) -> StateRestorer:
        del settings
        return EmbeddedRestorer(paths, identity)


BACK_END = EmbeddedBackEnd()
