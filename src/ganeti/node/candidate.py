"""Becoming a master candidate, and ceasing to be one: the authority's key, and a master daemon."""

import asyncio
import logging

from ganeti.base.errors import HostError, InputError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_START, CANDIDATE_STOP, CandidateArgs

KEY_LIMIT = 64 * 1024

log = logging.getLogger(__name__)


def handlers(paths: Paths, daemons: Daemons) -> Handlers:
    """Both may be repeated."""
    changing = asyncio.Lock()

    async def start(args: CandidateArgs, _call: Call) -> Nothing:
        key = args.authority_key.encode()
        if not key.startswith(b"-----BEGIN") or len(key) > KEY_LIMIT:
            raise InputError("is not a key in PEM form", "authority_key")
        async with changing:
            try:
                await asyncio.to_thread(_keep, paths, key)
            except OSError as err:
                raise HostError(f"cannot keep the authority's key: {err.strerror}") from err
            await daemons.start(MASTERD)
        return Nothing()

    async def stop(_args: Nothing, _call: Call) -> Nothing:
        async with changing:
            log.info("this node is no master candidate any more")
            await daemons.stop(MASTERD)
            try:
                await asyncio.to_thread(_forget, paths)
            except OSError as err:
                raise HostError(f"cannot remove {err.filename}: {err.strerror}") from err
        return Nothing()

    return {CANDIDATE_START.name: start, CANDIDATE_STOP.name: stop}


def _keep(paths: Paths, key: bytes) -> None:
    if not paths.authority_key.exists() or paths.authority_key.read_bytes() != key:
        write_atomically(paths.authority_key, key, mode=0o600)


def _forget(paths: Paths) -> None:
    """The key and the state go; another member would be trusted with them only as a candidate."""
    state = [paths.state.with_name(paths.state.name + end) for end in ("", "-wal", "-shm", ".lock")]
    for path in (paths.authority_key, *state):
        path.unlink(missing_ok=True)
    sync_directory(paths.data)
