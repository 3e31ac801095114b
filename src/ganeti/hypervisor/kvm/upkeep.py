"""Maintenance of guests without a request: at the daemon's start, and at intervals."""

import asyncio
from dataclasses import dataclass

from ganeti.hypervisor.abilities import LooksAfterGuests, WarmsUp
from ganeti.hypervisor.kvm.agents import Agents
from ganeti.hypervisor.kvm.disk_moves import KvmDiskMoves
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.holding import Holding
from ganeti.hypervisor.kvm.migration_endpoint import MigrationEndpoint
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.kvm.saved_guests import KvmSavedGuests


@dataclass(frozen=True)
class Upkeep(WarmsUp, LooksAfterGuests):
    """Remnants of migrations, facts about this host, logs, and guests that were held or frozen too long, or only partly saved."""

    guests: Guests
    programs: Programs
    endpoint: MigrationEndpoint
    agents: Agents
    holding: Holding
    disk_moves: KvmDiskMoves
    saved: KvmSavedGuests

    async def warm_up(self) -> None:
        await self.endpoint.clean_up(self.guests)
        for files in list(self.guests.known()):
            await self._resume(files, at_once=True)
        program = self.programs.find({})
        await self.programs.version_of(program)
        await self.guests.confinement.abilities(program)
        await self.guests.acceleration.kvm_works(program)

    async def look_after(self) -> None:
        for files in list(self.guests.known()):
            await asyncio.to_thread(files.shorten_logs)
            await self._resume(files, at_once=False)
            await self.agents.thaw_in_time(files)

    async def _resume(self, files: GuestFiles, *, at_once: bool) -> None:
        await self.holding.resume_in_time(files, at_once=at_once, first=self.disk_moves.put_right)
        await self.saved.put_right(files)
