"""Which events fit a webhook's rule. Pure."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from ganeti.config.view import View
from ganeti.model.objects import Instance, Node, NodeGroup
from ganeti.model.stored import Stored
from ganeti.model.webhook import Webhook
from ganeti.protocols.webhook import Happened

_SUBJECT = re.compile(r"\((.*)\)", re.DOTALL)


def fits(rule: Webhook, event: Happened, view: View) -> bool:
    """Return whether the rule sends an event; `view` is the configuration after it."""
    if rule.kinds and event.kind not in rule.kinds:
        return False
    return not rule.selects_objects or any(
        _selected(rule, name, tags, thing, view) for name, tags, thing in _objects(event, view)
    )


def _selected(
    rule: Webhook, name: str, tags: tuple[str, ...], thing: Stored | None, view: View
) -> bool:
    return (
        any(fnmatchcase(name, pattern) for pattern in rule.names)
        or not set(tags).isdisjoint(rule.object_tags)
        or (bool(rule.groups) and _group_of(thing, view) in rule.groups)
    )


def _objects(event: Happened, view: View) -> Iterator[tuple[str, tuple[str, ...], Stored | None]]:
    """Yield the objects that an event is about: name, tags, and the present object if there is one."""
    content = event.content
    match event.kind:
        case "job":
            for summary in content["summary"]:
                if found := _SUBJECT.search(summary):
                    for name in found[1].split(","):
                        thing = _named(view, name.strip())
                        yield name.strip(), thing.tags if thing else (), thing
        case "backup":
            instance = view.instances.get(content["instance"])
            if instance is not None:
                yield instance.name, instance.tags, instance
        case kind:
            tables = {"instance": view.instances, "node": view.nodes, "group": view.groups}
            thing = tables[kind].get(content["uuid"]) if kind in tables else None
            yield content["name"], tuple(content["tags"]), thing


def _named(view: View, name: str) -> Stored | None:
    return (
        view.instance_by_name(name)
        or view.node_by_name(name)
        or view.group_by_name(name)
        or view.network_by_name(name)
    )


def _group_of(thing: Stored | None, view: View) -> str:
    """Return the UUID of the group to which an object belongs; empty without one."""
    match thing:
        case NodeGroup():
            return thing.uuid
        case Node():
            return thing.group
        case Instance():
            node = view.nodes.get(thing.primary_node)
            return node.group if node else ""
    return ""
