"""The planner of each disk template."""

from ganeti.layouts.devices import BlockDevicePlanner
from ganeti.layouts.diskless import DisklessPlanner
from ganeti.layouts.files import FilePlanner, SharedFilePlanner
from ganeti.layouts.mirrors import DrbdPlanner
from ganeti.layouts.planner import Planner
from ganeti.layouts.remote import ExternalPlanner, RbdPlanner
from ganeti.layouts.volumes import PlainPlanner

PLANNERS: dict[str, Planner] = {
    planner.template.name: planner
    for planner in (
        DisklessPlanner(),
        FilePlanner(),
        SharedFilePlanner(),
        PlainPlanner(),
        BlockDevicePlanner(),
        RbdPlanner(),
        ExternalPlanner(),
        DrbdPlanner(),
    )
}
