"""The parameters that choose the user of a guest's process, and their faults on any node: pure."""

from collections.abc import Mapping
from typing import Any

MODEL, DOMAIN = "security_model", "security_domain"
USER, POOL = "user", "pool"


def confinement_problems(hvparams: Mapping[str, Any], *, has_pool: bool) -> list[str]:
    """Return a sentence for each fault; `hvparams` are complete. Hypervisors without such parameters have none."""
    if MODEL not in hvparams:
        return []
    model, domain = hvparams[MODEL], hvparams[DOMAIN]
    if model == USER and not domain:
        return [f"{DOMAIN}: {MODEL}={USER} needs the name of the user"]
    found = []
    if model != USER and domain:
        found.append(f"{DOMAIN}: has no effect with {MODEL}={model}; only {USER} needs a name")
    if model == POOL and not has_pool:
        found.append(
            f"{MODEL}: {POOL} needs user ids, but the cluster has none; reserve some, for example with"
            " 'gnt-cluster modify --uid-pool=4000-4019'"
        )
    return found
