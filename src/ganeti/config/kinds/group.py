"""Node groups."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode
from ganeti.base.identifiers import plain_name
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.objects import Cluster, NodeGroup
from ganeti.model.webhook import Webhook


def _claims(_cluster: Cluster, group: NodeGroup) -> Iterator[Claim]:
    yield Claim("group name", group.name)


def _problems(view: View, group: NodeGroup) -> Iterator[Problem]:
    yield from name_problems(plain_name, group.name, "group name")
    for uuid in group.networks.keys() - view.networks.keys():
        yield (
            ErrorCode.UNKNOWN_ENTITY,
            f"group {group.name}: it is connected to the network {uuid}, which does not exist",
        )


def _references(view: View, group: NodeGroup) -> Iterator[Problem]:
    members = [node.name for node in view.nodes_by_name() if node.group == group.uuid]
    if members:
        yield (
            ErrorCode.WRONG_STATE,
            f"group {group.name} still has {len(members)} nodes, for example {members[0]}",
        )
    for schedule in view.table(BackupSchedule).values():
        if group.uuid in schedule.groups:
            text = (
                f"schedule {schedule.name} saves the instances of group {group.name}; change or remove it first:"
                f" gnt-backup schedule modify {schedule.name} --groups="
            )
            yield ErrorCode.WRONG_STATE, text
    for webhook in view.table(Webhook).values():
        if group.uuid in webhook.groups:
            text = (
                f"webhook {webhook.name} names group {group.name}; change or remove it first:"
                f" gnt-cluster webhook modify {webhook.name} --groups="
            )
            yield ErrorCode.WRONG_STATE, text


GROUP = Kind("group", NodeGroup, _claims, _problems, _references)
