"""A fence agent whose machine is a file, and which lies, hangs, loses answers and wants a password on request."""

import asyncio
from pathlib import Path
from typing import Any

from ganeti.base.call_programs import CallPrograms
from ganeti.base.paths import Paths
from ganeti.model.fencing import AGENT_DIRECTORIES
from ganeti.node.commands import NodeCommands
from ganeti.node.fence_agents import NodeFenceAgents
from ganeti.recovery.power import PowerResult
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.stale_work import END_STALE_WORK, EndWorkArgs, EndWorkResult

AGENT = "fence_fake"

_SCRIPT = """#!/bin/sh
here=@HERE@
tr '\\0' ' ' < /proc/$$/cmdline >> $here/seen; env >> $here/seen
action= password=
while IFS= read -r line; do
  case $line in
    action=*) action=${line#action=} ;;
    password=*) password=${line#password=} ;;
    *) echo "$line" >> $here/options ;;
  esac
done
echo "$action" >> $here/actions
mode=$(cat $here/mode)
if [ -f $here/password ] && [ "$password" != "$(cat $here/password)" ]; then
  echo "Failed: Unable to connect/login to fencing device with $password" >&2; exit 1
fi
case $mode in
  hangs) sleep 600 ;;
  hangs-after-off) [ $action = status ] || { echo off > $here/power; sleep 600; } ;;
  fails-after-off) [ $action = status ] || { echo off > $here/power; exit 5; } ;;
  loses-status) [ $action = off ] || exit 1 ;;
  slow) [ $action = off ] && { (sleep 0.4; echo off > $here/power) > /dev/null 2>&1 & exit 0; } ;;
  lies) [ $action = off ] && exit 0 ;;
esac
[ $action = off ] && { echo off > $here/power; exit 0; }
[ "$(cat $here/power)" = on ] && exit 0
exit 2
"""


class FakeAgent:
    """The agent, installed on a node."""

    def __init__(self, paths: Paths, here: Path, *, name: str = AGENT) -> None:
        self._here = here
        here.mkdir()
        self.set("power", "on")
        self.set("mode", "honest")
        self.path = paths.below(f"{AGENT_DIRECTORIES[0]}/{name}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(_SCRIPT.replace("@HERE@", str(here)))
        for one in (self.path, self.path.parent):
            one.chmod(0o755)

    def set(self, name: str, value: str) -> None:
        """Set `mode`, `power` or `password`."""
        (self._here / name).write_text(f"{value}\n")

    def got(self, name: str) -> str:
        """What it got: `actions`, `options`, or `seen` for its arguments and its environment."""
        path = self._here / name
        return path.read_text() if path.exists() else ""

    @property
    def is_on(self) -> bool:
        return self.got("power") == "on\n"


class NoAudit:
    """An audit log that keeps nothing."""

    def power_cut(self, node: str, device: str, result: PowerResult, seconds: float) -> None:
        """Record nothing."""


def programs_of(paths: Paths) -> Handlers:
    """The programs of the master's node, and what ends them."""
    programs = CallPrograms()
    running: set[asyncio.Task[Any]] = set()

    def within(handler: Handler) -> Handler:
        async def answer(args: Any, call: Call) -> Any:
            # As in the node's server, the call continues if its caller disconnects.
            async def work() -> Any:
                with programs.of(call.key):
                    return await handler(args, call)

            task = asyncio.create_task(work())
            running.add(task)
            task.add_done_callback(running.discard)
            return await asyncio.shield(task)

        return answer

    async def end(args: EndWorkArgs, _call: Call) -> EndWorkResult:
        for key in args.keys:
            await programs.end(key)
        # No process may be left when the test's loop is closed.
        await asyncio.gather(*running, return_exceptions=True)
        return EndWorkResult(ended=[], unfinished=[])

    own = {**NodeCommands(paths).handlers(), **NodeFenceAgents(paths).handlers()}
    return {**{name: within(one) for name, one in own.items()}, END_STALE_WORK.name: end}
