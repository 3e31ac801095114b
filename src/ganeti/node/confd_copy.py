"""The data of confd on a node that is not a master candidate: the copy and the key from the master."""

import asyncio
import logging

from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import CONFD, Daemons
from ganeti.bootstrap.own_role import end_confd_copy, may_answer_from_copy
from ganeti.confd.copy_file import write_copy
from ganeti.confd.keys import keep_own_key
from ganeti.model.objects import NodeUuid
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.confd import CONFD_COPY_WRITE, ConfdCopyArgs, ConfdCopyReport
from ganeti.store.interface import Identity
from ganeti.store.register import RegisterFile

log = logging.getLogger(__name__)


def handlers(paths: Paths, daemons: Daemons) -> Handlers:
    """Return the handler; the node's ssconf files must allow the copy."""
    writing = asyncio.Lock()

    async def write(args: ConfdCopyArgs, _call: Call) -> ConfdCopyReport:
        if not await asyncio.to_thread(may_answer_from_copy, paths):
            raise PrereqError(
                "confd does not answer from a copy here, as this node's ssconf files say",
                ErrorCode.WRONG_STATE,
            )
        async with writing:
            position, has_new_key = await asyncio.to_thread(_write, paths, args)
            await _start(daemons, has_new_key=has_new_key)
        await end_confd_copy(paths, daemons)  # new ssconf files may forbid the copy
        return ConfdCopyReport(position=position)

    return {CONFD_COPY_WRITE.name: write}


def _write(paths: Paths, args: ConfdCopyArgs) -> tuple[int, bool]:
    register = RegisterFile(paths.register).read()
    if register is None:
        raise PrereqError("this node is not in a cluster", ErrorCode.WRONG_STATE)
    try:
        uuid, _name = node_identity(paths.node_certificate.read_bytes())
        identity = Identity(register.cluster_uuid, NodeUuid(uuid))
        position = write_copy(paths.confd_copy, identity, args.base, args.position, args.content)
        return position, keep_own_key(paths, args.key)
    except OSError as err:
        raise HostError(f"cannot store the data that confd answers from: {err.strerror}") from err


async def _start(daemons: Daemons, *, has_new_key: bool) -> None:
    """Restart confd with the new key; a failure is logged, and others retry."""
    if not daemons.has_confd:
        return
    try:
        if has_new_key:
            await daemons.stop(CONFD)
        await daemons.start(CONFD)
    except HostError as err:
        log.warning("this node does not answer queries: %s", err)
