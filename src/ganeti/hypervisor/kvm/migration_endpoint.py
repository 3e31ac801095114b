"""The two ends of a migration: QEMU's commands to move a guest, with its disks if required."""

import contextlib
import logging
from collections.abc import Sequence

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import capabilities, migration, mirror
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.migration import Limits
from ganeti.hypervisor.kvm.migration_tls import Link, MigrationTls
from ganeti.model.instance_spec import DiskSpec
from ganeti.rpc.procedures.migration import Incoming, IncomingArgs, MigrateArgs, MigrationResult

logger = logging.getLogger(__name__)


class MigrationEndpoint:
    """Moves guests of this node, to exactly one other and from exactly one other."""

    def __init__(self, paths: Paths) -> None:
        self._tls = MigrationTls(paths)

    def certificate(self, instance_uuid: str) -> str:
        """Return the certificate that a guest to be sent will show to the other end: new each time."""
        return self._tls.identity(instance_uuid)

    def over(self, instance_uuid: str) -> None:
        """Forget the identity: no migration of this guest is under way from here."""
        self._tls.discard(instance_uuid)

    async def clean_up(self, guests: Guests) -> None:
        """Remove keys that an earlier daemon left in guests or files."""
        short_uuids = {files.short_uuid for files in guests.known()}
        for short_uuid in sorted(short_uuids | set(self._tls.leftovers())):
            files = guests.files(short_uuid)
            async with guests.lock(files):
                try:
                    guest = guests.peek(files)
                    if guest is None:
                        self._tls.remove_files(short_uuid)
                    elif await migration.is_over(guest.ask, is_incoming=guest.record.is_incoming):
                        await self._tls.clean_up(guest)
                except HypervisorError as err:
                    logger.warning("keys of an earlier migration may remain: %s", err)

    async def listen(self, guest: Guest, wanted: IncomingArgs) -> Incoming:
        """Wait for a guest from the one end whose certificate came with the request."""
        peer = wanted.info.certificate
        if not peer:
            raise HypervisorError(
                "the guest's node sent no certificate; both nodes must run the same version"
            )
        if wanted.copies_disks:
            mirror.check_can_copy(guest.instance.disks)
        link, certificate = await self._tls.receiving(guest, peer)
        hvparams = complete(wanted.instance.hvparams)
        disks_port = 0
        if wanted.copies_disks:
            disks_port = await mirror.offer(guest.ask, wanted.address, guest.instance.disks)
        async with guest.ask.conversation():
            port = await migration.listen(
                guest.ask,
                wanted.address,
                int(hvparams["migration_port"]),
                link,
                capabilities.names(str(hvparams["migration_caps"])),
            )
        return Incoming(
            address=wanted.address,
            port=port,
            disks_port=disks_port,
            certificate=certificate,
        )

    async def send(self, guest: Guest, where: MigrateArgs) -> MigrationResult:
        """Send a guest, with its disks if the target expects them, and wait for the end.

        A migration that is under way, or done, is joined. After any result but `completed` only this node has the
        guest.
        """
        hvparams = complete(where.instance.hvparams)
        limits = Limits(
            bandwidth_mib_s=where.bandwidth_mib_s or int(hvparams["migration_bandwidth"]),
            downtime_ms=int(hvparams["migration_downtime"]),
            capabilities=capabilities.names(str(hvparams["migration_caps"])),
        )
        ask = guest.ask
        disks = guest.instance.disks if where.disks_port else ()
        try:
            link = None
            if not await migration.has_begun(ask):
                link = await self._prepare(guest, where, limits)
            result = await migration.send(
                ask,
                migration.Destination(where.address, where.port, link),
                limits,
                (lambda: mirror.finish(ask, disks)) if disks else None,
            )
        except HypervisorError as err:
            await self._give_up(guest, disks)
            return MigrationResult(
                status="failed", total_ms=0, downtime_ms=0, transferred=0, error=str(err)
            )
        if disks:
            await mirror.clear(ask, disks)
        with contextlib.suppress(HypervisorError):  # it may have ended
            await self._tls.forget(ask)
        return result

    async def _prepare(self, guest: Guest, where: MigrateArgs, limits: Limits) -> Link:
        """Prepare the encrypted connection, and synchronise the disks."""
        link = await self._tls.sending(guest, where.certificate)
        disks = guest.instance.disks
        if where.disks_port:
            await mirror.clear(guest.ask, disks)
            to = mirror.Receiver(where.address, where.disks_port, link, limits.bandwidth_mib_s)
            await mirror.bring_in_step(guest.ask, disks, to)
        return link

    async def _give_up(self, guest: Guest, disks: Sequence[DiskSpec]) -> None:
        await migration.stop_sending(guest.ask)
        if disks:
            await mirror.clear(guest.ask, disks)
        await self._tls.forget(guest.ask)

    async def take_back(self, guest: Guest) -> None:
        """On the source: resume the guest here, with only its own disks."""
        record = guest.record
        await migration.take_back(
            guest.ask, resume=record.resume, was_stopped=record.stopped_to_move
        )
        await mirror.clear(guest.ask, guest.instance.disks)
        await self._tls.forget(guest.ask)
        self.over(guest.instance.uuid)

    async def activate(self, guest: Guest) -> None:
        """On the target: resume the guest that arrived, with its own disks."""
        async with guest.ask.conversation():
            await migration.check_arrived(guest.ask)
            if guest.record.disks_port:
                await mirror.withdraw(guest.ask, guest.instance.disks)
            await migration.activate(guest.ask, resume=guest.record.resume)
            await self._tls.forget(guest.ask)
