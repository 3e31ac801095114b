"""Summarises the nodes' reports about providers of external storage. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node
from ganeti.rpc.procedures.external import ProviderInfo

PROVIDER_FIELDS = ("name", "node_status", "nodegroup_status", "parameters")

Answers = Mapping[str, Sequence[ProviderInfo]]
"""UUID of a node -> its providers."""


def provider_rows(
    snapshot: Snapshot, nodes: Iterable[Node], answers: Answers
) -> list[dict[str, Any]]:
    """Return all fields of each provider of any node, by name.

    Statuses have Ganeti's form: `(path, usable, problem, parameters)` by node; a group's is whether
    all of `nodes` in it can use the provider.
    """
    asked = list(nodes)
    found = {
        node.name: {one.name: one for one in answers[node.uuid]}
        for node in asked
        if node.uuid in answers
    }
    names = sorted({name for known in found.values() for name in known})
    return [_described(snapshot, asked, name, found) for name in names]


def _described(
    snapshot: Snapshot,
    nodes: Iterable[Node],
    name: str,
    found: Mapping[str, Mapping[str, ProviderInfo]],
) -> dict[str, Any]:
    by_node = {node: known[name] for node, known in found.items() if name in known}
    by_group: dict[str, list[bool]] = {}
    for node in nodes:
        info = by_node.get(node.name)
        group = snapshot.groups[node.group].name
        by_group.setdefault(group, []).append(info is not None and not info.problem)
    return {
        "name": name,
        "node_status": {
            node: [[one.path, not one.problem, one.problem, [list(p) for p in one.parameters]]]
            for node, one in by_node.items()
        },
        "nodegroup_status": {group: all(good) for group, good in by_group.items()},
        "parameters": _shared(list(by_node.values())),
    }


def _shared(infos: Sequence[ProviderInfo]) -> list[list[str]]:
    """Return the parameters that every usable provider has."""
    usable = [dict(one.parameters) for one in infos if not one.problem]
    if not usable:
        return []
    return [[name, text] for name, text in usable[0].items() if all(name in one for one in usable)]
