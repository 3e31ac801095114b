"""Answers calls about providers of external storage."""

import asyncio

from ganeti.base.paths import Paths
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.external import EXT_PROVIDERS, ProviderInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.storage.external.providers import find_all


def handlers(paths: Paths) -> Handlers:
    """Return the handlers of all calls about providers."""

    async def providers(_args: Nothing, _call: Call) -> list[ProviderInfo]:
        return await asyncio.to_thread(find_all, paths.extstorage_search_path)

    return {EXT_PROVIDERS.name: providers}
