"""Answers the calls that bring the cluster's own address up and down on this node (F5).

The node uses commands of the host, or a script of the administrator if the cluster is so
configured. The script gets `start` or `stop` and the address in its environment; the node then does
and checks nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.identifiers import interface_name
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Run
from ganeti.base.run_parts import check_program, run_one
from ganeti.model.hooks import Phase
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import MASTER_IP_DOWN, MASTER_IP_UP, MasterIpArgs

PROBES = 2
PROBE_LIMIT_S = 10.0
NOT_STARTED = 127
SCRIPT_LIMIT_S = 50.0
SCRIPT = Paths(Path("/")).master_ip_script


LocalHooks = Callable[[str, Phase, Mapping[str, str]], Awaitable[None]]
"""Runs this node's own hooks; HostError if one refuses."""


async def no_hooks(_hook: str, _phase: Phase, _variables: Mapping[str, str]) -> None:
    """Run no hooks, for a node without any."""


def handlers(run: Run, hooks: LocalHooks = no_hooks, script: Path = SCRIPT) -> Handlers:
    """Return the handlers of both calls; they change the host one at a time, between their hooks."""
    master_ip = MasterIp(run, asyncio.Lock(), hooks, script)
    return {MASTER_IP_UP.name: master_ip.up, MASTER_IP_DOWN.name: master_ip.down}


def addresses_show(address: str) -> list[str]:
    """Return a command that prints the interface with the address, or nothing."""
    return ["ip", "-o", "address", "show", "to", address]


def arp_probe(address: str, netdev: str) -> list[str]:
    """Return a command that succeeds if no host on the link has the address."""
    return ["arping", "-q", "-D", "-c", str(PROBES), "-w", str(PROBES), "-I", netdev, address]


def ping_probe(address: str) -> list[str]:
    """Return a command that succeeds if a host answers at the address."""
    return ["ping", "-q", "-n", "-c", str(PROBES), "-w", str(PROBES), address]


def address_add(args: MasterIpArgs) -> list[str]:
    """Configure the address."""
    return ["ip", "address", "add", f"{args.address}/{args.netmask}", "dev", args.netdev]


def address_delete(args: MasterIpArgs) -> list[str]:
    """Return a command that removes the address."""
    return ["ip", "address", "del", f"{args.address}/{args.netmask}", "dev", args.netdev]


def announcement(address: str, netdev: str) -> list[str]:
    """Return a command that announces the new owner of the address on the link."""
    return ["arping", "-q", "-U", "-c", "1", "-w", "1", "-I", netdev, address]


@dataclass(frozen=True)
class MasterIp:
    """The cluster's address on this node."""

    run: Run
    acting: asyncio.Lock
    hooks: LocalHooks = no_hooks
    script: Path = SCRIPT

    async def up(self, args: MasterIpArgs, _call: Call) -> Nothing:
        """Configure the address; raise an error if another host has it."""
        if args.netdev:
            _check(args)
            async with self.acting:
                if args.by_script:
                    await self._by_script("start", "master-ip-turnup", args)
                    return Nothing()
                if not await self._is_here(args):
                    await self._check_free(args)
                    await self.hooks("master-ip-turnup", Phase.PRE, _variables(args))
                    await self.run(address_add(args))
                    await self.hooks("master-ip-turnup", Phase.POST, _variables(args))
                if not _is_ipv6(args):
                    await self._try(announcement(args.address, args.netdev))
        return Nothing()

    async def down(self, args: MasterIpArgs, _call: Call) -> Nothing:
        if args.netdev:
            _check(args)
            async with self.acting:
                if args.by_script:
                    await self._by_script("stop", "master-ip-turndown", args)
                elif await self._is_here(args):
                    await self.hooks("master-ip-turndown", Phase.PRE, _variables(args))
                    await self.run(address_delete(args))
                    await self.hooks("master-ip-turndown", Phase.POST, _variables(args))
        return Nothing()

    async def _by_script(self, word: str, hook: str, args: MasterIpArgs) -> None:
        await asyncio.to_thread(check_program, self.script)
        await self.hooks(hook, Phase.PRE, _variables(args))
        ended = await run_one(self.script, _variables(args), SCRIPT_LIMIT_S, word)
        if ended.problem:
            raise HostError(f"{self.script} {word} failed ({ended.problem}): {ended.output}")
        await self.hooks(hook, Phase.POST, _variables(args))

    async def _is_here(self, args: MasterIpArgs) -> bool:
        found = await self.run(addresses_show(args.address))
        return bool(found.stdout.strip())

    async def _check_free(self, args: MasterIpArgs) -> None:
        status = NOT_STARTED
        if not _is_ipv6(args):
            status = await self._try(arp_probe(args.address, args.netdev))
        if status == NOT_STARTED:  # ARP does not support IPv6, and arping is not always installed
            answered = await self._try(ping_probe(args.address))
            if answered == NOT_STARTED:
                raise HostError(
                    f"cannot determine whether another host has {args.address}:"
                    " neither arping nor ping can be started; install one of them"
                )
            status = 1 if answered == 0 else 0
        if status != 0:
            raise PrereqError(
                (
                    f"another host answers at the cluster's address {args.address}: remove it "
                    "there first, then run gnt-cluster activate-master-ip"
                ),
                ErrorCode.WRONG_STATE,
            )

    async def _try(self, words: Sequence[str]) -> int:
        """Return a command's exit status; NOT_STARTED if the program does not exist."""
        try:
            return (await self.run(words, timeout_s=PROBE_LIMIT_S, check=False)).status
        except CommandFailed as err:
            return err.completed.status


def _variables(args: MasterIpArgs) -> dict[str, str]:
    return {
        "MASTER_NETDEV": args.netdev,
        "MASTER_IP": args.address,
        "MASTER_NETMASK": str(args.netmask),
        "CLUSTER_IP_VERSION": "6" if _is_ipv6(args) else "4",
    }


def _is_ipv6(args: MasterIpArgs) -> bool:
    return ":" in args.address


def _check(args: MasterIpArgs) -> None:
    """Raise an error for text that must not become words of a command."""
    interface_name(args.netdev, "netdev")
    try:
        longest = ip_address(args.address).max_prefixlen
    except ValueError as err:
        raise PrereqError(f"{args.address!r:.60} is not an address", ErrorCode.WRONG_INPUT) from err
    if not 0 < args.netmask <= longest:
        raise PrereqError(f"{args.netmask} is not a netmask's length", ErrorCode.WRONG_INPUT)
