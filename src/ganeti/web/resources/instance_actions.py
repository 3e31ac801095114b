"""What is done with an instance that is there."""

from typing import Any

from ganeti.web.operations import (
    DRY_RUN,
    FORCE,
    Argument,
    Call,
    JobOf,
    Kind,
    Operation,
    flag,
    item,
    job,
)
from ganeti.web.refusals import bad_request
from ganeti.web.resources.instances import INSTANCE, THIS
from ganeti.web.rights import Right

_DRY = {"dry_run": flag("dry-run")}
_NO_REMEMBER = Argument("no_remember", Kind.FLAG, "do not remember the new state as the wanted one")
_CUSTOM = {"custom_beparams": "beparams", "custom_hvparams": "hvparams"}
_OLD_REPLACE = ("remote_node", "mode", "disks", "iallocator")
_EARLY_RELEASE = Argument("early_release", Kind.FLAG, "for old clients, which send no body")
_DISK_DIGITS = 4


def _reboot_type(call: Call) -> str:
    return call.arguments.text("type") or "hard"


def _replacement(call: Call) -> dict[str, Any]:
    """The body; old clients say it in the query, and disks as `1,2`."""
    body = dict(call.object_body())
    if not body:
        body = {
            name: value for name in _OLD_REPLACE if (value := call.arguments.text(name)) is not None
        }
        if _EARLY_RELEASE.name in call.arguments:
            body[_EARLY_RELEASE.name] = call.arguments.flag(_EARLY_RELEASE.name)
    disks = body.pop("disks", None)
    if isinstance(disks, str) and disks:
        disks = [_disk(part.strip()) for part in disks.split(",")]
    return {**body, "disks": disks} if disks else body


def _disk(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= _DISK_DIGITS):
        raise bad_request(f"Invalid disk index passed: {word!r:.40}")
    return int(word)


def _disk_of_path(call: Call) -> int:
    return _disk(call.items[1])


def _export_mode(call: Call) -> str:
    return call.arguments.needed("mode")


OPERATIONS: tuple[Operation, ...] = (
    job("POST", f"{INSTANCE}/reboot", "instances_name_reboot", "Reboot an instance",
        JobOf("OP_INSTANCE_REBOOT",
              {**THIS, **_DRY, "reboot_type": _reboot_type,
               "ignore_secondaries": flag("ignore_secondaries")}),
        Argument("type", Kind.TEXT, "soft, hard or full"),
        Argument("ignore_secondaries", Kind.FLAG, "accepted, without effect"), DRY_RUN,
        right=Right.OPERATE),
    job("PUT", f"{INSTANCE}/startup", "instances_name_startup", "Start an instance",
        JobOf("OP_INSTANCE_STARTUP",
              {**THIS, **_DRY, "force": flag("force"), "no_remember": flag("no_remember")},
              has_body=False),
        FORCE, _NO_REMEMBER, DRY_RUN, right=Right.OPERATE),
    job("PUT", f"{INSTANCE}/shutdown", "instances_name_shutdown", "Shut an instance down",
        JobOf("OP_INSTANCE_SHUTDOWN", {**THIS, **_DRY, "no_remember": flag("no_remember")}),
        _NO_REMEMBER, DRY_RUN, right=Right.OPERATE),
    job("POST", f"{INSTANCE}/replace-disks", "instances_name_replace_disks",
        "Put new disks, or another node, in the place of mirrors",
        JobOf("OP_INSTANCE_REPLACE_DISKS", THIS, make_body=_replacement),
        *(Argument(name, Kind.TEXT, "for old clients, which send no body")
          for name in _OLD_REPLACE), _EARLY_RELEASE),
    job("POST", f"{INSTANCE}/repair", "instances_name_repair",
        "Replace disks that are broken on the primary node, from their other copies",
        JobOf("OP_INSTANCE_REPAIR", {**THIS, **_DRY}), DRY_RUN),
    job("PUT", f"{INSTANCE}/activate-disks", "instances_name_activate_disks",
        "Make an instance's disks usable on its node",
        JobOf("OP_INSTANCE_ACTIVATE_DISKS", {**THIS, "ignore_size": flag("ignore_size")},
              has_body=False),
        Argument("ignore_size", Kind.FLAG, "whatever size they are recorded with"),
        right=Right.OPERATE),
    job("PUT", f"{INSTANCE}/deactivate-disks", "instances_name_deactivate_disks",
        "The reverse", JobOf("OP_INSTANCE_DEACTIVATE_DISKS", {**THIS, "force": flag("force")},
                             has_body=False), FORCE, right=Right.OPERATE),
    job("POST", f"{INSTANCE}/recreate-disks", "instances_name_recreate_disks",
        "Make disks anew that are lost", JobOf("OP_INSTANCE_RECREATE_DISKS", THIS)),
    job("PUT", f"{INSTANCE}/prepare-export", "instances_name_prepare_export",
        "Find out what an export needs",
        JobOf("OP_BACKUP_PREPARE", {**THIS, "mode": _export_mode}, has_body=False),
        Argument("mode", Kind.TEXT, "local or remote")),
    job("PUT", f"{INSTANCE}/abandon-export", "instances_name_abandon_export",
        "Remove the key of a move to another cluster that was prepared", JobOf("OP_BACKUP_ABANDON", THIS)),
    job("PUT", f"{INSTANCE}/export", "instances_name_export", "Export an instance",
        JobOf("OP_BACKUP_EXPORT", THIS, {"destination": "target_node"})),
    job("DELETE", f"{INSTANCE}/export", "instances_name_export", "Remove an instance's export",
        JobOf("OP_BACKUP_REMOVE", THIS, has_body=False)),
    job("PUT", f"{INSTANCE}/migrate", "instances_name_migrate",
        "Move an instance to another node without stopping it",
        JobOf("OP_INSTANCE_MIGRATE", THIS), right=Right.OPERATE),
    job("PUT", f"{INSTANCE}/failover", "instances_name_failover",
        "Stop an instance, and start it on another node",
        JobOf("OP_INSTANCE_FAILOVER", THIS), right=Right.OPERATE),
    job("PUT", f"{INSTANCE}/rename", "instances_name_rename", "Give an instance another name",
        JobOf("OP_INSTANCE_RENAME", THIS)),
    job("PUT", f"{INSTANCE}/modify", "instances_name_modify", "Change an instance",
        JobOf("OP_INSTANCE_SET_PARAMS", THIS, _CUSTOM)),
    job("POST", f"{INSTANCE}/disk/{{disk}}/grow", "instances_name_disk_grow", "Make a disk larger",
        JobOf("OP_INSTANCE_GROW_DISK", {"instance_name": item(0), "disk": _disk_of_path})),
)  # fmt: skip
