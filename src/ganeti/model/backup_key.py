"""Keys that encrypt backups: objects of the configuration, so every master has them, and backups of the state."""

from ganeti.model.stored import Stored

KEYS_LIMIT = 100
"""A node gets all of them for each backup."""


class BackupKey(Stored, frozen=True, kw_only=True):
    """One key; its name is its id, a digest of it."""

    secret: str
    """The 32 bytes in hexadecimal; never shown, logged or put into jobs (G23)."""
    is_active: bool = False
    """Whether new encrypted backups use it; at most one does."""
    owner: str = ""
    """The submitter who added it, as the source of jobs (`ganeti.model.job`)."""
