"""The calls of a migration."""

from ganeti.base.errors import (
    HypervisorError,
)
from ganeti.hypervisor.hotplug import (
    incoming_instance,
)
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import (
    InstanceArgs,
)
from ganeti.rpc.procedures.migration import (
    FinishMigrationArgs,
    FitArgs,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
    MigrationResult,
)
from ganeti.simulation.nodes.guests import GuestCalls
from ganeti.simulation.nodes.state import PORT, STREAM_PORT, Guest


class MigrationCalls(GuestCalls):
    """The calls of a migration."""

    def on_migration_info(self, args: InstanceArgs) -> MigrationInfo:
        guest = self._here(args.instance)
        is_running = guest.state == "running"
        return MigrationInfo(
            instance=guest.spec,
            running=is_running,
            mirrors_disks=self.mirrors_disks,
            obstacle=self.migration_obstacle,
        )

    def on_migration_obstacles(self, args: FitArgs) -> list[str]:
        if args.instance.hypervisor not in self.hypervisors:
            return [f"this node has no hypervisor {args.instance.hypervisor!r:.40}"]
        return self.migration_obstacles

    def on_migration_accept(self, args: IncomingArgs) -> Incoming:
        self._check_may_start()
        uuid = args.instance.uuid
        spec = incoming_instance(args.instance, args.info.instance)
        self._check_disks(spec)
        if uuid in self.guests and self.guests[uuid].state != "incoming":
            raise HypervisorError(f"{args.instance.name} is on this node already")
        if uuid not in self.guests:
            self.guests[uuid] = Guest(spec, "incoming", runs_on=args.info.running)
            self.let_go_on.discard(uuid)
        disks_port = STREAM_PORT if args.copies_disks else 0
        return Incoming(address=args.address, port=PORT, disks_port=disks_port, certificate="pem")

    def on_migration_run(self, args: MigrateArgs) -> MigrationResult:
        guest = self._here(args.instance)
        if guest.state == "incoming":
            raise HypervisorError(f"{args.instance.name} has not arrived on this node yet")
        target = self.peers[args.address].guests.get(args.instance.uuid)
        problem = self.migration_fails or ("" if target else "connection refused")
        if problem:
            return MigrationResult(
                status="failed", total_ms=0, downtime_ms=0, transferred=0, error=problem
            )
        if args.disks_port:
            for disk in args.instance.disks:
                self._copy_to(self.peers[args.address], disk)
        if guest.state != "postmigrate":
            guest.runs_on = guest.state == "running"
            # Where the guest went on after an earlier migration, it went on from another state.
            self.let_go_on.discard(args.instance.uuid)
            for peer in self.peers.values():
                peer.let_go_on.discard(args.instance.uuid)
        guest.state = "postmigrate"
        return MigrationResult(status="completed", total_ms=9, downtime_ms=1, transferred=4096)

    def on_migration_finish_source(self, args: FinishMigrationArgs) -> Nothing:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        if args.success:
            if guest and guest.state != "postmigrate":
                raise HypervisorError(f"{args.instance.name} still runs here; not ended")
            self.guests.pop(args.instance.uuid, None)
        elif guest is None:
            raise HypervisorError(f"{args.instance.name} is gone from the node that keeps it")
        elif guest.state == "postmigrate":
            if any(args.instance.uuid in peer.let_go_on for peer in self.peers.values()):
                self.violations.append(f"{args.instance.name} goes on from a state of the past")
            guest.state = "running" if guest.runs_on else "paused"
        return Nothing()

    def on_migration_finish_target(self, args: FinishMigrationArgs) -> Nothing:
        guest = self.guests.get(args.instance.uuid)
        if args.success:
            if guest is None:
                raise HypervisorError(f"{args.instance.name} did not arrive here")
            if guest.state == "incoming":
                self._check_arrived(args.instance)
                self.let_go_on.add(args.instance.uuid)
                guest.state = "running" if guest.runs_on else "paused"
        elif guest and guest.state != "incoming":
            raise HypervisorError(f"{args.instance.name} runs here; not ended")
        else:
            self.guests.pop(args.instance.uuid, None)
        return Nothing()

    def _check_arrived(self, spec: InstanceSpec) -> None:
        ends = (peer.guests.get(spec.uuid) for peer in self.peers.values() if peer is not self)
        if not any(end and end.state == "postmigrate" for end in ends):
            raise HypervisorError("the guest has not arrived here")
