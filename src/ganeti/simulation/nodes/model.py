"""Nodes for simulations and tests of the master: disks and guests as plain data, behind the real procedures.

They keep the contracts of the drivers: every operation may be repeated, a start that fails leaves
nothing, and no end of a migration is removed while the guest runs there.
"""

from ganeti.simulation.nodes.devices import DeviceCalls
from ganeti.simulation.nodes.disk_moves import DiskMoveCalls
from ganeti.simulation.nodes.host import HostCalls
from ganeti.simulation.nodes.migration import MigrationCalls
from ganeti.simulation.nodes.programs import ProgramCalls


class ModelNode(HostCalls, ProgramCalls, MigrationCalls, DeviceCalls, DiskMoveCalls):
    """One node, which answers every call at once."""
