"""Finds the object for an administrator's text: UUID, full name, or unique short name (S91)."""

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.identifiers import host_name, is_uuid, plain_name
from ganeti.base.suggestions import did_you_mean
from ganeti.config.view import View
from ganeti.model.backup_key import BackupKey
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.job_filter import JobFilter
from ganeti.model.objects import Image, Instance, Network, Node, NodeGroup
from ganeti.model.webhook import Webhook

Host = TypeVar("Host", Node, Instance)

SHOWN_NAMES = 5


def resolve_node(view: View, text: str) -> Node:
    """Return the node that `text` names; PrereqError if none or several match."""
    found = view.nodes.get(text.lower()) or view.node_by_name(text.lower())
    return found or _by_short_name(view.nodes, text, "node")


def resolve_instance(view: View, text: str) -> Instance:
    """Return the instance that `text` names; PrereqError if none or several match."""
    found = view.instances.get(text.lower()) or view.instance_by_name(text.lower())
    return found or _by_short_name(view.instances, text, "instance")


def resolve_group(view: View, text: str) -> NodeGroup:
    """Return the node group that `text` names; groups have no short names."""
    found = view.groups.get(text.lower()) or view.group_by_name(text)
    return found or _refuse(view.groups, text, "group")


def resolve_network(view: View, text: str) -> Network:
    """Return the network that `text` names; networks have no short names."""
    found = view.networks.get(text.lower()) or view.network_by_name(text)
    return found or _refuse(view.networks, text, "network")


def resolve_image(view: View, text: str) -> Image:
    """Return the image that `text` names; images have no short names."""
    found = view.images.get(text.lower()) or view.image_by_name(text)
    return found or _refuse(view.images, text, "image")


def resolve_filter(view: View, text: str) -> JobFilter:
    """Return the job filter of a UUID."""
    found = view.table(JobFilter).get(text.lower())
    if found is None:
        raise _unknown("filter", repr(text[:60]), {})
    return found


def resolve_schedule(view: View, text: str) -> BackupSchedule:
    """Return the schedule of backups that `text` names."""
    schedules = view.table(BackupSchedule)
    found = schedules.get(text.lower()) or schedules.get(
        view.index.owner("schedule name", text) or ""
    )
    if found is None:
        close = did_you_mean(text[:60], [one.name for one in schedules.values()])
        raise PrereqError(
            f"there is no schedule {text[:60]!r}{close}; `gnt-backup schedule list` shows those that exist",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return found


def resolve_backup_key(view: View, text: str) -> BackupKey:
    """Return the key of backups that `text` names."""
    keys = view.table(BackupKey)
    found = keys.get(text.lower()) or keys.get(view.index.owner("backup key", text) or "")
    if found is None:
        raise PrereqError(
            f"there is no backup key {text[:60]!r}; `gnt-backup key list` shows those that exist",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return found


def resolve_webhook(view: View, text: str) -> Webhook:
    """Return the webhook that `text` names."""
    webhooks = view.table(Webhook)
    found = webhooks.get(text.lower()) or webhooks.get(view.index.owner("webhook name", text) or "")
    if found is None:
        close = did_you_mean(text[:60], [one.name for one in webhooks.values()])
        raise PrereqError(
            f"there is no webhook {text[:60]!r}{close}; `gnt-cluster webhook list` shows those that exist",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return found


def full_name(view: View, name: str) -> str:
    """Return the full name for a new instance: a name without a dot gets the cluster's domain (S91)."""
    if "." in name:
        return name
    _, dot, domain = view.cluster.name.partition(".")
    if not dot:
        raise PrereqError(
            (
                f"{name} has no domain, and neither has the cluster's name {view.cluster.name}: "
                "use the full name"
            ),
            ErrorCode.RESOLVER,
        )
    return f"{name}.{domain}"


def kept_name(view: View, text: str) -> str:
    """Return the full name by which exports and backups of an instance are kept, which need not exist any more.

    PrereqError if the text names several instances.
    """
    try:
        return resolve_instance(view, text).name
    except PrereqError as err:
        if err.code is not ErrorCode.UNKNOWN_ENTITY or is_uuid(text.lower()):
            raise
        return full_name(view, text)


def _refuse(known: Mapping[str, NodeGroup | Network | Image], text: str, what: str) -> NoReturn:
    """Refuse a name that has no short form and that nothing has."""
    name = text if is_uuid(text.lower()) else plain_name(text, f"{what} name")
    raise _unknown(what, name, known)


def _by_short_name(hosts: Mapping[str, Host], text: str, what: str) -> Host:
    """Return the only host whose name begins with the labels of `text`."""
    if is_uuid(text.lower()):
        raise _unknown(what, text, {})
    prefix = host_name(text, f"{what} name") + "."
    found = [host for host in hosts.values() if host.name.startswith(prefix)]
    if not found:
        raise _unknown(what, text, hosts)
    if len(found) > 1:
        names = sorted(host.name for host in found)
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        raise PrereqError(
            (
                f"the short {what} name {text} matches {', '.join(names[:SHOWN_NAMES])}{more}; "
                "use the full name"
            ),
            ErrorCode.NOT_UNIQUE,
        )
    return found[0]


def _unknown(
    what: str, text: str, known: Mapping[str, Node | Instance | NodeGroup | Network | Image]
) -> PrereqError:
    """Return the error, with the most similar name, of a host with or without its domain."""
    names = [one.name for one in known.values()]
    if "." not in text:
        names = [name.partition(".")[0] for name in names]
    return PrereqError(
        f"there is no {what} {text}{did_you_mean(text, names)}; `gnt-{what} list` shows those that exist",
        ErrorCode.UNKNOWN_ENTITY,
    )
