"""Webhooks: rules that send events to other systems, and the memory of the master for each of them.

Both are objects of the configuration: durable, replicated, in backups of the state, and in the audit log.
"""

from ganeti.model.objects import GroupUuid
from ganeti.model.stored import Stored


class Webhook(Stored, frozen=True, kw_only=True):
    """Which events go to which address."""

    url: str
    secret: str
    """The key of the signatures; never shown, logged or put into jobs (G23)."""
    kinds: tuple[str, ...] = ()
    """Empty: all kinds."""
    names: tuple[str, ...] = ()
    """Patterns of names (`web*`): only events about such objects."""
    object_tags: tuple[str, ...] = ()
    """Only events about objects with one of these tags."""
    groups: tuple[GroupUuid, ...] = ()
    """Only events about these groups, their nodes, and the instances on these nodes."""
    verify_tls: bool = True
    authorities: str = ""
    """PEM of the certificates that may have signed that of the receiver; empty: those of the master's system."""
    allow_local: bool = False
    """Whether the address may be on the loopback interface or a link-local one."""
    is_paused: bool = False
    owner: str = ""
    """The submitter who added the rule, as the source of jobs (`ganeti.model.job`)."""

    @property
    def selects_objects(self) -> bool:
        """Return whether only events about some objects fit."""
        return bool(self.names or self.object_tags or self.groups)


class WebhookState(Stored, frozen=True, kw_only=True):
    """What the master remembers of one rule; times in seconds since 1970."""

    webhook: str
    """UUID of the rule."""
    position: str
    """The number of the last event that needs no delivery any more."""
    last_success: float = 0.0
    failing_since: float = 0.0
    """The time of the first failed attempt since the last success; 0: none has failed."""
    failures: int = 0
    """Failed attempts since the last success."""
    error: str = ""
    """The reason of the last failed attempt; empty after a success."""
    gaps: int = 0
    """How often the log of events no longer had the next event, so that the receiver has missed some."""
