"""Facts about this node that accompany its vote, beside its register (R8)."""

from dataclasses import dataclass

from ganeti import __version__
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import GanetiError
from ganeti.base.files import is_locked
from ganeti.base.paths import Paths
from ganeti.base.pidfile import pid_file
from ganeti.base.roles import Role
from ganeti.bootstrap.daemons import MASTERD
from ganeti.bootstrap.own_role import own_role
from ganeti.store.election import Voter
from ganeti.store.stored_tail import read_stored_tail


@dataclass(frozen=True)
class VoterFacts:
    """Reads this node's files; blocks for a few milliseconds."""

    paths: Paths

    def __call__(self, recent_master: str) -> Voter:
        """`recent_master` is the master of a contact a moment ago, or ''.

        The role is `master`, `candidate`, `regular` or `offline`, or '' if this node does not know
        it.
        """
        stored = read_stored_tail(self.paths.state)
        role = self._role(recent_master)
        return Voter(
            role=role,
            master_capable=role in ("master", "candidate") and self.paths.authority_key.exists(),
            tail=stored.tail if stored else None,
            last_job_id=stored.last_job_id if stored else 0,
            software=__version__,
            has_master_daemon=is_locked(pid_file(self.paths.run, MASTERD)),
        )

    def _role(self, recent_master: str) -> str:
        """Use the master of the last contact: the files may name an earlier master."""
        try:
            uuid, _name = node_identity(self.paths.node_certificate.read_bytes())
        except (GanetiError, OSError, ValueError):
            return ""
        if uuid == recent_master:
            return Role.MASTER
        return own_role(self.paths) or ""
