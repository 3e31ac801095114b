"""Disks that are files, of one node or in a directory that all nodes share."""

from pathlib import PurePosixPath

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name
from ganeti.layouts.planner import Names, NewDisk, Planner, Site
from ganeti.model.disk_templates import FILE, RAW, SHARED_FILE
from ganeti.model.objects import Disk

DIRECTORY_LIMIT = 512
"""The limit of characters of a subdirectory; the names of the instance and its disks follow it."""


class FilePlanner(Planner):
    """A file for each disk; its path is the same on every node."""

    template = FILE

    def check_site(self, site: Site) -> None:
        self._directory(site)

    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        uuid, kind = names.uuid(), self.template.name
        params = request.params or {}
        form = params.get("format") or site.defaults(kind).get("format", RAW)
        if site.use:  # the node reads and writes it, and no guest
            form = RAW
        return Disk(
            uuid=uuid,
            size=request.size,
            template=kind,
            logical_id=(
                self.template.disk_id.driver,
                f"{self._directory(site)}/{uuid}.{kind}.{site.label}",
            ),
            mode=request.mode,
            name=request.name,
            # Recorded also where it is the default, which may change.
            params={**params, "format": form},
        )

    def place(self, disk: Disk) -> str | None:
        return str(PurePosixPath(str(disk.logical_id[1])).parent)

    def _directory(self, site: Site) -> str:
        """Return the directory of the other disks, the cluster's directory, or the requested subdirectory of it."""
        if site.others and site.directory is None:
            return str(self.place(site.others[0]))
        facts = self.template.storage
        base = getattr(site.cluster, facts.field) if facts else ""
        if not facts or not base:
            option = facts.option if facts else ""
            raise InputError(
                f"the cluster has no directory for template {self.template.name} ({option} of gnt-cluster init)"
            )
        given = site.directory
        if given is None:
            return f"{base}/{site.instance_name}"
        _check_directory(given)
        return f"{base}/{PurePosixPath(given)}/{site.instance_name}"


class SharedFilePlanner(FilePlanner):
    """The same in a directory that every node sees."""

    template = SHARED_FILE


def _check_directory(given: str) -> None:
    inner = PurePosixPath(given)
    if inner.is_absolute() or {"..", "."} & set(given.split("/")) or not inner.parts:
        raise InputError(
            "must be a relative path without '..' below the cluster's directory, and not empty",
            "file_storage_dir",
        )
    if len(given) > DIRECTORY_LIMIT:
        raise InputError(f"must have at most {DIRECTORY_LIMIT} characters", "file_storage_dir")
    for part in inner.parts:
        plain_name(part, "file_storage_dir")
