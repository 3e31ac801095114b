"""OS definitions that the administrator hides or forbids, whether or not they exist (S154)."""

from ganeti.model.objects import Cluster


def base_name(os: str) -> str:
    """Return the name without its variant."""
    return os.partition("+")[0]


def is_blacklisted(cluster: Cluster, os: str) -> bool:
    """Return whether new instances may not be installed from an OS, whatever its variant (S156, S157)."""
    return base_name(os) in cluster.blacklisted_os
