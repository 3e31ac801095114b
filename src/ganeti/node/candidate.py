"""Promotion to a master candidate and demotion: the authority's key, and a master daemon."""

import asyncio
import logging
import os

import msgspec

from ganeti.base.errors import HostError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.roles import Role
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS
from ganeti.bootstrap.daemons import CONFD, MASTERD, Daemons
from ganeti.bootstrap.own_role import enforce_role
from ganeti.confd.keys import keep_key
from ganeti.rpc.calls import Call, Checks, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import (
    CANDIDATE_READ,
    CANDIDATE_START,
    CANDIDATE_STOP,
    CandidateArgs,
    CandidateReport,
)
from ganeti.store.backends import back_end, free_bytes
from ganeti.store.settings import StateSettings, keep_state_settings, state_settings

KEY_LIMIT = 64 * 1024

log = logging.getLogger(__name__)


def check_start(args: CandidateArgs) -> None:
    """Raise InputError for an invalid key or state location."""
    key = args.authority_key
    if not key.startswith("-----BEGIN") or len(key.encode()) > KEY_LIMIT:
        raise InputError("is not a key in PEM form", "authority_key")
    _decoded(args)


CHECKS: Checks = {CANDIDATE_START.name: check_start}


def handlers(paths: Paths, daemons: Daemons) -> Handlers:
    """Return the handlers; all are idempotent."""
    changing = asyncio.Lock()

    async def start(args: CandidateArgs, _call: Call) -> Nothing:
        check_start(args)
        key = args.authority_key.encode()
        async with changing:
            try:
                await asyncio.to_thread(_keep, paths, key)
                is_new = await asyncio.to_thread(
                    keep_key, paths, args.confd_key, args.former_confd_key
                )
            except OSError as err:
                raise HostError(f"cannot store the cluster's keys: {err.strerror}") from err
            is_new = await _begin_state(paths, daemons, args) or is_new
            for done in await enforce_role(paths, daemons, Role.CANDIDATE):
                log.info("a master candidate: %s", done)
            await daemons.start(MASTERD)
            await _begin_confd(paths, daemons, is_new=is_new)
        return Nothing()

    async def stop(_args: Nothing, _call: Call) -> Nothing:
        async with changing:
            for done in await enforce_role(paths, daemons, Role.REGULAR):
                log.info("not a master candidate: %s", done)
        return Nothing()

    async def read(_args: Nothing, _call: Call) -> CandidateReport:
        try:
            return await asyncio.to_thread(_report, paths)
        except OSError as err:
            raise HostError(f"cannot read {paths.data}: {err.strerror}") from err

    return {CANDIDATE_START.name: start, CANDIDATE_READ.name: read, CANDIDATE_STOP.name: stop}


def _report(paths: Paths) -> CandidateReport:
    has_data = any(back_end(kind).has_data(paths) for kind in STATE_KINDS)
    return CandidateReport(has_data=has_data, free_bytes=free_bytes(paths))


async def _begin_confd(paths: Paths, daemons: Daemons, *, is_new: bool) -> None:
    """Restart confd, because its key or its source of data has changed.

    A candidate whose confd cannot start remains a candidate: the reason is logged, and others
    retry.
    """
    if not daemons.has_confd or not paths.confd_key.exists():
        return
    try:
        if is_new:
            await daemons.stop(CONFD)
        await daemons.start(CONFD)
    except HostError as err:
        log.warning("this candidate does not answer queries: %s", err)


async def _begin_state(paths: Paths, daemons: Daemons, args: CandidateArgs) -> bool:
    """Store the location of the state and run this candidate's part of it.

    Return whether the location changed.
    """
    settings = _decoded(args)
    is_moved = settings.kind != state_settings(paths).kind
    if is_moved:
        # The state was moved from one back end to another: the daemon must start again.
        await daemons.stop(MASTERD)
    for kind, one in STATE_KINDS.items():
        if one.server is not None and kind != settings.kind:
            await daemons.stop(one.server.daemon)
    try:
        await asyncio.to_thread(_keep_state, paths, settings, args.server)
    except OSError as err:
        raise HostError(f"cannot store the location of the state: {err.strerror}") from err
    server = STATE_KINDS[settings.kind].server
    if args.server and server is not None:
        await daemons.start(server.daemon)
    return is_moved


def _keep(paths: Paths, key: bytes) -> None:
    if not paths.authority_key.exists() or paths.authority_key.read_bytes() != key:
        write_atomically(paths.authority_key, key, mode=0o600)
    os.utime(paths.authority_key)  # the watcher ignores newly started daemons (`own_role`)


def _decoded(args: CandidateArgs) -> StateSettings:
    """Return the location of the state; InputError, also for a server that this node cannot run."""
    try:
        settings = msgspec.json.decode(args.state or "{}", type=StateSettings)
    except msgspec.DecodeError as err:
        raise InputError(f"the location of the state is not valid: {err}", "state") from err
    back_end(settings.kind).check_server(args.server)
    return settings


def _keep_state(paths: Paths, settings: StateSettings, server: str) -> None:
    """Store the settings.

    Idempotent: a server that has started keeps its data and reconnects to the others.
    """
    if server:
        back_end(settings.kind).prepare_server(paths, server)
    if settings.kind == EMBEDDED:
        paths.state_settings.unlink(missing_ok=True)
    elif state_settings(paths).kind != settings.kind:
        keep_state_settings(paths, settings)
    for kind in STATE_KINDS.keys() - {settings.kind}:
        back_end(kind).retire(paths)
