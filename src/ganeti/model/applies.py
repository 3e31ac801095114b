"""The time at which a running guest gets a change of its instance: declared once for jobs and for previews."""

from enum import Enum

from ganeti.model.hypervisor_param import CD_DRIVES
from ganeti.model.params import BACKEND_PARAMS

_AMOUNTS = frozenset(("maxmem", "vcpus"))
"""Backend parameters that a running guest can get at once."""


class Applies(Enum):
    """The time at which the running guest gets the change."""

    NOW = "now"
    """With the configuration: the change is not visible to the guest."""
    BY_HOTPLUG = "hotplug"
    """At once if the running guest is changed, else at its next start."""
    AT_START = "start"


def of_backend(name: str) -> Applies:
    """Return when a backend parameter applies."""
    if name in _AMOUNTS:
        return Applies.BY_HOTPLUG
    return Applies.AT_START if BACKEND_PARAMS[name].reaches_guest else Applies.NOW


def of_hypervisor(name: str) -> Applies:
    """Return when a hypervisor parameter applies."""
    return Applies.BY_HOTPLUG if name in CD_DRIVES else Applies.AT_START


def of_nic(name: str) -> Applies:
    """Return when a value of a network interface applies."""
    return Applies.NOW if name == "name" else Applies.BY_HOTPLUG
