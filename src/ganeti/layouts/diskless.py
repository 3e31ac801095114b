"""Instances without disks."""

from typing import NoReturn

from ganeti.base.errors import InputError
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_templates import DISKLESS


class DisklessPlanner(Planner):
    """A planner without disks."""

    template = DISKLESS

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> NoReturn:
        del request, names
        raise InputError(f"template diskless of {site.instance_name} has no disks", "disks")
