"""The first step of a move to another cluster: a key on the instance's node with a signed certificate (S212)."""

from ganeti.base.domain_secret import new_handshake, sign_certificate, sign_text
from ganeti.base.errors import InputError
from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Instance
from ganeti.model.opcodes.backup import LOCAL, REMOTE, OpBackupPrepare
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, check_not_migrating, primary_node
from ganeti.units.node_choice import check_online
from ganeti.units.transfers import make_end


class LUBackupPrepare(InstanceUnit[OpBackupPrepare, Instance]):
    """Make the data that the destination of a move needs; an export within the cluster needs none."""

    def check_arguments(self) -> None:
        if self.op.mode not in (LOCAL, REMOTE):
            raise InputError(f"must be {LOCAL} or {REMOTE}", "mode")

    async def check_prereq(self, ctx: UnitContext) -> Instance:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_online(primary_node(ctx, instance))
        if self.op.mode == REMOTE:
            ctx.services.domain_secret()
        return instance

    async def execute(self, ctx: UnitContext, plan: Instance) -> Outcome:
        if self.op.mode == LOCAL:
            return Outcome()
        secret = ctx.services.domain_secret()
        async with ctx.undo_log() as undo:
            end = await make_end(ctx, undo, plan.name, primary_node(ctx, plan), stays=True)
            # Nothing is undone: the export uses the key, or OP_BACKUP_ABANDON removes it. An unused key
            # expires after a day.
            undo.commit()
        return Outcome(
            {
                "handshake": new_handshake(secret),
                "x509_key_name": list(sign_text(secret, end.key_name)),
                "x509_ca": sign_certificate(secret, end.certificate),
            }
        )
