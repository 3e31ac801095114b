"""What each opcode destroys, and how a command makes sure that it is meant (G12).

Every opcode has its place in one of two tables, which a test holds against the list of opcodes. The
functions of `jobs` that submit ask the questions, so no command can forget one.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.cli.confirmation import confirm

Question = Callable[[Sequence[Any]], str | None]
"""Of opcodes of one kind: what to ask; None if these destroy nothing."""


class Loss(NamedTuple):
    """What an opcode destroys. `sure` are options that answer the question in advance.

    The first one, by argparse's name, is for one opcode; the last one for several.
    """

    what: str
    question: Question
    sure: tuple[str, ...] = ("force",)
    asks: bool = True
    """False: only the option will do, as scripts of administrators know it."""
    scripts_mean_it: bool = False
    """The original does not ask: only who sits at a terminal is asked, so that scripts go on."""


def _remove(ops: Sequence[Any]) -> str:
    return f"Remove instance {_names(ops)} and all data on its disks?"


def _reinstall(ops: Sequence[Any]) -> str:
    what = f"OS {ops[0].os_type}" if ops[0].os_type else "the OS that each has"
    return f"Install {what} on {_names(ops)}? All data on the disks is lost."


def _remove_disks(ops: Sequence[Any]) -> str | None:
    disks = [str(which) for op in ops for action, which, _params in op.disks if action == "remove"]
    if not disks:
        return None
    shown = ", ".join("the last one" if disk == "-1" else disk for disk in disks)
    return f"Remove from {_names(ops)} disk {shown}, and all data on it?"


def _recreate(ops: Sequence[Any]) -> str | None:
    if not any(op.nodes or op.iallocator for op in ops):
        return None  # a disk that is there is refused
    return f"Give up what the present node may still have on the disks of {_names(ops)}?"


def _powercycle(ops: Sequence[Any]) -> str:
    return f"Restart node {ops[0].node_name} at once? Whatever runs there is lost."


def _switch(ops: Sequence[Any]) -> str | None:
    op = ops[0]
    what = {"power-off": "Switch off", "power-cycle": "Switch off and on again"}.get(op.command)
    nodes = ", ".join(op.node_names) or "all nodes but the master"
    return f"{what} {nodes}? Whatever runs there is lost." if what else None


def _repair(ops: Sequence[Any]) -> str | None:
    if not ops[0].ignore_consistency:
        return None  # it is refused where data would be lost
    return f"Give up what lay on lost devices of {ops[0].name} on {ops[0].node_name}?"


def _choose_copy(ops: Sequence[Any]) -> str | None:
    keep = ops[0].keep
    if not keep:
        return None  # disks are replaced where the other copy has all data
    return f"Keep the copy of {_names(ops)} on {keep}, and lose the writes that only its other copy has?"


def _names(ops: Sequence[Any]) -> str:
    return ", ".join(op.instance_name for op in ops)


LOSSES: Mapping[str, Loss] = {
    "OP_CLUSTER_DESTROY": Loss(
        "the cluster's state and keys",
        lambda _ops: "Destroying a cluster cannot be taken back.",
        ("is_sure",),
        asks=False,
    ),
    "OP_INSTANCE_REMOVE": Loss("the instance and its disks", _remove),
    "OP_INSTANCE_REINSTALL": Loss("the data on the disks", _reinstall, ("force", "force_multi")),
    "OP_INSTANCE_SET_PARAMS": Loss("disks that are removed", _remove_disks, scripts_mean_it=True),
    "OP_INSTANCE_RECREATE_DISKS": Loss(
        "disks on a node that is given up", _recreate, scripts_mean_it=True
    ),
    "OP_INSTANCE_REPAIR": Loss("the writes that only the copy has that is not kept", _choose_copy),
    "OP_NODE_POWERCYCLE": Loss(
        "the memory of the node's guests", _powercycle, ("force", "is_sure")
    ),
    "OP_OOB_COMMAND": Loss("the memory of the nodes' guests", _switch),
    "OP_REPAIR_NODE_STORAGE": Loss("what lay on lost devices", _repair),
}

NOTHING_LOST: Mapping[str, str] = {
    "OP_BACKUP_EXPORT": "an older export goes once the new one is whole; the instance, if that is said",
    "OP_BACKUP_ABANDON": "removes the key of a move that is given up",
    "OP_BACKUP_PREPARE": "makes a key",
    "OP_BACKUP_QUERY": "reads",
    "OP_BACKUP_REMOVE": "the export that is named; Ganeti's command has no other way to say so",
    "OP_CLUSTER_BALANCE": "moves instances, whole",
    "OP_CLUSTER_CAPACITY": "reads",
    "OP_CLUSTER_COMMAND": "what the administrator's own line does, where nodes allow that",
    "OP_CLUSTER_COPY_FILE": "files that nodes list for it",
    "OP_CLUSTER_POST_INIT": "writes files of the cluster's own",
    "OP_CLUSTER_QUERY": "reads",
    "OP_CLUSTER_REDIST_CONF": "writes files of the cluster's own",
    "OP_CLUSTER_RENAME": "a name and an address; the command asks for its clients' sake",
    "OP_CLUSTER_RENEW_CRYPTO": "keys, which count until the new ones do; the command asks",
    "OP_CLUSTER_REPAIR_DISK_SIZES": "records sizes; disks stay as they are",
    "OP_CLUSTER_SET_PARAMS": "changes parameters; disks stay where they are",
    "OP_CLUSTER_VERIFY": "reads",
    "OP_CLUSTER_VERIFY_CONFIG": "reads",
    "OP_CLUSTER_VERIFY_GROUP": "reads",
    "OP_CLUSTER_VERIFY_DISKS": "reads",
    "OP_GROUP_VERIFY_DISKS": "reads",
    "OP_INSTANCE_DISK_STATUS": "reads",
    "OP_NODE_LIST_DRBD": "reads",
    "OP_CLUSTER_ACTIVATE_MASTER_IP": "an address",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": "an address; the command asks for its clients' sake",
    "OP_EXT_STORAGE_DIAGNOSE": "reads",
    "OP_GROUP_ADD": "makes an entry",
    "OP_GROUP_ASSIGN_NODES": "changes entries",
    "OP_GROUP_EVACUATE": "moves instances, whole",
    "OP_GROUP_REMOVE": "an entry of a group without nodes",
    "OP_GROUP_RENAME": "changes an entry",
    "OP_GROUP_SET_PARAMS": "changes parameters",
    "OP_INSTANCE_ACTIVATE_DISKS": "disks stay",
    "OP_INSTANCE_CHANGE_GROUP": "moves an instance, whole",
    "OP_INSTANCE_CONSOLE": "reads",
    "OP_INSTANCE_CREATE": "makes new disks only; what exists is refused",
    "OP_INSTANCE_DEACTIVATE_DISKS": "disks stay",
    "OP_INSTANCE_FAILOVER": "disks stay; the guest is shut down, for which the command asks",
    "OP_INSTANCE_GROW_DISK": "disks never shrink",
    "OP_INSTANCE_MIGRATE": "moves an instance, whole",
    "OP_INSTANCE_MOVE": "copies disks before the old ones go",
    "OP_INSTANCE_MULTI_ALLOC": "makes new disks only",
    "OP_INSTANCE_REPLACE_DISKS": "the other copy has all data, or nothing is replaced",
    "OP_INSTANCE_QUERY_DATA": "reads",
    "OP_INSTANCE_REBOOT": "disks stay",
    "OP_INSTANCE_RENAME": "files of disks go along",
    "OP_INSTANCE_SHUTDOWN": "disks stay",
    "OP_INSTANCE_STARTUP": "disks stay",
    "OP_NETWORK_ADD": "makes an entry",
    "OP_NETWORK_CONNECT": "changes an entry",
    "OP_NETWORK_DISCONNECT": "a mode and a link, where no instance uses them",
    "OP_NETWORK_REMOVE": "an entry that no instance uses",
    "OP_NETWORK_RENAME": "changes an entry",
    "OP_NETWORK_SET_PARAMS": "changes an entry",
    "OP_NODE_ADD": "a host that belongs to a cluster is refused",
    "OP_NODE_EVACUATE": "moves instances, whole",
    "OP_NODE_MIGRATE": "moves instances, whole",
    "OP_NODE_MODIFY_STORAGE": "a directory, if it is empty",
    "OP_NODE_QUERYVOLS": "reads",
    "OP_NODE_QUERY_STORAGE": "reads",
    "OP_NODE_REMOVE": "a node without instances",
    "OP_NODE_RENAME": "changes an entry",
    "OP_NODE_SET_PARAMS": "changes an entry",
    "OP_OS_DIAGNOSE": "reads",
    "OP_RESTRICTED_COMMAND": "what programs do that nodes offer",
    "OP_CLUSTER_CONFIG_QUERY": "reads",
    "OP_QUERY": "reads",
    "OP_QUERY_FIELDS": "reads",
    "OP_TAGS_DEL": "words, which can be given again",
    "OP_TAGS_GET": "reads",
    "OP_TAGS_SEARCH": "reads",
    "OP_TAGS_SET": "adds words",
    "OP_TEST_ALLOCATOR": "reads",
    "OP_TEST_DELAY": "sleeps",
    "OP_TEST_DUMMY": "talks; jobs that it submits are looked at when they are given",
    "OP_TEST_JQUEUE": "talks",
    "OP_TEST_OS_PARAMS": "reads",
}
"""Every other opcode, and why it destroys nothing."""


def confirm_losses(ops: Sequence[Any], args: argparse.Namespace) -> None:
    """Return if nothing is destroyed by these opcodes of one kind, or it is meant; NeedsConfirmation."""
    loss = LOSSES.get(ops[0].op_id()) if ops else None
    if loss is None or (question := loss.question(ops)) is None:
        return
    if loss.scripts_mean_it and not sys.stdin.isatty():
        return
    enough = loss.sure if len(ops) == 1 else loss.sure[-1:]
    confirm(
        question,
        is_sure=any(getattr(args, name) for name in enough),
        how=_OPTIONS[enough[0]],
        can_ask=loss.asks,
    )


_OPTIONS = {"force": "--force", "force_multi": "--force-multiple", "is_sure": "--yes-do-it"}
