"""Procedures of a live restore: a guest starts above the disks of a backup, which then are copied to its own.

The node of the backup serves its disks, and the node of the guest reads them when the guest does. What the guest writes
is kept in overlays on its node until its own disks have everything.
"""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.backups import PointOf
from ganeti.rpc.procedures.form import SLOW_S, Message, Nothing, Procedure


class ServePointArgs(PointOf, frozen=True, kw_only=True):
    """A backup to serve; `instance_name` names its directory, `owner` the instance that reads it."""

    token: str
    disks: list[str]
    """UUIDs of the disks."""
    owner: str
    owner_uuid: str
    address: str = ""
    """Where to listen; '': at the local socket of the guest."""
    key_name: str = ""
    peer: str = ""
    """The certificate of the only accepted caller, in PEM form."""


class Served(Message, frozen=True, kw_only=True):
    port: int = 0


class LiveStartArgs(Message, frozen=True, kw_only=True):
    """A guest to start above a backup, or to resume; and the program that serves it ('': this node does)."""

    instance: InstanceSpec
    token: str
    address: str = ""
    port: int = 0
    key_name: str = ""
    peer: str = ""


class LiveStarted(Message, frozen=True, kw_only=True):
    is_moved: bool
    """True if the guest has already changed to its own disks, which have everything; nothing was started."""


class LiveEndArgs(Message, frozen=True, kw_only=True):
    """A live restore to end on this node."""

    instance: InstanceSpec
    token: str
    keep_used: bool = False
    """Change nothing if the guest has been started above the overlays."""


class LiveEnded(Message, frozen=True, kw_only=True):
    is_kept: bool = False


class LiveServerArgs(Message, frozen=True, kw_only=True):
    token: str


LIVE_SERVE = Procedure("live_serve", ServePointArgs, Served, SLOW_S, changes=True)
"""Serve the disks of a backup until `live_serve_end`, read-only, instead of an earlier program for the same restore."""

LIVE_SERVE_END = Procedure("live_serve_end", LiveServerArgs, Nothing, SLOW_S, changes=True)

LIVE_START = Procedure("live_start", LiveStartArgs, LiveStarted, SLOW_S, changes=True)
"""Start the guest above the backup, with the overlays of an earlier attempt if there are any; or let it continue."""

LIVE_END = Procedure("live_end", LiveEndArgs, LiveEnded, SLOW_S, changes=True)
"""Remove the overlays, and end the connection with the backup; refused while the guest uses them. Idempotent."""
