"""Switches nodes off by their fence agents or out-of-band programs, and asks these whether a node is on (D7).

The programs run on the master's node, by its node daemon. A node counts as off only if its device says so to a
question after the order: programs report success for what they have only requested.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, InputError, RpcError, RpcFailed
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.model.fencing import AgentAction, PowerStatus
from ganeti.model.objects import Node, NodeUuid
from ganeti.recovery.power import PowerResult
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.commands import FENCE_AGENT_RUN, OOB_RUN, CommandOutput
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs
from ganeti.units.calls import Rpc
from ganeti.units.oob.device import PowerDevice, failure, no_device, power_device

ANSWER_S = 1.0
"""Time for the node daemon to end a program at its limit, and to report that."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Between two attempts; the last one repeats."""

_log = logging.getLogger(__name__)


class PowerAudit(Protocol):
    """The record of attempts (`ganeti.api.audit.MasterAudit`)."""

    def power_cut(self, node: str, device: str, result: PowerResult, seconds: float) -> None: ...


class _Refused(Exception):
    """The master's node does not run the device's program; another attempt would not change this."""


class PowerFencing:
    """The power of all nodes but the master's own; one action for a node at a time."""

    def __init__(
        self,
        config: Config,
        rpc: Rpc,
        own: NodeUuid,
        *,
        ids: IdSource,
        clock: Clock,
        audit: PowerAudit,
    ) -> None:
        self._config = config
        self._rpc = rpc
        self._own = own
        self._ids = ids
        self._clock = clock
        self._audit = audit
        self._busy: defaultdict[NodeUuid, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Do nothing: it acts only on request."""

    async def close(self) -> None:
        """Wait until the programs of cancelled actions are ended."""
        await asyncio.gather(*self._ending)

    async def cut(self, node: NodeUuid) -> PowerResult:
        """Switch a node off, and return whether its device confirms that within `fence_timeout`."""
        snapshot = self._config.snapshot
        found = snapshot.nodes.get(node)
        if found is None:
            return PowerResult(is_fenced=False, detail="the node is not in the configuration")
        began, device = self._clock.monotonic(), power_device(snapshot, found)
        result = PowerResult(is_fenced=False, detail="cancelled before the device has confirmed it")
        try:
            result = await self._cut(found, device)
        finally:
            seconds = self._clock.monotonic() - began
            what = device.what if device else "no device"
            level = logging.WARNING if result.is_fenced else logging.ERROR
            outcome = "is off" if result.is_fenced else "is not known to be off"
            _log.log(level, "node %s %s: %s (%.1f s)", found.name, outcome, result.detail, seconds)
            self._audit.power_cut(found.name, what, result, seconds)
        return result

    async def _cut(self, node: Node, device: PowerDevice | None) -> PowerResult:
        if node.uuid == self._own:
            return PowerResult(is_fenced=False, detail="a master does not switch its own node off")
        if device is None:
            return PowerResult(is_fenced=False, detail=no_device(node))
        last = ["another action of its device has not ended"]
        try:
            async with asyncio.timeout(device.timeout_s), self._busy[node.uuid]:
                await self._until_off(device, last)
        except TimeoutError:
            detail = f"{device.what} has not confirmed it within {device.timeout_s:g} s: {last[0]}"
            return PowerResult(is_fenced=False, detail=detail)
        except _Refused as err:
            return PowerResult(is_fenced=False, detail=str(err))
        return PowerResult(is_fenced=True, detail=f"{device.what} confirms that the power is off")

    async def _until_off(self, device: PowerDevice, last: list[str]) -> None:
        """Order `off` until a question after it confirms that; `last` has the reason why it is not."""
        end = self._clock.monotonic() + device.timeout_s
        pauses = iter(PAUSES_S)
        pause = 0.0
        while True:
            # An order or a question that hangs leaves time for the next.
            off = await self._run(device, AgentAction.OFF, (end - self._clock.monotonic()) / 2)
            why = off if isinstance(off, str) else failure(off) if off.status else ""
            last[0] = f"off: {why}" if why else "its status is not known"
            status = await self._status(device, (end - self._clock.monotonic()) / 2)
            if status.is_on is False:
                return
            said = "its status is on" if status.is_on else f"status: {status.why}"
            last[0] = f"off: {why}; {said}" if why else said
            pause = next(pauses, pause)
            await asyncio.sleep(pause)

    async def status(self, node: NodeUuid, limit_s: float) -> PowerStatus:
        """Ask the device of a node whether the node is on; changes nothing."""
        snapshot = self._config.snapshot
        found = snapshot.nodes.get(node)
        device = power_device(snapshot, found) if found else None
        if found is None or device is None:
            return PowerStatus(None, no_device(found) if found else "the node was removed")
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(limit_s + ANSWER_S), self._busy[node]:
                return await self._status(device, limit_s)
        except TimeoutError:
            why = f"no answer within {limit_s:g} s"
            return PowerStatus(None, why, self._clock.monotonic() - began)
        except _Refused as err:
            return PowerStatus(None, str(err), self._clock.monotonic() - began)

    async def _status(self, device: PowerDevice, limit_s: float) -> PowerStatus:
        began = self._clock.monotonic()
        said = await self._run(device, AgentAction.STATUS, limit_s)
        is_on, why = (None, said) if isinstance(said, str) else device.judged(said)
        return PowerStatus(is_on, why, self._clock.monotonic() - began)

    async def _run(
        self, device: PowerDevice, action: AgentAction, limit_s: float
    ) -> CommandOutput | str:
        """Run the device's program; return its output, or why there is none. _Refused if it must not run."""
        own = self._config.snapshot.nodes[self._own]
        key = f"power/{self._ids.token()}"
        try:
            if device.agent:
                args = device.agent_args(action, limit_s)
                said = await self._rpc.call(own, FENCE_AGENT_RUN, args, key=key)
            else:
                ordered = device.program_args(action, limit_s)
                said = await self._rpc.call(own, OOB_RUN, ordered, key=key)
        except asyncio.CancelledError:
            self._end(own, key)
            raise
        except InputError as err:
            raise _Refused(err.message) from err
        except RpcFailed as err:
            if err.wire_error != UNREACHABLE:
                raise _Refused(f"{own.name}: {err.reason}") from err
            return f"{own.name}: {err.reason}"
        except RpcError as err:
            return f"{own.name}: {err.reason}"
        text = failure(said) if said.status else "exit status 0"
        _log.info("%s of %s by %s: %s", action, device.node_name, device.what, text)
        return said

    def _end(self, own: Node, key: str) -> None:
        """Kill the program of a call that is not awaited any more."""

        async def end() -> None:
            try:
                args = EndWorkArgs(keys=[key], wait_s=0)
                await self._rpc.call(own, END_STALE_WORK, args, key=f"{key}/kill")
            except GanetiError as err:
                _log.warning("call %s is not ended: %s", key, err)

        task = asyncio.create_task(end(), name=f"ending {key}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
