"""The plan of a new instance: from a checked request to an object, without any act."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name, os_name
from ganeti.config.os_states import base_name, is_blacklisted
from ganeti.layouts.planner import Site
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import DISK_TEMPLATES, DiskTemplate
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, check_hypervisor_params
from ganeti.model.iallocator import named_allocators
from ganeti.model.objects import Disk, Instance, InstanceUuid, NodeGroup, NodeUuid
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.param_checks import changed, check_backend_params, check_os_params
from ganeti.units import name_lookup
from ganeti.units.context import UnitContext
from ganeti.units.image.using import check_image_arguments, requested_image
from ganeti.units.instance.cloning import CLONE, check_clone_arguments
from ganeti.units.instance.disks import JobNames
from ganeti.units.instance.grants import check_recovery
from ganeti.units.instance.hardware import with_network_port
from ganeti.units.instance.importing import IMPORT, check_import_arguments
from ganeti.units.instance.nic_changes import new_nic
from ganeti.units.instance.remote_import import REMOTE_IMPORT, check_remote_import_arguments
from ganeti.units.instance.requests import (
    build_disk,
    check_disks,
    check_nics,
    check_tags,
)
from ganeti.units.job_source import check_may_set

MODES = ("create", IMPORT, REMOTE_IMPORT, CLONE)
FILE_DRIVERS = (None, "loop")
NOT_POSSIBLE = ("forthcoming", "commit", "instance_communication")
"""Options of other versions that change the result and so must not be ignored."""


def check_create_arguments(op: OpInstanceCreate) -> None:
    """Refuse arguments that are wrong in any cluster."""
    if op.mode not in MODES:
        raise InputError(
            f"{op.mode!r:.40} is not a mode of creation; known: {', '.join(MODES)}",
            "mode",
        )
    check_import_arguments(op)
    check_remote_import_arguments(op)
    check_clone_arguments(op)
    check_image_arguments(op)
    if host_name(op.instance_name, "instance_name") != op.instance_name:
        raise InputError("must be in lower case", "instance_name")
    for field in NOT_POSSIBLE:
        if getattr(op, field):
            raise InputError("this implementation does not support it", field)
    name_lookup.check_arguments(name_check=op.name_check, ip_check=op.ip_check)
    if op.file_driver not in FILE_DRIVERS:
        raise InputError("the only file driver is loop", "file_driver")
    _check_placement(op)
    _check_os(op)
    if op.mode in (IMPORT, CLONE) and op.no_install:
        raise InputError(
            f"--no-install has no effect: mode {op.mode} never runs the OS create script",
            "no_install",
        )
    check_tags(op.tags)
    _check_names(op)
    # An import may take its disks from the export, and an image has its own.
    has_own = op.mode == "create" and requested_image(op) is None
    template = DISK_TEMPLATES[op.disk_template] if op.disk_template and has_own else None
    check_disks(op.disks, template)
    check_nics(op.nics)
    check_backend_params(op.beparams, "beparams")


def _check_names(op: OpInstanceCreate) -> None:
    """Refuse an unknown disk template or hypervisor, and parameters that this hypervisor lacks."""
    if op.disk_template and op.disk_template not in DISK_TEMPLATES:
        raise InputError(
            f"{op.disk_template!r:.40} is not a disk template; known: {', '.join(DISK_TEMPLATES)}",
            "disk_template",
        )
    if op.hypervisor:
        if op.hypervisor not in HYPERVISOR_PARAMS:
            raise InputError(
                f"{op.hypervisor!r:.40} is not a hypervisor; known: {', '.join(HYPERVISOR_PARAMS)}",
                "hypervisor",
            )
        check_hypervisor_params(op.hypervisor, op.hvparams, of_instance=True, field="hvparams")


def _check_placement(op: OpInstanceCreate) -> None:
    if (op.snode or op.snode_uuid) and not (op.pnode or op.pnode_uuid):
        raise InputError("a secondary node needs a primary one", "snode")
    if (op.pnode or op.pnode_uuid) and op.iallocator:
        raise InputError("give either a node or an allocator, not both", "iallocator")
    named_allocators(op.iallocator)
    if op.explain and (op.pnode or op.pnode_uuid):
        raise InputError("has no effect with a given node: nothing was chosen", "explain")
    if op.group_name and (op.pnode or op.pnode_uuid):
        raise InputError(
            "give either a node or the group in which an allocator chooses", "group_name"
        )


def _check_secondary(op: OpInstanceCreate, template: DiskTemplate) -> None:
    secondary = op.snode or op.snode_uuid
    if secondary and not template.mirrored:
        raise InputError(f"disk template {template.name} has no secondary node", "snode")
    if template.mirrored and (op.pnode or op.pnode_uuid) and not secondary:
        raise InputError(
            f"disk template {template.name} needs a secondary node (--node NODE:SECONDARY)", "snode"
        )


def _check_os(op: OpInstanceCreate) -> None:
    if op.os_type:  # Debian's move-instance sends '' for an instance without an OS
        os_name(op.os_type, "os_type")
    elif not op.no_install and op.mode == "create" and op.image is None:
        raise InputError(
            "name the OS to install (--os-type), or skip the installation (--no-install)",
            "os_type",
        )
    for field in ("osparams", "osparams_private", "osparams_secret"):
        check_os_params(getattr(op, field), field)


def new_disks(
    ctx: UnitContext, op: OpInstanceCreate, template: DiskTemplate, group: NodeGroup | None
) -> tuple[Disk, ...]:
    """Return the disks, on no node yet; `group`: of the primary node, None while it is not chosen."""
    names = JobNames(ctx)
    return tuple(
        build_disk(
            request,
            PLANNERS[template.name],
            Site(ctx.snapshot.cluster, op.instance_name, index, op.file_storage_dir, group=group),
            names,
        )
        for index, request in enumerate(op.disks)
    )


def new_instance(
    ctx: UnitContext, op: OpInstanceCreate, template: DiskTemplate, group: NodeGroup | None
) -> Instance:
    """Return the new instance, on no node yet; its addresses are reserved for the job. `group` as for `new_disks`."""
    cluster = ctx.snapshot.cluster
    hypervisor = op.hypervisor or cluster.enabled_hypervisors[0]
    if hypervisor not in cluster.enabled_hypervisors:
        enabled = ", ".join(cluster.enabled_hypervisors)
        raise InputError(
            f"{hypervisor!r:.40} is not enabled in this cluster; enabled: {enabled}", "hypervisor"
        )
    if op.file_storage_dir is not None and not template.in_files:
        raise InputError(f"template {template.name} has no files", "file_storage_dir")
    _check_secondary(op, template)
    # An import and a move bring the system that was installed before (S156).
    if op.mode == "create" and op.os_type and is_blacklisted(cluster, op.os_type):
        raise PrereqError(
            f"os_type: {op.os_type} is blacklisted, so it cannot be installed on new instances;"
            f" to allow it: gnt-os modify --blacklisted=no {base_name(op.os_type)}",
            ErrorCode.WRONG_STATE,
        )
    hvparams = check_hypervisor_params(hypervisor, op.hvparams, of_instance=True, field="hvparams")
    check_may_set(ctx, hypervisor, hvparams)
    instance = Instance(
        uuid=InstanceUuid(ctx.ids.uuid()),
        name=op.instance_name,
        primary_node=NodeUuid(""),
        os=op.os_type or "",
        hypervisor=hypervisor,
        disk_template=template.name,
        disks=new_disks(ctx, op, template, group),
        nics=tuple(new_nic(ctx, request, index) for index, request in enumerate(op.nics)),
        hvparams=hvparams,
        beparams=changed({}, check_backend_params(op.beparams, "beparams")),
        osparams=dict(op.osparams),
        osparams_private=dict(op.osparams_private),
        tags=tuple(sorted(set(op.tags))),
    )
    check_recovery(instance)
    return with_network_port(ctx, instance)
